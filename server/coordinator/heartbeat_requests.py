"""Heartbeats of members, as one leadership serves them: decided, answered, or kept until there is news."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.consumer_group_limits import GroupLimits
from quorumlog.server.coordinator.awake_clock import AwakeClock
from quorumlog.server.coordinator.group import ConsumerGroup
from quorumlog.server.coordinator.heartbeat_decisions import nothing_new
from quorumlog.server.coordinator.leadership import Beat, CoordinatorLeadership
from quorumlog.server.coordinator.parked_heartbeats import ParkedHeartbeats, PendingHeartbeat
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest, GroupHeartbeatResponse

#: A parked heartbeat is answered after this part of the member's session at the latest: it has to send the next one.
PARKED_SESSIONS = 3


class HeartbeatRequests:
    """The heartbeats of one leadership.

    Arguments:
        max_parked: that may wait for news.
        reply: answers a request.

    ``leadership`` is set once there is one.
    """

    leadership: CoordinatorLeadership

    def __init__(
        self, clock: AwakeClock, limits: GroupLimits, max_parked: int, reply: Callable[[int, ProtoMessage], None]
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._max_parked = max_parked
        self._reply = reply
        self._parked = ParkedHeartbeats()
        #: By group and member: the newest heartbeat that came. Those of members that are no more are forgotten in the
        #: order in which they were heard, when there are too many.
        self._newest: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def take(self, pending: PendingHeartbeat) -> None:
        """A heartbeat came. One of the same member that waits here is answered: its client has moved on."""
        request = pending.request
        key = (request.group_id, request.member_id)
        newest = self._newest.pop(key, -1)
        self._newest[key] = max(newest, request.correlation_id)
        if request.correlation_id <= newest:
            # Decided late, it could say of the member's partitions what has long been otherwise.
            late = f"heartbeat {request.correlation_id} of this member comes after {newest}: number them upwards"
            self._reply(pending.request_id, refused_heartbeat(pending.request, error(ErrorCode.INVALID_REQUEST, late)))
            return
        if len(self._newest) > 2 * self._max_parked:
            del self._newest[next(iter(self._newest))]
        earlier = self._parked.take(*key)
        if earlier is not None:
            self._tell_nothing(earlier)
        self.leadership.beat(self._beat(pending))

    def _beat(self, pending: PendingHeartbeat) -> Beat:
        def answer(response: ProtoMessage | None) -> None:
            if response is not None:
                self._reply(pending.request_id, response)
            else:
                self._wait(pending)

        def refuse(problem: errors_pb2.Error) -> None:
            self._reply(pending.request_id, refused_heartbeat(pending.request, problem))

        return Beat(pending.request.group_id, pending.request, pending.client, answer, refuse)

    def _wait(self, pending: PendingHeartbeat) -> None:
        """There is nothing to tell, yet."""
        request = pending.request
        pending.deadline = min(pending.deadline, pending.came + request.session_timeout_ms * 1000 // PARKED_SESSIONS)
        if pending.deadline <= self._clock.attended or self._newest.get((request.group_id, request.member_id)) not in (
            None,
            request.correlation_id,
        ):
            self._tell_nothing(pending)
        elif len(self._parked) >= self._max_parked:
            busy = error(ErrorCode.SERVER_BUSY, f"{len(self._parked)} heartbeats wait here: try again after a pause")
            self._reply(pending.request_id, refused_heartbeat(pending.request, busy))
        else:
            self._parked.park(pending)

    def _tell_nothing(self, pending: PendingHeartbeat) -> None:
        request = pending.request
        group = self.leadership.table.groups.get(request.group_id)
        if group is not None and request.member_id in group.members:
            self._reply(pending.request_id, nothing_new(group, request, self._limits))
        else:
            gone = error(ErrorCode.UNKNOWN_MEMBER_ID, f"member {request.member_id} has left the group: join anew")
            self._reply(pending.request_id, refused_heartbeat(pending.request, gone))

    # -- what happens meanwhile -------------------------------------------------------------------------------

    def group_changed(self, group_id: str) -> None:
        """A group has changed: those of its members for whom that may be news are looked at again."""
        group = self.leadership.table.groups.get(group_id)
        concerned = [each for each in self._parked.of_group(group_id) if _may_be_news(group, each.request.member_id)]
        for pending in concerned:
            self._parked.take_request(pending.request_id)
        self.leadership.beat_again(map(self._beat, concerned))

    def on_time(self) -> None:
        """Answers those that have waited as long as they may."""
        for pending in self._parked.take_due(self._clock.attended):
            self._tell_nothing(pending)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due, on the clock of attended time."""
        return self._parked.next_deadline

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._parked.take_request(request_id)

    def end(self, problem: errors_pb2.Error) -> None:
        """The leadership is over."""
        for pending in self._parked.take_all():
            self._reply(pending.request_id, refused_heartbeat(pending.request, problem))


def refused_heartbeat(request: GroupHeartbeatRequest, problem: errors_pb2.Error) -> GroupHeartbeatResponse:
    """The answer to a heartbeat that is not decided here, or not now."""
    return GroupHeartbeatResponse(
        correlation_id=request.correlation_id,
        error=problem,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
    )


def _may_be_news(group: ConsumerGroup | None, member_id: str) -> bool:
    """Whether a change of the group can be news for a member: not for one that has all that the newest assignment gives
    it. (Else each of a thousand members would be looked at for each thing that another one releases.)"""
    member = group.members.get(member_id) if group is not None else None
    return group is None or member is None or not group.has_arrived(member)
