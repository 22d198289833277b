"""Leaderships return to the preferred leaders: by themselves now and then, and when a client asks for it.

A client asks any node; that one asks the leader of each partition, and the leader hands over, within the same limits as
when it acts by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import NO_NODE
from quorumlog.server.broker.leader_balance import Displaced, LeaderBalance
from quorumlog.server.broker.replicas import Partitions
from quorumlog.server.events import ClientRequest
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.options import NodeOptions
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: How often to look what became of what was asked for (µs).
LOOK_US = 20_000
#: Another node's answer is waited for so much longer than that node waits itself (µs).
FORWARD_GRACE_US = 200_000

Respond = Callable[[peer_pb2.ControllerResponse], None]


@dataclass(slots=True)
class _Order:
    """Partitions that this node is to hand over. ``groups``: preferred leaders of those not settled yet."""

    deadline: int
    respond: Respond
    response: peer_pb2.ControllerResponse
    groups: dict[int, int]


class LeaderElections(NodeService):
    """Hands leaderships over to preferred leaders.

    Attributes:
        stopping: the node hands over everything anyway.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        links: PeerQueues,
        partitions: Partitions,
        client: ControllerClient,
        replies: Replies,
        log: Callable[..., None],
        now: int,
    ) -> None:
        self._options = options
        self._host = host
        self._links = links
        self._partitions = partitions
        self._client = client
        self._replies = replies
        self._log = log
        self._balance = LeaderBalance(options.balance, now)
        self._orders: list[_Order] = []
        self._look_due = now
        self.stopping = False

    # -- by itself --------------------------------------------------------------------------------------------

    def on_time(self, now: int, wall_ms: int) -> None:
        """Hands over what is due, and answers who waits for it."""
        if now >= self._balance.next_deadline:
            displaced = [] if self.stopping else self._displaced()
            chosen = self._balance.choose(now, displaced)
            for each in chosen:
                self._partitions[each.group].raft.transfer_leadership(now, each.preferred)
                self._host.touch(each.group)
            if chosen:
                self._log("info", "leaderships_returning", partitions=len(chosen), displaced=len(displaced))
        if self._orders and now >= self._look_due:
            self._look_due = now + LOOK_US
            self._orders = [order for order in self._orders if not self._settled(now, order)]

    @property
    def next_deadline(self) -> int:
        """When ``on_time`` is due."""
        due = self._balance.next_deadline
        return min(due, self._look_due) if self._orders else due

    def _displaced(self) -> list[Displaced]:
        displaced = []
        for partition in self._partitions:
            record = self._partitions.record(partition)
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
        """Why the preferred leader cannot lead a partition that this node leads; empty if it can."""
        preferred = record.replicas[0]
        if self._partitions.is_fenced(preferred):
            return "is down"
        if not self._links[preferred].up:
            return f"is not connected to node {self._options.node_id}"
        if preferred not in record.isr:
            return "is not in sync"
        if record.leader_epoch != partition.raft.term or preferred not in partition.raft.configuration.voters:
            return f"has to wait until the metadata show that node {self._options.node_id} leads"
        return ""

    # -- asked by another node --------------------------------------------------------------------------------

    def order(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Hands over partitions that this node leads; the answer comes when that is done or cannot be."""
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
            record = self._partitions.record(self._partitions[group])
            assert record is not None
            order.groups[group] = record.replicas[0]
        self._balance.ask(now, order.groups)
        if not self._settled(now, order):
            self._orders.append(order)
            self._look_due = now + LOOK_US

    def _refusal(self, group: int) -> errors_pb2.Error | None:
        partition = self._partitions.get(group)
        if partition is None:
            return error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node has no replica of group {group}; ask again")
        record = self._partitions.record(partition)
        if record is None or not partition.leads or self.stopping:
            return partition.not_leader()
        if record.replicas[0] == self._options.node_id:
            return _not_needed(partition.name, self._options.node_id)
        obstacle = self._obstacle(partition, record)
        return _not_available(record.replicas[0], obstacle, partition.name) if obstacle else None

    def _settled(self, now: int, order: _Order) -> bool:
        """Notes what became of an order's groups, and answers it once all are settled or its time is over."""
        results = {result.group: result for result in order.response.partition_changes.results}
        for group, preferred in list(order.groups.items()):
            done, problem = self._outcome(group, preferred)
            if not done and now >= order.deadline:
                done = True
                partition = self._partitions[group]
                if partition.raft.leader_id != preferred:
                    late = f"node {preferred} has not taken over {partition.name} in time; ask again"
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
        """Whether it is settled, and if so what is wrong."""
        partition = self._partitions.get(group)
        if partition is None:
            gone = "the partition was deleted, or left the node that led it; refresh the metadata"
            return True, error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone)
        record = self._partitions.record(partition)
        raft = partition.raft
        # Waits until the metadata show it, so that who asks next sees it too.
        if record is None or (record.leader == preferred and record.leader_epoch >= raft.term):
            return True, None
        if partition.leads and not raft.is_transferring and not self._balance.is_asked(group):
            return True, _not_available(preferred, "did not take over", partition.name)
        if not raft.is_leader and raft.leader_id not in (NO_NODE, preferred):
            return True, _not_available(preferred, f"lost against node {raft.leader_id}", partition.name)
        return False, None

    # -- asked by a client ------------------------------------------------------------------------------------

    def declare_requests(self, table: RequestTable) -> None:
        table.declare(admin_pb2.ElectLeadersRequest, self.elect)

    def elect(self, time: StepTime, asked: ClientRequest, request: admin_pb2.ElectLeadersRequest) -> None:
        """Asks the leaders of partitions to hand over, and answers when all have answered."""
        now, request_id = time.now, asked.request_id
        response = admin_pb2.ElectLeadersResponse()
        slots: dict[int, list[admin_pb2.ElectLeadersResult]] = {}
        groups: dict[int, list[int]] = {}
        for name, number, record in self._partitions.named((p.topic, p.partition) for p in request.partitions):
            leader = NO_NODE if record is None else self._partitions.known_leader(record)[0]
            if record is not None and leader == record.replicas[0] and not request.partitions:
                continue
            result = response.results.add(topic=name, partition=number)
            problem = _unasked(f"{name}-{number}", record, leader)
            if problem is not None:
                result.error.CopyFrom(problem)
            elif record is not None:
                if record.group not in slots:
                    groups.setdefault(leader, []).append(record.group)
                slots.setdefault(record.group, []).append(result)
        if not groups:
            self._replies.reply(request_id, response)
            return
        self._forward(now, request.timeout_ms, groups, slots, lambda: self._replies.reply(request_id, response))

    def _forward(
        self,
        now: int,
        timeout_ms: int,
        groups: dict[int, list[int]],
        slots: dict[int, list[admin_pb2.ElectLeadersResult]],
        finish: Callable[[], None],
    ) -> None:
        waiting = len(groups)

        def answered(asked: Sequence[int], answer: peer_pb2.ControllerResponse | None) -> None:
            nonlocal waiting
            problems = {group: _unanswered() for group in asked}
            if answer is not None and answer.HasField("error"):
                problems = dict.fromkeys(asked, answer.error)
            elif answer is not None:
                problems = {r.group: r.error for r in answer.partition_changes.results if r.HasField("error")}
            for group, problem in problems.items():
                for slot in slots.get(group, ()):
                    slot.error.CopyFrom(problem)
            waiting -= 1
            if not waiting:
                finish()

        for leader, asked in groups.items():
            body = peer_pb2.ElectPreferredLeaders(groups=asked, timeout_ms=timeout_ms)
            self._client.ask(
                now + wait_us(timeout_ms) + FORWARD_GRACE_US,
                peer_pb2.ControllerRequest(elect_preferred_leaders=body),
                lambda answer, asked=asked: answered(asked, answer),  # type: ignore[misc]  # bound per leader
                to=leader,
            )


def failed_elections(
    request: admin_pb2.ElectLeadersRequest, problem: errors_pb2.Error
) -> admin_pb2.ElectLeadersResponse:
    """The answer to a request that failed as a whole."""
    response = admin_pb2.ElectLeadersResponse()
    for named in request.partitions:
        response.results.add(topic=named.topic, partition=named.partition, error=problem)
    return response


def _unasked(name: str, record: PartitionRecord | None, leader: int) -> errors_pb2.Error | None:
    """Why nobody needs to be asked; None when the leader is to be."""
    if record is None:
        return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist; check topic and partition")
    if leader == record.replicas[0]:
        return _not_needed(name, leader)
    if leader == NO_NODE:
        return error(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader that could hand over; try again shortly")
    return None


def _not_needed(name: str, leader: int) -> errors_pb2.Error:
    return error(ErrorCode.ELECTION_NOT_NEEDED, f"node {leader}, the preferred leader of {name}, leads it already")


def _not_available(preferred: int, why: str, name: str) -> errors_pb2.Error:
    message = f"node {preferred}, the preferred leader of {name}, {why}; try again later"
    return error(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)


def _busy() -> errors_pb2.Error:
    return error(ErrorCode.SERVER_BUSY, "too many elections are asked for at once; try again after a pause")


def _unanswered() -> errors_pb2.Error:
    return error(ErrorCode.REQUEST_TIMED_OUT, "the leader did not answer; look who leads, ask again", definite=False)
