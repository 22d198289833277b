"""Draft of a coordinator's next command: a view of its transactional ids in which requests make changes, one after the
other, until these become one command of the log.

The transactional ids that the log has made are not changed; they must not change while a draft over them is in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding.transaction_participants import Identity, Participant, identity_form, place_form
from quorumlog.server.transactions.transaction_forms import producer_form, writer_form
from quorumlog.server.transactions.transaction_record import Decision, TransactionalId, TransactionProducer
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1 import transaction_log_pb2
from quorumlog.v1.transactions_pb2 import TransactionCause
from quorumlog.wire.kafka.control import LogPlace

#: Approximate size of a change without its participants.
_CHANGE_BYTES = 150


class ProducerIdSource(Protocol):
    """Producer ids that no other producer has."""

    def take(self) -> int | None:
        """Returns one; None if none is available now."""

    def give_back(self, producer_ids: Iterable[int]) -> None:
        """Takes back ids that were not used."""


class DraftSurroundings(Protocol):
    """The state of a coordinator's leader beside its log."""

    @property
    def metadata_index(self) -> int:
        """The index of the metadata log that this node has applied."""

    def has_partition(self, topic_id: bytes, number: int) -> bool:
        """True if the metadata contain a partition."""

    def is_answered(self, name: str, decided: LogPlace, producer_id: int, participant: Participant) -> bool:
        """True if a participant of a decision has answered to this leader."""


class TransactionEdit:
    """One transactional id as a draft changes it.

    Arguments:
        base: the state that the log has made; None if the id is new.
        version: the version after the change.

    Attributes:
        producer: after the changes so far; None if the id is new and has none yet.
        starts: a transaction starts with this entry.
        is_decided: the open transaction is decided with this entry. Nothing else happens to the id in it: a transaction
            that started in the same entry would have the place of the decision on the former one, and be fenced by it.
    """

    def __init__(self, name: str, base: TransactionalId | None, version: int) -> None:
        self.name = name
        self.base = base
        self.version = version
        self.producer = base.producer if base is not None else None
        self.starts: transaction_log_pb2.TransactionStart | None = None
        self.is_deleted = False
        self.size_bytes = _CHANGE_BYTES
        self._decision: transaction_log_pb2.TransactionDecision | None = None
        self._joined: dict[int, int] = {}
        self._added: dict[int, set[Participant]] = {}
        self._ended: list[LogPlace] = []
        #: Counted once: a thousand writers may enlist participants in one decision.
        self._participants_before = base.participants if base is not None else 0

    # -- the state after the changes so far ---------------------------------------------------------------------------

    @property
    def is_decided(self) -> bool:
        return self._decision is not None

    @property
    def has_new_producer(self) -> bool:
        """True if the producer gets its identity with this entry: another one would fence it before it is known."""
        return self.producer is not (self.base.producer if self.base is not None else None)

    @property
    def is_open(self) -> bool:
        """True if a transaction is open."""
        was_open = self.base is not None and self.base.open is not None
        return (was_open or self.starts is not None) and not self.is_decided

    def writer_epoch(self, producer_id: int) -> int | None:
        """Returns the epoch of a writer of the open transaction; None if it has no such writer."""
        if producer_id in self._joined:
            return self._joined[producer_id]
        transaction = self.base.open if self.base is not None else None
        writer = transaction.writers.get(producer_id) if transaction is not None else None
        return writer.epoch if writer is not None else None

    def has(self, producer_id: int, participant: Participant) -> bool:
        """True if a participant of a writer is enlisted in the open transaction."""
        if participant in self._added.get(producer_id, ()):
            return True
        transaction = self.base.open if self.base is not None else None
        writer = transaction.writers.get(producer_id) if transaction is not None else None
        return writer is not None and participant in writer.participants

    @property
    def participants(self) -> int:
        """Number of participants of transactions that have not ended."""
        return self._participants_before + sum(len(added) for added in self._added.values())

    @property
    def writers(self) -> int:
        """Number of writers of the open transaction."""
        transaction = self.base.open if self.base is not None else None
        return len(self._joined) + (len(transaction.writers) if transaction is not None else 0)

    # -- changes ------------------------------------------------------------------------------------------------------

    def start(self, started_ms: int, *, explicit: bool) -> None:
        """Starts a transaction."""
        self.starts = transaction_log_pb2.TransactionStart(started_ms=started_ms, explicit=explicit)

    def join(self, writer: Identity) -> None:
        """Adds a writer to the open transaction, unless it is one."""
        if self.writer_epoch(writer.producer_id) is None:
            self._joined[writer.producer_id] = writer.epoch
            self.size_bytes += _CHANGE_BYTES

    def enlist(self, writer: Identity, participants: Iterable[Participant]) -> None:
        """Adds participants of a writer to the open transaction."""
        self.join(writer)
        added = self._added.setdefault(writer.producer_id, set())
        for participant in participants:
            added.add(participant)
            self.size_bytes += participant.size_bytes

    def decide(self, decision: transaction_log_pb2.TransactionDecision) -> None:
        """Decides the open transaction, or that there was none."""
        self._decision = decision

    def end(self, decisions: Iterable[LogPlace]) -> None:
        """Records decisions of which every participant has answered."""
        self._ended.extend(decisions)

    @property
    def is_changed(self) -> bool:
        """True if anything has changed."""
        before = self.base.producer if self.base is not None else None
        return bool(
            self.producer != before
            or self.is_deleted
            or self.starts is not None
            or self._joined
            or any(self._added.values())
            or self.is_decided
            or self._ended
        )

    def change(self) -> transaction_log_pb2.TransactionChange:
        """Returns the changes as a record of the log."""
        base_version = self.base.version if self.base is not None else 0
        change = transaction_log_pb2.TransactionChange(transactional_id=self.name, base_version=base_version)
        if self.is_deleted:
            return change
        change.version = self.version
        before = self.base.producer if self.base is not None else None
        if self.producer is not None and self.producer != before:
            change.producer.CopyFrom(producer_form(self.producer))
        if self.starts is not None:
            change.start.CopyFrom(self.starts)
        for producer_id in sorted({*self._joined, *self._added}):
            epoch = self.writer_epoch(producer_id)
            assert epoch is not None, "participants are added to a writer"
            change.writers.append(writer_form(producer_id, epoch, self._added.get(producer_id, ())))
        if self._decision is not None:
            change.decision.CopyFrom(self._decision)
        change.ended.extend(place_form(place) for place in sorted(self._ended))
        return change


class TransactionDraft:
    """Changes of a coordinator's transactional ids.

    Arguments:
        ids: new producer ids.
        wall_ms: milliseconds since the epoch.
        applied_index: applied index of the coordinator's log. The versions of a new id start after it, and so after all
            versions of a former id of the same name, each of which was an entry.
    """

    def __init__(
        self,
        table: TransactionTable,
        limits: TransactionLimits,
        ids: ProducerIdSource,
        surroundings: DraftSurroundings,
        wall_ms: int,
        applied_index: int,
    ) -> None:
        assert surroundings.metadata_index >= table.metadata_index, "the metadata are older than what was decided"
        self._table = table
        self._edits: dict[str, TransactionEdit] = {}
        self._new = 0
        self._ids = ids
        self._taken: list[int] = []
        self._applied_index = applied_index
        self.surroundings = surroundings
        self.limits = limits
        self.wall_ms = wall_ms

    def find(self, name: str) -> TransactionEdit | None:
        """Returns a transactional id for changes; None if it does not exist."""
        known = self._edits.get(name)
        if known is None and name in self._table.records:
            base = self._table.records[name]
            known = self._edits[name] = TransactionEdit(name, base, base.version + 1)
        return None if known is None or known.is_deleted else known

    def create(self, name: str, producer: TransactionProducer) -> TransactionEdit:
        """Returns a new transactional id."""
        assert name not in self._table.records and name not in self._edits, f"transactional id {name} exists"
        edit = self._edits[name] = TransactionEdit(name, None, self._applied_index + 1)
        edit.producer = producer
        self._new += 1
        return edit

    def take_producer_id(self) -> int | None:
        """Returns a new producer id; None if none is available now."""
        producer_id = self._ids.take()
        if producer_id is not None:
            self._taken.append(producer_id)
        return producer_id

    def drop(self) -> None:
        """Returns the producer ids of a draft that was not accepted."""
        self._ids.give_back(self._taken)
        self._taken = []

    def due(self, edit: TransactionEdit, producer_id: int, participant: Participant) -> Decision | None:
        """Returns the newest decision on a former transaction of a producer id that a participant has not answered."""
        if edit.base is None:
            return None
        for decision in reversed(edit.base.decisions):
            writer = decision.writers.get(producer_id)
            if writer is not None and participant in writer.participants:
                answered = self.surroundings.is_answered(edit.name, decision.place, producer_id, participant)
                return None if answered else decision
        return None

    @property
    def is_full(self) -> bool:
        """True if the coordinator has its maximum number of transactional ids."""
        return len(self._table.records) + self._new >= self.limits.ids

    @property
    def has_room(self) -> bool:
        """True if the coordinator may store more."""
        return self._table.size_bytes + self.size_bytes < self.limits.coordinator_bytes

    # -- the outcome --------------------------------------------------------------------------------------------------

    def changed(self, key: str) -> bool:
        """True if the draft changes a transactional id."""
        edit = self._edits.get(key)
        return edit is not None and edit.is_changed

    @property
    def size_bytes(self) -> int:
        """Approximate size of the command so far, in bytes."""
        return sum(edit.size_bytes for edit in self._edits.values())

    def command(self) -> transaction_log_pb2.TransactionCommand | None:
        """Returns the changes as a command for the log; None if nothing changed."""
        changes = [edit.change() for edit in self._edits.values() if edit.is_changed]
        if not changes:
            return None
        return transaction_log_pb2.TransactionCommand(
            timestamp_ms=self.wall_ms, changes=changes, metadata_index=self.surroundings.metadata_index
        )


def decision_form(
    *, commit: bool, cause: TransactionCause.ValueType, following: Identity, writers: Iterable[int] = ()
) -> transaction_log_pb2.TransactionDecision:
    """Returns a decision as a record of the log.

    Arguments:
        following: the identity of the producer after it.
        writers: of a commit: the producer ids of the writers that count, besides the producer itself.
    """
    return transaction_log_pb2.TransactionDecision(
        commit=commit, cause=cause, next=identity_form(following), committed_writers=sorted(writers)
    )
