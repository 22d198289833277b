"""Heartbeats of members that are not answered yet, and those that wait until there are changes for their member.

A member has one heartbeat waiting at a time, at most for the time it requested. So it learns of a change when that is
decided, and not an interval later. A consumer group without changes costs one heartbeat per member and interval, and no
more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.deciding.dependencies import ReplyToClient
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import errors_pb2
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest, GroupHeartbeatResponse


@dataclass(slots=True, eq=False)
class HeartbeatCall:
    """A heartbeat of a member that is not answered yet.

    Arguments:
        came: time of its arrival (µs).
        deadline: time by which it is answered even without changes (µs).
        reply: sends the response to its client.
    """

    request_id: int
    request: GroupHeartbeatRequest
    client: RequestContext
    came: int
    deadline: int
    reply: ReplyToClient

    @property
    def key(self) -> str:
        """The consumer group of its member."""
        return self.request.group_id

    def answer(self, response: ProtoMessage) -> None:
        """Sends the response."""
        self.reply(self.request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Responds that it is not decided here, or not now."""
        self.reply(self.request_id, refused_heartbeat(self.request, problem))


class ParkedHeartbeats:
    """The heartbeats that wait for changes at one coordinator."""

    def __init__(self) -> None:
        self._by_member: dict[str, dict[str, HeartbeatCall]] = {}
        self._by_request: dict[int, HeartbeatCall] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_request)

    def park(self, call: HeartbeatCall) -> None:
        """Parks a heartbeat. No other one of the same member may be parked."""
        members = self._by_member.setdefault(call.key, {})
        assert call.request.member_id not in members
        members[call.request.member_id] = call
        self._by_request[call.request_id] = call
        heapq.heappush(self._deadlines, (call.deadline, call.request_id))

    def take_of_member(self, group_id: str, member_id: str) -> HeartbeatCall | None:
        """Removes and returns a member's heartbeat, if one is parked."""
        members = self._by_member.get(group_id)
        call = members.get(member_id) if members is not None else None
        return self.take_request(call.request_id) if call is not None else None

    def take_request(self, request_id: int) -> HeartbeatCall | None:
        """Removes and returns the heartbeat of a request, if it is parked."""
        call = self._by_request.pop(request_id, None)
        if call is not None:
            members = self._by_member[call.key]
            del members[call.request.member_id]
            if not members:
                del self._by_member[call.key]
        return call

    def of_group(self, group_id: str) -> list[HeartbeatCall]:
        """Returns those of a consumer group's members."""
        return list(self._by_member.get(group_id, {}).values())

    def take_all(self) -> list[HeartbeatCall]:
        """Removes and returns all of them."""
        everything = list(self._by_request.values())
        self._by_member.clear()
        self._by_request.clear()
        self._deadlines.clear()
        return everything

    def take_due(self, now: int) -> Iterator[HeartbeatCall]:
        """Removes and yields those whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            call = self.take_request(heapq.heappop(self._deadlines)[1])
            if call is not None:
                yield call

    @property
    def next_deadline(self) -> int | None:
        """Time of the next deadline."""
        while self._deadlines and self._deadlines[0][1] not in self._by_request:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None


def refused_heartbeat(request: GroupHeartbeatRequest, problem: errors_pb2.Error) -> GroupHeartbeatResponse:
    """Returns the response to a heartbeat that is not decided here, or not now."""
    return GroupHeartbeatResponse(
        correlation_id=request.correlation_id,
        error=problem,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
    )
