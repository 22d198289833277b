"""Backups in virtual time, as far as transactions go: they have commits held, and note where each partition ends.

They use coordinators and leaders by requests alone, as the SDK's backups do. Some die while commits are held. What a
backup would copy is compared with the committed logs:

- Of each transaction that is committed, it has every batch in all partitions, or none.
- It has all of a transaction whose commit was answered before commits were held.
- It has the offsets that a transaction has committed in a consumer group if it has its batches, and only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.simulator.world.transactional_clients import CommittedBatches, TransactionalClients
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2, transaction_admin_pb2
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

#: How long commits are held, how long a backup waits until participants have earlier ones, and for one answer (µs).
_HOLD_US, _SETTLE_US, _ANSWER_US = 5_000_000, 3_000_000, 1_500_000
#: Time between two backups, and between two attempts (µs).
_BETWEEN_US, _PAUSE_US = (50_000, 600_000), (2_000, 40_000)
#: Share of backups that die while commits are held.
_DIES = 0.1

ResultT = TypeVar("ResultT")
#: What a backup does: sends a request to a node, and receives the answer or None; or waits, in microseconds.
_Steps = Generator[tuple[int, ProtoMessage] | int, ProtoMessage | None, ResultT]
#: The state of the hold at each coordinator, by its number.
_Coordinators = dict[int, transaction_admin_pb2.HoldingCoordinator]


class _Cut(NamedTuple):
    """The end of a partition in a backup, and the first offsets of open transactions by producer id."""

    end: int
    open: dict[int, int]

    def has(self, offset: int, producer_id: int) -> bool:
        """True if the backup has a committed batch."""
        return offset < min(self.end, self.open.get(producer_id, self.end))


class _Backup(NamedTuple):
    """A backup whose hold has lasted.

    Arguments:
        began_us: when it asked for the hold.
        held_us: when all coordinators held commits.
        positions: how far each transactional id has consumed, by committed offsets; empty if they share groups.
        cuts: of each partition.
    """

    began_us: int
    held_us: int
    positions: dict[str, int]
    cuts: list[_Cut]


class CommitHolds:
    """Backups of the topic of transactional clients, one after the other.

    Attributes:
        happened: what has become of the backups.
    """

    def __init__(self, clients: TransactionalClients, cluster: SimCluster, scheduler: Scheduler) -> None:
        self.happened: Counter[str] = Counter()
        self._clients = clients
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream("commit holds")
        self._backups: list[_Backup] = []
        self._healed = self._is_over = False
        self._scheduler.after(self._rng.randint(*_BETWEEN_US), lambda: self._drive(self._live()))

    def heal(self) -> None:
        """Starts no further backup."""
        self._healed = True

    def stop(self) -> None:
        """The backups end on their own."""

    def missing(self) -> str:
        """Returns what is not finished yet."""
        return "" if self._is_over else "a backup runs"

    def judge(self) -> None:
        """Judges all backups.

        Raises:
            Violation: one has a part of a transaction, or lacks one that was committed before.
        """
        transactions = list(self._clients.committed_batches())
        for backup in self._backups:
            for each in transactions:
                self._judge(backup, each)

    def _judge(self, backup: _Backup, transaction: CommittedBatches) -> None:
        where = f"the backup from {backup.began_us} to {backup.held_us}"
        found = {
            value: backup.cuts[number].has(offset, producer_id)
            for value, number, offset, producer_id in transaction.batches
        }
        if len(set(found.values())) > 1:
            raise Violation(f"{where} has a part of the transaction of {transaction.name}: {found}, {backup.cuts}")
        answered_us = transaction.answered_us
        if answered_us is not None and answered_us < backup.began_us and not all(found.values()):
            raise Violation(f"{where} lacks the transaction of {transaction.name}, committed at {answered_us}: {found}")
        position = backup.positions.get(transaction.name)
        if transaction.consumed and position is not None and (position >= transaction.consumed) != all(found.values()):
            consumed = f"which has consumed up to {transaction.consumed}, at {position}"
            raise Violation(f"{where} has {found} of {transaction.name}, {consumed}")
        self.happened["transactions_in_backups"] += all(found.values())

    # -- running ------------------------------------------------------------------------------------------------------

    def _drive(self, steps: _Steps[None], answer: ProtoMessage | None = None) -> None:
        try:
            wanted = steps.send(answer)
        except StopIteration:
            self._is_over = True
            return
        if isinstance(wanted, int):
            self._scheduler.after(wanted, lambda: self._drive(steps))
            return
        is_answered = False

        def answered(message: ProtoMessage | Unanswered) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self._drive(steps, None if isinstance(message, Unanswered) else message)

        self._cluster.request("backup", *wanted, answered)
        self._scheduler.after(_ANSWER_US, lambda: answered(Unanswered.LOST))

    def _live(self) -> _Steps[None]:
        while not self._healed:
            backup = yield from self._back_up()
            if backup is not None:
                self._backups.append(backup)
                self.happened["held_backups"] += 1
            yield self._rng.randint(*_BETWEEN_US)

    def _back_up(self) -> _Steps[_Backup | None]:
        """Makes one backup; returns None if its hold has not lasted."""
        began_us, hold_id = self._scheduler.now, self._rng.randbytes(16)
        terms: dict[int, int] = {}
        while not terms:
            left_us = began_us + _HOLD_US - self._scheduler.now
            if left_us < _HOLD_US - _SETTLE_US:
                yield from self._hold(hold_id, 0)
                self.happened["backups_without_a_hold"] += 1
                return None
            found = yield from self._hold(hold_id, left_us // 1_000)
            if all(each.holds and each.settled for each in found.values()):
                terms = {number: each.term for number, each in found.items()}
            yield self._rng.randint(*_PAUSE_US)
        if self._rng.random() < _DIES:
            self.happened["backups_that_died"] += 1
            return None
        held_us, cuts = self._scheduler.now, list[_Cut]()
        positions = yield from self._positions(began_us + 2 * _HOLD_US)
        for number in range(self._clients.plan.partitions):
            cut = yield from self._describe(number, began_us + 2 * _HOLD_US)
            if cut is None:
                break
            cuts.append(cut)
        found = yield from self._hold(hold_id, 0)
        lasted = {number: each.term for number, each in found.items() if each.holds}
        if len(cuts) < self._clients.plan.partitions or lasted != terms:
            self.happened["holds_that_were_over"] += 1
            return None
        return _Backup(began_us, held_us, positions, cuts)

    def _hold(self, hold_id: bytes, hold_ms: int) -> _Steps[_Coordinators]:
        """Asks all nodes; returns all coordinators, or none if one is missing."""
        found: _Coordinators = {}
        for node in self._cluster.node_ids:
            request = transaction_admin_pb2.HoldCommitsRequest(hold_id=hold_id, hold_ms=hold_ms, timeout_ms=1_000)
            answer = yield node, request
            if isinstance(answer, transaction_admin_pb2.HoldCommitsResponse):
                found.update((each.number, each) for each in answer.coordinators)
        images = (process.image for process in self._cluster.processes.values())
        topics = (image.topics.get(TRANSACTIONS_TOPIC) for image in images if image is not None)
        count = max((len(topic.partitions) for topic in topics if topic is not None), default=0)
        return found if count and found.keys() == set(range(count)) else {}

    def _positions(self, until_us: int) -> _Steps[dict[str, int]]:
        """Returns how far each transactional id has consumed."""
        consumption = self._clients.consumption
        positions: dict[str, int] = {}
        for name in () if consumption.is_shared else self._clients.names:
            find = groups_pb2.FindCoordinatorsRequest(group_ids=[consumption.group_of(name)])
            fetch = consumption.fetch(name)
            fetch.require_stable = False
            while name not in positions and self._scheduler.now < until_us:
                found = yield self._rng.choice(self._cluster.node_ids), find
                if isinstance(found, groups_pb2.FindCoordinatorsResponse) and found.coordinators:
                    node = found.coordinators[0].node_id
                    answer = (yield node, fetch) if node in self._cluster.processes else None
                    position = consumption.position_in(answer)
                    if position is not None:
                        positions[name] = position
                        break
                yield self._rng.randint(*_PAUSE_US)
        return positions

    def _describe(self, number: int, until_us: int) -> _Steps[_Cut | None]:
        """Returns where a partition ends; None if that takes too long."""
        while self._scheduler.now < until_us:
            group = self._clients.group_of(number)
            leader = NO_NODE if group is None else self._clients.leader_of(group)[0]
            if leader != NO_NODE:
                topic_id = self._clients.topic_id()
                latest = data_plane_pb2.ListOffsetsRequest(
                    timeout_ms=1_000, isolation_level=data_plane_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
                )
                latest.partitions.add(topic_id=topic_id, partition=number, timestamp_ms=-1, leader_epoch=-1)
                ended = yield leader, latest
                # A former leader may answer the description, as long as it has all that is committed by then.
                node = self._rng.choice((leader, self._rng.choice(self._cluster.node_ids)))
                log = yield (
                    node,
                    admin_pb2.DescribePartitionLogRequest(topic_id=topic_id, partition=number, after_producer_id=-1),
                )
                if (
                    isinstance(ended, data_plane_pb2.ListOffsetsResponse)
                    and not ended.results[0].HasField("error")
                    and isinstance(log, admin_pb2.DescribePartitionLogResponse)
                    and not log.HasField("error")
                    and log.high_watermark >= ended.results[0].offset
                ):
                    return _Cut(log.high_watermark, {each.producer_id: each.first_offset for each in log.open})
            yield self._rng.randint(*_PAUSE_US)
        return None
