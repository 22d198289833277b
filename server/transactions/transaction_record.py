"""A transactional id: its producer, its open transaction, and the decisions that participants have not answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quorumlog.server.deciding.transaction_participants import Identity, Participant
from quorumlog.v1.transactions_pb2 import TransactionCause
from quorumlog.wire.kafka.control import LogPlace

#: The highest epoch of a producer id. The decision on a transaction with this epoch assigns a new producer id; 32,767
#: is left for fencing the former one.
MAX_EPOCH = 32_766
#: Fences every epoch of a producer id that is no longer used.
FENCING_EPOCH = MAX_EPOCH + 1
#: Approximate size of a record, a writer and a decision without their texts.
_RECORD_BYTES = 200
_WRITER_BYTES = 100
_DECISION_BYTES = 150


@dataclass(slots=True, frozen=True)
class TransactionProducer:
    """The producer of a transactional id.

    Arguments:
        former: the identity before this one; None if it had none.
        timeout_ms: the maximum time that its transactions may be open.
        work: number of the work of its next transaction; None: not numbered.
        instance: number of the instance that has the identity. After its transaction is decided, the next number: the
            instance is over. None: instances are not numbered.
    """

    identity: Identity
    former: Identity | None
    timeout_ms: int
    work: int | None = None
    instance: int | None = None

    def after(self, following: Identity, work: int | None) -> TransactionProducer:
        """Returns the producer after a decision."""
        former = self.identity if following != self.identity else self.former
        over = None if self.instance is None else self.instance + 1
        changed = TransactionProducer(following, former, self.timeout_ms, work, over)
        return self if changed == self else changed


@dataclass(slots=True)
class Writer:
    """A process that writes in a transaction.

    Arguments:
        commit: in a decided transaction: whether what it wrote is committed.
        size_bytes: approximate size in bytes.
    """

    epoch: int
    participants: set[Participant] = field(default_factory=set)
    commit: bool = False
    size_bytes: int = field(default=_WRITER_BYTES, compare=False)

    def add(self, participants: Iterable[Participant]) -> None:
        """Adds participants."""
        new = set(participants) - self.participants
        self.participants |= new
        self.size_bytes += sum(each.size_bytes for each in new)

    def forget_participants(self) -> None:
        """Removes all participants, because every one has answered."""
        self.participants.clear()
        self.size_bytes = _WRITER_BYTES


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that is not decided.

    Arguments:
        place: where it origin, which identifies it.
        started_ms: milliseconds since the epoch on the leader at that time.
        explicit: its producer adds participants itself, before it writes to them.
        writers: by producer id.
    """

    place: LogPlace
    started_ms: int
    explicit: bool
    writers: dict[int, Writer] = field(default_factory=dict)


@dataclass(slots=True)
class Decision:
    """The decision on a transaction.

    Arguments:
        place: where it was decided.
        origin: where the transaction started. The same place if none was open.
        producer, following: the identity of the producer until then, and after it.
        writers: by producer id. Once it has ended, without their participants.
        ended: every participant has answered.
    """

    place: LogPlace
    origin: LogPlace
    commit: bool
    cause: TransactionCause.ValueType
    producer: Identity
    following: Identity
    writers: dict[int, Writer]
    ended: bool = False

    def next_epoch(self, producer_id: int) -> int:
        """Returns the lowest epoch with which a participant accepts a writer's producer id after the decision."""
        return self.following.epoch if producer_id == self.following.producer_id else FENCING_EPOCH

    def participants(self) -> Iterator[tuple[int, Writer, Participant]]:
        """Yields each participant with its writer's producer id."""
        for producer_id, writer in self.writers.items():
            for participant in writer.participants:
                yield producer_id, writer, participant


@dataclass(slots=True)
class TransactionalId:
    """A transactional id.

    Arguments:
        version: counts the log's changes of it.
        changed_ms: milliseconds since the epoch of its last change, on the leader.
        committed_work: number of the newest work that is committed; None: none.
        decisions: the newest one, and all that have not ended; the oldest comes first.
    """

    name: str
    version: int
    producer: TransactionProducer
    changed_ms: int
    committed_work: int | None = None
    open: OpenTransaction | None = None
    decisions: list[Decision] = field(default_factory=list)

    @property
    def newest(self) -> Decision | None:
        """The newest decision."""
        return self.decisions[-1] if self.decisions else None

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open, and every participant of decided ones has answered."""
        return self.open is None and all(decision.ended for decision in self.decisions)

    @property
    def participants(self) -> int:
        """Number of participants of transactions that have not ended."""
        every: list[Mapping[int, Writer]] = [decision.writers for decision in self.decisions]
        if self.open is not None:
            every.append(self.open.writers)
        return sum(len(writer.participants) for writers in every for writer in writers.values())

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        size = _RECORD_BYTES + len(self.name)
        for decision in self.decisions:
            size += _DECISION_BYTES + sum(writer.size_bytes for writer in decision.writers.values())
        if self.open is not None:
            size += _DECISION_BYTES + sum(writer.size_bytes for writer in self.open.writers.values())
        return size
