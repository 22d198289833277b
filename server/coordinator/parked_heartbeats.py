"""Heartbeats that wait until there is news for their member, at most as long as it asked for.

A member has one at a time. So it hears of a change when that is decided, and not an interval later, and a group in
which nothing happens costs a heartbeat per member and interval, and no more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.server.client_origin import ClientOrigin
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest


@dataclass(slots=True, eq=False)
class PendingHeartbeat:
    """A heartbeat that is not answered yet.

    Arguments:
        came: when it came (µs).
        deadline: when it is answered at the latest, if there is nothing to tell (µs).
    """

    request_id: int
    request: GroupHeartbeatRequest
    client: ClientOrigin
    came: int
    deadline: int


class ParkedHeartbeats:
    """Those that wait at one coordinator."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, PendingHeartbeat]] = {}
        self._by_request: dict[int, PendingHeartbeat] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._by_request)

    def park(self, heartbeat: PendingHeartbeat) -> None:
        """Keeps a heartbeat. None of the same member must be here."""
        members = self._groups.setdefault(heartbeat.request.group_id, {})
        assert heartbeat.request.member_id not in members
        members[heartbeat.request.member_id] = heartbeat
        self._by_request[heartbeat.request_id] = heartbeat
        heapq.heappush(self._deadlines, (heartbeat.deadline, heartbeat.request_id))

    def take(self, group_id: str, member_id: str) -> PendingHeartbeat | None:
        """Takes out a member's heartbeat, if one waits."""
        members = self._groups.get(group_id)
        heartbeat = members.get(member_id) if members is not None else None
        return self.take_request(heartbeat.request_id) if heartbeat is not None else None

    def take_request(self, request_id: int) -> PendingHeartbeat | None:
        """Takes out the heartbeat of a request, if it waits."""
        heartbeat = self._by_request.pop(request_id, None)
        if heartbeat is not None:
            group_id = heartbeat.request.group_id
            members = self._groups[group_id]
            del members[heartbeat.request.member_id]
            if not members:
                del self._groups[group_id]
        return heartbeat

    def of_group(self, group_id: str) -> list[PendingHeartbeat]:
        """Those of a group's members."""
        return list(self._groups.get(group_id, {}).values())

    def take_all(self) -> list[PendingHeartbeat]:
        """Takes out all of them."""
        everything = list(self._by_request.values())
        self._groups.clear()
        self._by_request.clear()
        self._deadlines.clear()
        return everything

    def take_due(self, now: int) -> Iterator[PendingHeartbeat]:
        """Takes out those that have waited as long as they may."""
        while self._deadlines and self._deadlines[0][0] <= now:
            heartbeat = self.take_request(heapq.heappop(self._deadlines)[1])
            if heartbeat is not None:
                yield heartbeat

    @property
    def next_deadline(self) -> int | None:
        """When the next one has waited long enough."""
        while self._deadlines and self._deadlines[0][1] not in self._by_request:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
