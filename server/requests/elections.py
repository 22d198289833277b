"""Elections that a client asks for: passed on to the leaders of the partitions, and answered when all have answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.raft.types import NO_NODE
from quorumlog.server.broker.leader_elections import not_needed
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.events import ClientRequest
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Another node's answer is waited for so much longer than that node waits itself (µs).
FORWARD_GRACE_US = 200_000
#: A partition without a leader is waited for, because its topic is new or another leader is being elected; but not for
#: longer than that takes (µs).
LEADERLESS_US = 5_000_000
#: How often to look whether there is a leader (µs), and for how many partitions at a time: no others are waited for.
LOOK_US = 50_000
MOST_LEADERLESS = 1_000


@dataclass(slots=True)
class _Asked:
    """A client's request that is not answered yet.

    Arguments:
        deadline: when the client's time is over (µs).
        patience: until when a leader is waited for (µs).
        response: what has become of each partition so far.
        slots: the results of each Raft group in it.
        unasked: topic and number of the partitions whose leaders have yet to be asked, by Raft group.
        unanswered: how many leaders were asked and have not answered.
    """

    request_id: int
    deadline: int
    patience: int
    response: admin_pb2.ElectLeadersResponse = field(default_factory=admin_pb2.ElectLeadersResponse)
    slots: dict[int, list[admin_pb2.ElectLeadersResult]] = field(default_factory=dict)
    unasked: dict[int, tuple[str, int]] = field(default_factory=dict)
    unanswered: int = 0


class ElectionRequests(NodeService):
    """Has leaderships handed over to preferred leaders by whoever leads, as clients ask for it."""

    def __init__(self, replicas: Replicas, client: ControllerClient, replies: Replies) -> None:
        self._replicas = replicas
        self._client = client
        self._replies = replies
        self._waiting: list[_Asked] = []
        self._look_due = 0

    def declare_requests(self, table: RequestTable) -> None:
        table.declare(admin_pb2.ElectLeadersRequest, self.elect)

    def elect(self, time: StepTime, asked: ClientRequest, request: admin_pb2.ElectLeadersRequest) -> None:
        """Asks the leaders of partitions to hand over, and answers when all have answered."""
        deadline = time.now + wait_us(request.timeout_ms)
        order = _Asked(asked.request_id, deadline, min(deadline, time.now + LEADERLESS_US))
        meant = {(p.topic, p.partition): p.topic_id for p in request.partitions}
        for name, number, record in self._replicas.named((p.topic, p.partition) for p in request.partitions):
            if record is not None and meant.get((name, number), b"") not in (b"", record.topic.topic_id):
                record = None  # The next topic of that name is not meant.
            if record is not None and not request.partitions and self._leader(record) == record.replicas[0]:
                continue
            result = order.response.results.add(topic=name, partition=number)
            if record is None:
                result.error.CopyFrom(_unknown(name, number))
            else:
                order.slots.setdefault(record.group, []).append(result)
                order.unasked[record.group] = name, number
        if self._go_on(time.now, order):
            return
        if len(order.unasked) + sum(len(each.unasked) for each in self._waiting) > MOST_LEADERLESS:
            order.patience = time.now
            self._go_on(time.now, order)
        else:
            if not self._waiting:
                self._look_due = time.now + LOOK_US
            self._waiting.append(order)

    def on_time(self, now: int, wall_ms: int) -> None:
        if self._waiting and now >= self._look_due:
            self._look_due = now + LOOK_US
            self._waiting = [order for order in self._waiting if not self._go_on(now, order)]

    @property
    def next_deadline(self) -> int | None:
        return self._look_due if self._waiting else None

    def client_gone(self, request_id: int) -> None:
        self._waiting = [order for order in self._waiting if order.request_id != request_id]

    def _leader(self, record: PartitionRecord) -> int:
        return self._replicas.known_leader(record)[0]

    def _go_on(self, now: int, order: _Asked) -> bool:
        """Asks the leaders that there are by now. Returns whether all have been asked, or will not be."""
        groups: dict[int, list[int]] = {}
        for group, (name, number) in list(order.unasked.items()):
            ((_, _, record),) = self._replicas.named(((name, number),))
            leader = NO_NODE if record is None else self._leader(record)
            if record is None or record.group != group:
                problem = _unknown(name, number)
            elif leader == record.replicas[0]:
                problem = not_needed(f"{name}-{number}", leader)
            elif leader != NO_NODE:
                groups.setdefault(leader, []).append(group)
                del order.unasked[group]
                continue
            elif now < order.patience:
                continue
            else:
                problem = _leaderless(name, number)
            del order.unasked[group]
            _note(order, group, problem)
        # One more, so that no answer which comes at once is taken for the last.
        order.unanswered += len(groups) + 1
        for leader, chosen in groups.items():
            self._ask(now, order, leader, chosen)
        self._note_answer(order)
        return not order.unasked

    def _ask(self, now: int, order: _Asked, leader: int, groups: list[int]) -> None:
        def answered(answer: peer_pb2.ControllerResponse | None) -> None:
            problems = {group: _unanswered() for group in groups}
            if answer is not None and answer.HasField("error"):
                problems = dict.fromkeys(groups, answer.error)
            elif answer is not None:
                problems = {r.group: r.error for r in answer.partition_changes.results if r.HasField("error")}
            for group, problem in problems.items():
                _note(order, group, problem)
            self._note_answer(order)

        body = peer_pb2.ElectPreferredLeaders(groups=groups, timeout_ms=max(1, (order.deadline - now) // 1000))
        self._client.ask(
            order.deadline + FORWARD_GRACE_US,
            peer_pb2.ControllerRequest(elect_preferred_leaders=body),
            answered,
            to=leader,
        )

    def _note_answer(self, order: _Asked) -> None:
        """Tells the client what has become of all once that is known."""
        order.unanswered -= 1
        if not order.unanswered and not order.unasked:
            self._replies.reply(order.request_id, order.response)


def failed_elections(
    request: admin_pb2.ElectLeadersRequest, problem: errors_pb2.Error
) -> admin_pb2.ElectLeadersResponse:
    """The answer to a request that failed as a whole."""
    response = admin_pb2.ElectLeadersResponse(error=None if request.partitions else problem)
    for named in request.partitions:
        response.results.add(topic=named.topic, partition=named.partition, error=problem)
    return response


def _note(order: _Asked, group: int, problem: errors_pb2.Error) -> None:
    for slot in order.slots.get(group, ()):
        slot.error.CopyFrom(problem)


def _unknown(topic: str, number: int) -> errors_pb2.Error:
    message = f"{topic}-{number} does not exist; check topic and partition"
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _leaderless(topic: str, number: int) -> errors_pb2.Error:
    message = f"{topic}-{number} has no leader that could hand over; try again shortly"
    return error(ErrorCode.LEADER_NOT_AVAILABLE, message)


def _unanswered() -> errors_pb2.Error:
    return error(ErrorCode.REQUEST_TIMED_OUT, "the leader did not answer; look who leads, ask again", definite=False)
