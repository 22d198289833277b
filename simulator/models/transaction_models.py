"""Models of transaction coordinators: what each committed entry may change, and the outcome of every transaction.

The model contains the rules, and none of the code that applies them: one decision per transaction, an epoch that rises
by one, identities that are never used twice, and work that is committed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import transaction_log_pb2 as log
from quorumlog.v1.transactions_pb2 import (
    TRANSACTION_CAUSE_NEW_INSTANCE,
    TRANSACTION_CAUSE_OPERATOR,
    TRANSACTION_CAUSE_TIMEOUT,
    ProducerIdentity,
    TransactionPlace,
)
from quorumlog.wire.entry import ENVELOPE_BYTES
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

LAST_EPOCH = 32_766
#: A producer id with its epoch.
Identity = tuple[int, int]
#: A position in a coordinator's log: term, index.
LogPlace = tuple[int, int]
#: A topic's id and a partition's number; of a consumer group: its id and -1.
Partition = tuple[bytes, int]


def place_of(form: TransactionPlace) -> LogPlace:
    """Returns a place in a message."""
    return form.term, form.index


def identity_of(form: ProducerIdentity) -> Identity:
    """Returns an identity in a message."""
    return form.producer_id, form.producer_epoch


def as_participant(group_id: str) -> Partition:
    """Returns a consumer group as a participant."""
    return group_id.encode(), -1


@dataclass(slots=True)
class ModelTransaction:
    """A transaction by the log.

    Attributes:
        origin, since_us: where and when it started.
        writers: the partitions and consumer groups of each writer.
        decided: where it was decided; None while it is open.
        committed: the writers whose records are committed.
        seen_us: when its decision was committed.
    """

    name: str
    origin: LogPlace
    since_us: int
    producer: Identity
    writers: dict[Identity, set[Partition]] = field(default_factory=dict)
    decided: LogPlace | None = None
    committed: frozenset[Identity] = frozenset()
    seen_us: int = 0
    is_ended: bool = False


@dataclass(slots=True)
class _ModelId:
    """A transactional id by the log."""

    version: int
    identity: Identity
    timeout_ms: int
    work: int | None = None
    committed_work: int | None = None
    open: ModelTransaction | None = None
    unended: list[ModelTransaction] = field(default_factory=list)


class TransactionModel:
    """One coordinator by its log.

    Arguments:
        used: the transactional id of each producer id, in all coordinators.
        clock_error: maximum deviation of a node's clock, as a share.
    """

    def __init__(self, raft_group: int, used: dict[int, str], clock_error: float) -> None:
        self.ids: dict[str, _ModelId] = {}
        self.decided: list[ModelTransaction] = []
        self._raft_group = raft_group
        self._used = used
        self._clock_error = clock_error
        self._identities: set[Identity] = set()
        self._digests: dict[int, bytes] = {}

    def commit(self, entry: Entry, now_us: int) -> None:
        """Applies the next committed entry.

        Raises:
            Violation: no leader should have proposed it.
        """
        if entry.kind is not EntryKind.COMMAND:
            return
        command = log.TransactionCommand.FromString(entry.data[ENVELOPE_BYTES:])
        for change in command.changes:
            where = f"entry {entry.index} of transaction coordinator {self._raft_group}, {change.transactional_id}"
            self._change(where, change, (entry.term, entry.index), now_us)

    def _change(self, where: str, change: log.TransactionChange, place: LogPlace, now_us: int) -> None:
        name = change.transactional_id
        known = self.ids.get(name)
        if change.base_version != (known.version if known is not None else 0):
            raise Violation(f"{where}: it is based on version {change.base_version}, the id has another")
        if not change.version:
            if known is None or known.open is not None or known.unended:
                raise Violation(f"{where}: it is removed while a transaction is open or not ended")
            del self.ids[name]
            return
        if known is None:
            known = self._create(where, change)
        elif change.HasField("producer"):
            self._check_raise(where, known.identity, identity_of(change.producer.identity), name)
        known.version = change.version
        self._begin(where, known, change, place, now_us)
        if change.HasField("decision"):
            self._decide(where, known, change, place, now_us)
        if change.HasField("producer"):
            known.identity, known.timeout_ms = identity_of(change.producer.identity), change.producer.timeout_ms
            known.work = change.producer.work if change.producer.HasField("work") else None
        for ended in change.ended:
            self._end(where, known, place_of(ended))

    def _create(self, where: str, change: log.TransactionChange) -> _ModelId:
        identity = identity_of(change.producer.identity)
        self._take(where, identity, change.transactional_id)
        if identity[1]:
            raise Violation(f"{where}: a new producer starts with epoch {identity[1]}")
        created = self.ids[change.transactional_id] = _ModelId(0, identity, change.producer.timeout_ms)
        return created

    def _take(self, where: str, identity: Identity, name: str) -> None:
        if self._used.setdefault(identity[0], name) != name or identity in self._identities:
            raise Violation(f"{where}: identity {identity} was used before")
        self._identities.add(identity)

    def _check_raise(self, where: str, before: Identity, after: Identity, name: str) -> None:
        if after == before:
            return
        if after[0] == before[0] and after[1] != before[1] + 1:
            raise Violation(f"{where}: the epoch goes from {before[1]} to {after[1]}, by more than one")
        if after[0] != before[0] and (after[1] or before[1] != LAST_EPOCH):
            raise Violation(f"{where}: the producer id changes from {before} to {after}, although epochs are left")
        self._take(where, after, name)

    def _begin(self, where: str, known: _ModelId, change: log.TransactionChange, place: LogPlace, now_us: int) -> None:
        if change.HasField("start"):
            if known.open is not None:
                raise Violation(f"{where}: a transaction starts while another is open")
            known.open = ModelTransaction(change.transactional_id, place, now_us, known.identity)
        for writer in change.writers:
            if known.open is None:
                raise Violation(f"{where}: a writer joins, and no transaction is open")
            identity = identity_of(writer.identity)
            if identity != known.identity and identity not in known.open.writers:
                self._take(where, identity, change.transactional_id)
            partitions = known.open.writers.setdefault(identity, set())
            partitions.update((topic.topic_id, number) for topic in writer.topics for number in topic.partitions)
            partitions.update(map(as_participant, writer.group_ids))

    def _decide(self, where: str, known: _ModelId, change: log.TransactionChange, place: LogPlace, now_us: int) -> None:
        decision, transaction = change.decision, known.open
        after = identity_of(decision.next)
        caused = decision.cause in (
            TRANSACTION_CAUSE_TIMEOUT,
            TRANSACTION_CAUSE_NEW_INSTANCE,
            TRANSACTION_CAUSE_OPERATOR,
        )
        if caused and (after == known.identity or decision.commit or transaction is None):
            raise Violation(f"{where}: the coordinator itself decides, and the epoch stays, or it commits")
        if change.HasField("producer") and after != identity_of(change.producer.identity):
            raise Violation(f"{where}: the decision is followed by {after}, the producer has another identity")
        if decision.cause == TRANSACTION_CAUSE_TIMEOUT and transaction is not None:
            least = known.timeout_ms * 1_000 * (1 - 2 * self._clock_error)
            if now_us - transaction.since_us < least:
                raise Violation(f"{where}: it times out after {now_us - transaction.since_us} µs")
        if transaction is None:
            return
        by_id = {identity[0]: identity for identity in transaction.writers}
        named = {by_id.get(number, (number, -1)) for number in decision.committed_writers}
        if not named <= transaction.writers.keys() | {known.identity}:
            raise Violation(f"{where}: it commits writers {named}, which have not joined")
        own = {each for each in transaction.writers if each[0] == known.identity[0]}
        transaction.committed = (
            frozenset(own | (named & transaction.writers.keys())) if decision.commit else frozenset()
        )
        transaction.decided, transaction.seen_us, known.open = place, now_us, None
        self.decided.append(transaction)
        known.unended.append(transaction)
        if not any(transaction.writers.values()):
            known.unended.remove(transaction)
            transaction.is_ended = True
        if decision.commit and known.work is not None:
            if known.committed_work is not None and known.work <= known.committed_work:
                raise Violation(f"{where}: work {known.work} is committed after {known.committed_work}")
            known.committed_work = known.work

    @staticmethod
    def _end(where: str, known: _ModelId, place: LogPlace) -> None:
        ended = [each for each in known.unended if each.decided == place]
        if not ended:
            raise Violation(f"{where}: the decision at {place} ends, and is not known")
        known.unended.remove(ended[0])
        ended[0].is_ended = True

    def check_table(self, what: str, applied: int, data: bytes) -> None:
        """Checks that all replicas have the same state at the same entry, and the ids that the log has made.

        Raises:
            Violation: one has another.
        """
        digest = blake2b(data, digest_size=16).digest()
        if self._digests.setdefault(applied, digest) != digest:
            raise Violation(f"{what} as of entry {applied} differs from that of another replica")


class TransactionModels:
    """The models of all transaction coordinators, by Raft group."""

    def __init__(self) -> None:
        self.clock_error = 0.0
        self._models: dict[int, TransactionModel] = {}
        self._used: dict[int, str] = {}
        self._applied: dict[tuple[int, int], int] = {}

    def __contains__(self, raft_group: int) -> bool:
        return raft_group in self._models

    def __getitem__(self, raft_group: int) -> TransactionModel:
        return self._models[raft_group]

    def learn(self, partitions: Iterable[PartitionRecord]) -> None:
        """Stores the coordinators known to some node."""
        for partition in partitions:
            if partition.topic.name == TRANSACTIONS_TOPIC and partition.group not in self._models:
                self._models[partition.group] = TransactionModel(partition.group, self._used, self.clock_error)

    def check_table(self, node: int, raft_group: int, applied: int, data: Callable[[], bytes]) -> None:
        """Judges a node's table of a coordinator, whenever it has applied more."""
        if self._applied.get((node, raft_group)) != applied:
            self._applied[(node, raft_group)] = applied
            self._models[raft_group].check_table(f"node {node}'s state of coordinator {raft_group}", applied, data())

    @property
    def transactions(self) -> list[ModelTransaction]:
        """Every decided transaction that had a writer, in no particular order."""
        return [each for model in self._models.values() for each in model.decided]

    @property
    def open(self) -> list[tuple[ModelTransaction, int]]:
        """Every open transaction, with the timeout of its producer in milliseconds."""
        ids = (known for model in self._models.values() for known in model.ids.values())
        return [(known.open, known.timeout_ms) for known in ids if known.open is not None]

    @property
    def commands(self) -> int:
        """The number of decided transactions."""
        return sum(len(model.decided) for model in self._models.values())
