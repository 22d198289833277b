"""Requests of consumer-group members to nodes, and reasons of their removal, against which timers are judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from quorumlog.v1 import groups_pb2 as pb


class Removal(Enum):
    """Reason of a member's removal."""

    LEFT = "left"
    REPLACED = "another has its name"
    SILENT = "silent for a session"
    OVERDUE = "did not give up in time"


@dataclass(slots=True, frozen=True)
class Removed:
    """Time and reason of a member's removal."""

    at_us: int
    why: Removal


class HeardMembers:
    """Times of members' heartbeats. A member is identified by group and member id."""

    def __init__(self) -> None:
        self.removals: dict[tuple[str, str], Removed] = {}
        self._heard_us: dict[tuple[str, str], int] = {}
        self._left: set[tuple[str, str]] = set()
        self._works: dict[tuple[str, str], set[tuple[bytes, int]]] = {}

    def sent(self, request: pb.GroupHeartbeatRequest) -> None:
        """Records a heartbeat that is sent. After a leave, a member no longer needs to send."""
        if request.member_epoch < 0:
            self._left.add((request.group_id, request.member_id))

    def answered(self, request: pb.GroupHeartbeatRequest, sent_us: int) -> None:
        """Records that the coordinator's leader has answered a heartbeat, so it received it after it was sent."""
        key = (request.group_id, request.member_id)
        self._heard_us[key] = max(sent_us, self._heard_us.get(key, 0))
        removed = self.removals.get(key)
        # A join from before its removal may be answered later. Its work then has started before.
        if request.member_epoch == 0 and removed is not None and removed.at_us <= sent_us:
            del self.removals[key]

    def begins(self, group: str, member: str, partition: tuple[bytes, int]) -> None:
        """Records that a member works on a partition (topic id and number) from now on."""
        self._works.setdefault((group, member), set()).add(partition)

    def ends(self, group: str, member: str, partition: tuple[bytes, int]) -> None:
        """Records that a member has stopped working on a partition, or has ended."""
        self._works.get((group, member), set()).discard(partition)

    def works_on(self, group: str, member: str, partitions: Iterable[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        """Returns those among some partitions that a member works on."""
        return sorted(self._works.get((group, member), set()).intersection(partitions))

    def last_us(self, group: str, member: str) -> int:
        """Returns when the newest heartbeat was sent that certainly arrived."""
        return self._heard_us.get((group, member), 0)

    def has_left(self, group: str, member: str) -> bool:
        """True if the member has sent a leave."""
        return (group, member) in self._left

    def removed(self, group: str, member: str, at_us: int, why: Removal) -> None:
        """Records a removal by the log."""
        self.removals[(group, member)] = Removed(at_us, why)
