"""The partitions that this node leads, as participants of transactions: they open, and end with a marker.

A coordinator is answered once a marker is committed. Where nothing was open, a quorum first confirms that this node
leads the partition: a former leader may not have the entry that opened the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quorumlog.server.deciding.transaction_participants import (
    Identity,
    OnEnded,
    OpenHere,
    Participant,
    participant_of,
    place_of,
)
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.transaction_steps import (
    TransactionDecision,
    end_transaction,
    open_longer_than,
    open_transaction,
)
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace


@dataclass(slots=True, frozen=True)
class _Ending:
    """A decision whose coordinator waits for an answer.

    Arguments:
        term: in which this node leads the partition.
        index: the entry that must be applied.
        heartbeat: the round that a quorum must have answered; 0: none.
    """

    term: int
    index: int
    heartbeat: int
    ended: OnEnded


class PartitionTransactions:
    """The partitions that this node leads, as `TransactionParticipants`.

    Attributes:
        by_group: the decisions whose coordinators wait for an answer, by Raft group.
    """

    def __init__(
        self, time: StepTime, host: RaftHost, partitions: Replicas, absent: PartitionErrors, rounds: HeartbeatRounds
    ) -> None:
        self._time = time
        self._host = host
        self._partitions = partitions
        self._absent = absent
        self._rounds = rounds
        #: By producer and decision: a repeated request takes the place of the one that it repeats.
        self.by_group: dict[int, dict[tuple[int, LogPlace], _Ending]] = {}
        #: Raft groups of the partitions that are led here and have open transactions.
        self._open: set[int] = set()
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.raft_group_gone(self.raft_group_gone)
        self._deadline_moved = hooks.deadline_moved

    # -- decisions ----------------------------------------------------------------------------------------------------

    def open(self, transaction: OpenHere, term: int) -> errors_pb2.Error | None:
        """Opens a transaction in a partition; see `TransactionParticipants.open`."""
        where, identity = transaction.participant, transaction.identity
        partition = self._partitions.find(where.topic_id, where.number)
        if partition is None:
            return self._absent.problem(where.topic_id, where.number)
        if partition.raft.term != term:
            return partition.not_leader()
        problem = open_transaction(
            self._time.now,
            partition,
            identity.producer_id,
            identity.epoch,
            transaction.coordinator,
            transaction.place,
        )
        if problem is None:
            self._host.touch(partition.group)
        return problem

    def end(self, decision: peer_pb2.EndTransaction, ended: OnEnded) -> None:
        """Ends a transaction in a partition; see `TransactionParticipants.end`."""
        where, decided = participant_of(decision.participant), place_of(decision.decided)
        partition = self._partitions.find(where.topic_id, where.number)
        if partition is None:
            ended(self._absent.problem(where.topic_id, where.number))
            return
        producer_id = decision.identity.producer_id
        ending = end_transaction(
            self._time.now,
            self._time.wall_ms,
            partition,
            TransactionDecision(producer_id, decision.next_epoch, place_of(decision.origin), decided, decision.commit),
        )
        if isinstance(ending, errors_pb2.Error):
            ended(ending)
            return
        heartbeat: int | None = 0
        if ending.marker_offset is None:
            heartbeat = self._rounds.begin(self._time.now, partition.group)
        if heartbeat is None:
            ended(error(ErrorCode.SERVER_BUSY, f"the leader of {partition.name} is stalled; try again shortly"))
            return
        self._host.touch(partition.group)
        waiting = self.by_group.setdefault(partition.group, {})
        repeated = waiting.pop((producer_id, decided), None)
        waiting[producer_id, decided] = _Ending(partition.raft.term, ending.index, heartbeat, ended)
        if repeated is not None:
            repeated.ended(error(ErrorCode.SERVER_BUSY, "the coordinator has sent the decision again"))

    @property
    def are_open(self) -> bool:
        """True if a transaction is open in a partition that this node leads."""
        return bool(self._open)

    def open_longer_than(self, age_us: int) -> Iterator[OpenHere]:
        """Yields the transactions that have been open for long in the partitions that this node leads."""
        for group in sorted(self._open):
            partition = self._partitions.logs[group]
            for producer_id, opened in open_longer_than(self._time.now, partition, age_us):
                yield OpenHere(
                    Participant(partition.identity.topic_id, partition.identity.number),
                    Identity(producer_id, opened.epoch),
                    opened.coordinator,
                    opened.enlisted,
                )

    # -- events -------------------------------------------------------------------------------------------------------

    def after_round(self, partition: Partition) -> None:
        """Follows a partition that has or had transactions, after a step of its Raft group: answers the coordinators
        whose decisions are carried out, or cannot be any longer."""
        group, transactions = partition.group, partition.transactions
        is_open = transactions is not None and bool(transactions.open) and partition.leads
        if is_open != (group in self._open):
            (self._open.add if is_open else self._open.discard)(group)
            self._deadline_moved()
        if group in self.by_group:
            self._answer(partition)

    def _answer(self, partition: Partition) -> None:
        raft, waiting = partition.raft, self.by_group[partition.group]
        for key, ending in list(waiting.items()):
            if not partition.leads or raft.term != ending.term:
                problem: errors_pb2.Error | None = partition.not_leader()
            elif partition.applied_index >= ending.index and raft.confirmed_round >= ending.heartbeat:
                problem = None
            else:
                continue
            del waiting[key]
            ending.ended(problem)
        if not waiting:
            del self.by_group[partition.group]

    def raft_group_gone(self, now: int, group: int) -> None:
        """Fails the decisions for a replica that was removed from this node: the coordinator asks the next leader."""
        self._open.discard(group)
        for ending in self.by_group.pop(group, {}).values():
            ending.ended(error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is no longer on this node"))
