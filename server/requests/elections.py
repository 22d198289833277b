"""Elections that a client requests: forwarded to the leaders of the partitions, and answered when all of them have
answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.replicas.leader_elections import not_needed
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Additional time to wait for another node's response, beyond the time that node waits itself (µs).
FORWARD_GRACE_US = 200_000
#: Leader epoch of a new partition.
_NEVER_LED = 0


class ElectionRequests:
    """Asks the current leaders to transfer leadership to the preferred leaders, as clients request it."""

    def __init__(self, replicas: Replicas, client: ControllerClient, replies: Replies) -> None:
        self._replicas = replicas
        self._client = client
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.ElectLeadersRequest, self.elect)

    def elect(self, time: StepTime, asked: ClientRequest, request: admin_pb2.ElectLeadersRequest) -> None:
        """Asks the leaders of partitions to transfer leadership, and answers when all have answered."""
        now, request_id = time.now, asked.request_id
        response = admin_pb2.ElectLeadersResponse()
        slots: dict[int, list[admin_pb2.ElectLeadersResult]] = {}
        groups: dict[int, list[int]] = {}
        topic_ids = {(p.topic, p.partition): p.topic_id for p in request.partitions}
        for name, number, record in self._replicas.named((p.topic, p.partition) for p in request.partitions):
            if record is not None and topic_ids.get((name, number), b"") not in (b"", record.topic.topic_id):
                record = None  # The request names an earlier topic of this name.
            leader = NO_NODE if record is None else self._coming_leader(record)
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

    def _coming_leader(self, record: PartitionRecord) -> int:
        """Returns the leader of a partition, or the node that is about to lead it.

        A new partition elects its preferred leader automatically unless that is fenced. Without this case, a client
        that has just created a topic would have to retry.
        """
        leader, epoch = self._replicas.known_leader(record)
        preferred = record.replicas[0]
        is_new = leader == NO_NODE and epoch == _NEVER_LED and not record.is_moving
        return preferred if is_new and not self._replicas.is_fenced(preferred) else leader

    def _forward(
        self,
        now: int,
        timeout_ms: int,
        groups: dict[int, list[int]],
        slots: dict[int, list[admin_pb2.ElectLeadersResult]],
        finish: Callable[[], None],
    ) -> None:
        waiting = len(groups)

        def answered(led_groups: Sequence[int], answer: peer_pb2.ControllerResponse | None) -> None:
            nonlocal waiting
            problems = {group: _unanswered() for group in led_groups}
            if answer is not None and answer.HasField("error"):
                problems = dict.fromkeys(led_groups, answer.error)
            elif answer is not None:
                problems = {r.group: r.error for r in answer.partition_changes.results if r.HasField("error")}
            for group, problem in problems.items():
                for slot in slots.get(group, ()):
                    slot.error.CopyFrom(problem)
            waiting -= 1
            if not waiting:
                finish()

        for leader, led_groups in groups.items():
            body = peer_pb2.ElectPreferredLeaders(groups=led_groups, timeout_ms=timeout_ms)
            self._client.ask(
                now + wait_us(timeout_ms) + FORWARD_GRACE_US,
                peer_pb2.ControllerRequest(elect_preferred_leaders=body),
                lambda answer, led_groups=led_groups: answered(led_groups, answer),  # type: ignore[misc]  # bound per leader
                to=leader,
            )


def failed_elections(
    request: admin_pb2.ElectLeadersRequest, problem: errors_pb2.Error
) -> admin_pb2.ElectLeadersResponse:
    """Returns the response to a request that failed as a whole."""
    response = admin_pb2.ElectLeadersResponse(error=None if request.partitions else problem)
    for named in request.partitions:
        response.results.add(topic=named.topic, partition=named.partition, error=problem)
    return response


def _unasked(name: str, record: PartitionRecord | None, leader: int) -> errors_pb2.Error | None:
    """Returns the result that needs no request to a leader; None if the leader must be asked."""
    if record is None:
        return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist; check topic and partition")
    if leader == record.replicas[0]:
        return not_needed(name, leader)
    if leader == NO_NODE:
        return error(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader that could hand over; try again shortly")
    return None


def _unanswered() -> errors_pb2.Error:
    return error(ErrorCode.REQUEST_TIMED_OUT, "the leader did not answer; look up the leader and retry", definite=False)
