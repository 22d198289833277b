"""Offsets in transactions of one consumer group, by the coordinator's log: pending until the decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import coordinator_log_pb2 as log
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.transactions_pb2 import TransactionPlace


class TopicIdPartition(NamedTuple):
    """A partition of the topic with an id."""

    topic_id: bytes
    number: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex()[:6]}-{self.number}"

    @classmethod
    def of(cls, offset: pb.CommittedOffset) -> TopicIdPartition:
        """Returns the partition of a committed offset."""
        return cls(offset.topic_id, offset.partition)


#: Where something is in the log of a transaction's coordinator: term and index.
_Place = tuple[int, int]


def _place(form: TransactionPlace) -> _Place:
    return form.term, form.index


class ModelOffset(NamedTuple):
    """A pending offset, and the version of the group in which it was stored."""

    offset: pb.CommittedOffset
    version: int

    def is_of_same_commit(self, other: pb.CommittedOffset) -> bool:
        """True if a committed offset is this one. The label in the metadata identifies the commit."""
        return (self.offset.offset, self.offset.metadata) == (other.offset, other.metadata)

    def follows(self, other: pb.CommittedOffset) -> bool:
        """True if its member has sent it after another commit."""
        same = bool(self.offset.committer) and self.offset.committer == other.committer
        return same and self.offset.commit_number > other.commit_number > 0


@dataclass(slots=True)
class ModelOpenOffsets:
    """A transaction that is open in a group. ``labels``: of all its commits, also of those that were overtaken."""

    place: _Place
    epoch: int
    coordinator: int
    offsets: dict[TopicIdPartition, ModelOffset] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ModelPending:
    """The transactions of a group. ``decided``: the newest decision by producer; snapshots do not hold it."""

    open: dict[int, ModelOpenOffsets] = field(default_factory=dict)
    decided: dict[int, _Place] = field(default_factory=dict)

    def apply(self, change: log.GroupChange) -> None:
        """Applies values without a check."""
        for ended in change.ended:
            self.open.pop(ended.producer_id, None)
            self.decided[ended.producer_id] = _place(ended.decided)
        for record in change.overtaken:
            for offset in record.offsets:
                self.open[record.producer.producer_id].offsets.pop(TopicIdPartition.of(offset), None)
        for record in change.pending:
            fields = (_place(record.place), record.producer.producer_epoch, record.coordinator)
            transaction = self.open.setdefault(record.producer.producer_id, ModelOpenOffsets(*fields))
            for offset in record.offsets:
                stored = ModelOffset(offset, record.version or change.version)
                transaction.offsets[TopicIdPartition.of(offset)] = stored
                transaction.labels.add(offset.metadata)

    def of(self, partition: TopicIdPartition) -> Iterator[tuple[int, ModelOffset]]:
        """Yields the pending offsets of a partition, with the producer of each."""
        for producer_id, transaction in sorted(self.open.items()):
            if partition in transaction.offsets:
                yield producer_id, transaction.offsets[partition]

    def digest(self) -> object:
        """Returns its content, independent of the order of writes."""
        return [
            (producer_id, each.place, each.epoch, each.coordinator, _offsets(each))
            for producer_id, each in sorted(self.open.items())
        ]

    # -- judgement ----------------------------------------------------------------------------------------------------

    def judge(self, where: str, change: log.GroupChange) -> list[pb.CommittedOffset]:
        """Judges a change before it is applied; returns the commits that are not those of a transaction.

        Raises:
            Violation: no leader should have proposed it.
        """
        commits = {ended.producer_id: ended.commit for ended in change.ended}
        for ended in change.ended:
            transaction = self.open.get(ended.producer_id)
            if transaction is None or transaction.place != _place(ended.place):
                raise Violation(f"{where}: a transaction of producer {ended.producer_id} ends that is not open")
        if change.version == 0 and self.open.keys() - commits.keys():
            raise Violation(f"{where}: it is deleted with offsets in open transactions: {sorted(self.open)}")
        self._judge_applied(where, change, commits)
        self._judge_places(where, change)
        return [row for row in change.offsets if not self._is_pending(row)]

    def _is_pending(self, row: pb.CommittedOffset) -> bool:
        return any(pending.is_of_same_commit(row) for _, pending in self.of(TopicIdPartition.of(row)))

    def _judge_applied(self, where: str, change: log.GroupChange, commits: dict[int, bool]) -> None:
        """Judges that committed transactions take effect as a whole, and no others."""
        for row in change.offsets:
            for producer_id, pending in self.of(TopicIdPartition.of(row)):
                if pending.is_of_same_commit(row) and not commits.get(producer_id, False):
                    raise Violation(
                        f"{where}: {row.metadata} takes effect, producer {producer_id} has not committed it"
                    )
        changed = {TopicIdPartition.of(row) for row in change.offsets}
        changed |= {TopicIdPartition(row.topic_id, each) for row in change.removed_offsets for each in row.partitions}
        for producer_id, commit in commits.items():
            missing = self.open[producer_id].offsets.keys() - changed if commit and change.version else set()
            if missing:
                raise Violation(f"{where}: {sorted(missing)} of producer {producer_id} take no effect")

    def _judge_places(self, where: str, change: log.GroupChange) -> None:
        decided = {**self.decided, **{each.producer_id: _place(each.decided) for each in change.ended}}
        ended = {each.producer_id for each in change.ended}
        for record in change.pending:
            producer_id = record.producer.producer_id
            if _place(record.place) <= decided.get(producer_id, (0, 0)):
                raise Violation(f"{where}: producer {producer_id} commits in a transaction that is over")
            known = self.open.get(producer_id)
            if known is not None and producer_id not in ended and known.place != _place(record.place):
                raise Violation(f"{where}: producer {producer_id} has two transactions")

    def judge_order(self, where: str, commits: Iterable[pb.CommittedOffset], version: int) -> None:
        """Judges after a change that no pending offset is left that a later commit has overtaken."""
        for row in commits:
            for producer_id, pending in self.of(TopicIdPartition.of(row)):
                if pending.version < version and not pending.follows(row):
                    raise Violation(
                        f"{where}: {pending.offset.metadata} of producer {producer_id} is pending after {row.metadata}"
                    )


def _offsets(transaction: ModelOpenOffsets) -> object:
    rows = []
    for partition, (offset, version) in sorted(transaction.offsets.items()):
        place = (offset.offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp_ms)
        rows.append((partition, version, place, offset.committer, offset.commit_number))
    return rows
