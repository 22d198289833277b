"""Transfers of leaderships to the preferred leaders: automatically at intervals, and when a client requests one.

A client sends its request to any node. That node asks the leader of each partition (`requests/elections.py`). The
leader transfers leadership here, within the same limits as for automatic transfers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.replicas.leader_balance import Displaced, LeaderBalance
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import EventLog
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Interval between checks of requested transfers (µs).
LOOK_US = 20_000

Respond = Callable[[peer_pb2.ControllerResponse], None]


@dataclass(slots=True)
class _Order:
    """Partitions whose leadership this node must transfer. ``groups``: preferred leaders of those not settled yet."""

    deadline: int
    respond: Respond
    response: peer_pb2.ControllerResponse
    groups: dict[int, int]


class LeaderElections:
    """Transfers leaderships to preferred leaders.

    Attributes:
        stopping: True if the node transfers all leaderships because it stops.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        links: PeerQueues,
        replicas: Replicas,
        log: EventLog,
        now: int,
    ) -> None:
        self._options = options
        self._host = host
        self._links = links
        self._replicas = replicas
        self._log = log
        self._balance = LeaderBalance(options.balance, now)
        self._orders: list[_Order] = []
        self._look_due = now
        self.stopping = False

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def check_every(self, now: int, interval_us: int) -> None:
        """Changes the interval between looks for leaderships that belong to another node."""
        self._balance.check_every(now, interval_us)

    # -- automatic transfers ----------------------------------------------------------------------------------

    def on_time(self, now: int, wall_ms: int) -> None:
        """Starts the transfers that are due, and answers the requests that wait for theirs."""
        if now >= self._balance.next_deadline:
            displaced = [] if self.stopping else self._displaced()
            chosen = self._balance.choose(now, displaced)
            for each in chosen:
                self._replicas[each.group].raft.transfer_leadership(now, each.preferred)
                self._host.touch(each.group)
            if chosen:
                self._log("info", "leaderships_returning", partitions=len(chosen), displaced=len(displaced))
        if self._orders and now >= self._look_due:
            self._look_due = now + LOOK_US
            self._orders = [order for order in self._orders if not self._settled(now, order)]

    @property
    def next_deadline(self) -> int:
        """Time at which ``on_time`` is due."""
        due = self._balance.next_deadline
        return min(due, self._look_due) if self._orders else due

    def _displaced(self) -> list[Displaced]:
        displaced = []
        for partition in self._replicas:
            record = self._replicas.record(partition)
            if record is None or record.replicas[0] == self._options.node_id or not partition.leads or record.is_moving:
                continue
            preferred = record.replicas[0]
            progress = partition.raft.progress.get(preferred)
            caught_up = (
                progress is not None
                and progress.state is ProgressState.REPLICATE
                and progress.match_index >= partition.raft.commit_index
            )
            connected_at = self._links[preferred].connected_at
            able = not self._obstacle(partition, record)
            transferring = partition.raft.is_transferring
            displaced.append(Displaced(partition.group, preferred, connected_at, able, caught_up, transferring))
        return displaced

    def _obstacle(self, partition: PartitionReplica, record: PartitionRecord) -> str:
        """Returns why the preferred leader cannot lead a partition that this node leads; empty if it can."""
        preferred = record.replicas[0]
        if self._replicas.is_fenced(preferred):
            return "is down"
        if not self._links[preferred].up:
            return f"is not connected to node {self._options.node_id}"
        if preferred not in record.isr:
            return "is not in sync"
        if record.leader_epoch != partition.raft.term or preferred not in partition.raft.configuration.voters:
            return f"has to wait until the metadata name node {self._options.node_id} as the leader"
        return ""

    # -- requests of other nodes ------------------------------------------------------------------------------

    def order(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Transfers partitions that this node leads; answers when that is done or has failed."""
        body = request.elect_preferred_leaders
        response = peer_pb2.ControllerResponse(request_id=request.request_id)
        response.partition_changes.SetInParent()
        order = _Order(now + wait_us(body.timeout_ms), respond, response, {})
        busy = len(self._orders) >= self._options.limits.controller_requests
        for group in body.groups:
            result = response.partition_changes.results.add(group=group)
            problem = self._refusal(group) if not busy else _busy()
            if problem is not None:
                result.error.CopyFrom(problem)
                continue
            record = self._replicas.record(self._replicas[group])
            assert record is not None
            order.groups[group] = record.replicas[0]
        self._balance.ask(now, order.groups)
        if not self._settled(now, order):
            self._orders.append(order)
            self._look_due = now + LOOK_US

    def _refusal(self, raft_group: int) -> errors_pb2.Error | None:
        partition = self._replicas.get(raft_group)
        if partition is None:
            return error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node has no replica of group {raft_group}; retry")
        record = self._replicas.record(partition)
        if record is None or not partition.leads or self.stopping:
            return partition.not_leader()
        if record.replicas[0] == self._options.node_id:
            return not_needed(partition.name, self._options.node_id)
        obstacle = self._obstacle(partition, record)
        return _not_available(record.replicas[0], obstacle, partition.name) if obstacle else None

    def _settled(self, now: int, order: _Order) -> bool:
        """Records the outcome of an order's groups; answers it once all are settled or its deadline has passed."""
        results = {result.group: result for result in order.response.partition_changes.results}
        for group, preferred in list(order.groups.items()):
            done, problem = self._outcome(group, preferred)
            if not done and now >= order.deadline:
                done = True
                partition = self._replicas[group]
                if partition.raft.leader_id != preferred:
                    late = f"node {preferred} has not taken over {partition.name} in time; retry"
                    problem = error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False)
            if done:
                del order.groups[group]
                self._balance.forget(group)
                if problem is not None:
                    results[group].error.CopyFrom(problem)
        if not order.groups:
            order.respond(order.response)
        return not order.groups

    def _outcome(self, group: int, preferred: int) -> tuple[bool, errors_pb2.Error | None]:
        """Returns whether the transfer is settled, and the error if it has failed."""
        partition = self._replicas.get(group)
        if partition is None:
            gone = "the partition was deleted, or moved away from its leader; refresh the metadata"
            return True, error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone)
        record = self._replicas.record(partition)
        raft = partition.raft
        # Waits until the metadata contain the change, so that the client's next request sees it too.
        if record is None or (record.leader == preferred and record.leader_epoch >= raft.term):
            return True, None
        if partition.leads and not raft.is_transferring and not self._balance.is_asked(group):
            return True, _not_available(preferred, "did not take over", partition.name)
        if not raft.is_leader and raft.leader_id not in (NO_NODE, preferred):
            return True, _not_available(preferred, f"lost against node {raft.leader_id}", partition.name)
        return False, None


def not_needed(name: str, leader: int) -> errors_pb2.Error:
    """Returns the error for an election that would change nothing."""
    needless = f"node {leader}, the preferred leader of {name}, leads it already, or will in a moment"
    return error(ErrorCode.ELECTION_NOT_NEEDED, needless)


def _not_available(preferred: int, why: str, name: str) -> errors_pb2.Error:
    message = f"node {preferred}, the preferred leader of {name}, {why}; try again later"
    return error(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)


def _busy() -> errors_pb2.Error:
    return error(ErrorCode.SERVER_BUSY, "too many elections at once; try again after a pause")
