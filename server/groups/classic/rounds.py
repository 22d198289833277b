"""State of classic groups that only the leader of a coordinator's log has: joins and syncs that wait, ids assigned to
members that have yet to join, and deadlines. It ends with the leadership; waiting clients are sent to the next
leader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from quorumlog.server.groups.classic.calls import ClassicCall
from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.server.groups.classic.deadlines import Deadlines, Due


@dataclass(slots=True)
class JoinRound:
    """A round of joins that is under way. Times in µs.

    Arguments:
        is_first: True for a group that had no members: it waits a moment for more of them, and again after each that
            joins.
        limit: latest end of the round.
        has_new: True if a member has joined after the first, and since the round was last extended.
        joins: calls that wait, in the order of their arrival; ``members`` are the members that wait with them.
    """

    is_first: bool
    limit: int
    has_new: bool = False
    joins: dict[str, ClassicCall] = field(default_factory=dict)
    members: dict[str, ClassicMember] = field(default_factory=dict)

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members that have joined; empty before the first."""
        return next((call.request.protocol_type for call in self.joins.values()), "")  # type: ignore[union-attr]


class ClassicRounds:
    """Rounds of many groups."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self._rounds: dict[str, JoinRound] = {}
        self._syncs: dict[str, dict[str, ClassicCall]] = {}
        self._named: dict[str, set[str]] = {}
        self._named_count = 0
        #: By request id: the call that waits, and its member.
        self._waiting: dict[int, tuple[ClassicCall, str]] = {}
        self.waiting_bytes = 0

    def __len__(self) -> int:
        """Returns the number of calls that wait."""
        return len(self._waiting)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def of(self, group_id: str) -> JoinRound | None:
        """Returns the round of a group that is under way."""
        return self._rounds.get(group_id)

    def open(self, group_id: str, begun: JoinRound, due: int) -> None:
        """Starts a round."""
        assert group_id not in self._rounds
        self._rounds[group_id] = begun
        self.deadlines.put((Due.ROUND, group_id, ""), due)

    def close(self, group_id: str) -> JoinRound | None:
        """Ends a round and returns it; the caller must answer its joins."""
        ended = self._rounds.pop(group_id, None)
        self.deadlines.drop((Due.ROUND, group_id, ""))
        for call in ended.joins.values() if ended is not None else ():
            self._forget(call)
        return ended

    # -- waiting calls ------------------------------------------------------------------------------------------------

    def park_join(self, call: ClassicCall, member_id: str) -> ClassicCall | None:
        """Parks a join, in a round that is open. Returns an earlier one of the same member."""
        joining = self._rounds[call.key]
        earlier = self.take_join(call.key, member_id)
        joining.has_new |= bool(joining.joins)
        assert call.member is not None, "the joining member is settled"
        joining.joins[member_id], joining.members[member_id] = call, call.member
        self._remember(call, member_id)
        self.forget_name(call.key, member_id)
        return earlier

    def park_sync(self, call: ClassicCall, member_id: str) -> ClassicCall | None:
        """Parks a sync until that of the leader. Returns an earlier one of the same member."""
        earlier = self.take_sync(call.key, member_id)
        self._syncs.setdefault(call.key, {})[member_id] = call
        self._remember(call, member_id)
        return earlier

    def take_join(self, group_id: str, member_id: str) -> ClassicCall | None:
        """Removes and returns a member's join, if one waits."""
        joining = self._rounds.get(group_id)
        call = joining.joins.pop(member_id, None) if joining is not None else None
        if joining is not None and call is not None:
            del joining.members[member_id]
            self._forget(call)
        return call

    def take_sync(self, group_id: str, member_id: str) -> ClassicCall | None:
        """Removes and returns a member's sync, if one waits."""
        syncs = self._syncs.get(group_id, {})
        call = syncs.pop(member_id, None)
        if call is not None:
            self._forget(call)
        if not syncs:
            self._syncs.pop(group_id, None)
        return call

    def take_syncs(self, group_id: str) -> list[tuple[str, ClassicCall]]:
        """Removes and returns all syncs of a group that wait."""
        syncs = list(self._syncs.pop(group_id, {}).items())
        for _, call in syncs:
            self._forget(call)
        return syncs

    def take_request(self, request_id: int) -> ClassicCall | None:
        """Removes and returns the call of a request, if it waits."""
        waiting = self._waiting.get(request_id)
        if waiting is None:
            return None
        call, member_id = waiting
        if self._syncs.get(call.key, {}).get(member_id) is call:
            return self.take_sync(call.key, member_id)
        return self.take_join(call.key, member_id)

    def is_waiting(self, group_id: str, member_id: str) -> bool:
        """True if a call of a member waits: it is not silent then."""
        joining = self._rounds.get(group_id)
        return (joining is not None and member_id in joining.joins) or member_id in self._syncs.get(group_id, {})

    def joins(self, group_id: str) -> Mapping[str, ClassicMember]:
        """Returns the members that wait in a group's round."""
        joining = self._rounds.get(group_id)
        return joining.members if joining is not None else {}

    def take_all(self) -> Iterator[ClassicCall]:
        """Removes and returns all calls that wait, and ends the rounds."""
        calls = [call for call, _ in self._waiting.values()]
        for group_id in list(self._rounds):
            self.close(group_id)
        for group_id in list(self._syncs):
            self.take_syncs(group_id)
        return iter(calls)

    def _remember(self, call: ClassicCall, member_id: str) -> None:
        self._waiting[call.request_id] = (call, member_id)
        self.waiting_bytes += call.request.ByteSize()
        self.deadlines.put((Due.CALL, call.key, str(call.request_id)), call.deadline)

    def _forget(self, call: ClassicCall) -> None:
        del self._waiting[call.request_id]
        self.waiting_bytes -= call.request.ByteSize()
        self.deadlines.drop((Due.CALL, call.key, str(call.request_id)))

    # -- assigned ids -------------------------------------------------------------------------------------------------

    def name(self, group_id: str, member_id: str, due: int) -> None:
        """Records that a member was assigned an id, and must join with it before the deadline."""
        self._named.setdefault(group_id, set()).add(member_id)
        self._named_count += 1
        self.deadlines.put((Due.NAME, group_id, member_id), due)

    def named(self, group_id: str) -> set[str]:
        """Returns the ids with which no member has joined yet."""
        return self._named.get(group_id, set())

    def forget_name(self, group_id: str, member_id: str) -> bool:
        """Forgets an assigned id, because a member has joined with it or it has expired. Returns True if it was one."""
        named = self._named.get(group_id)
        if named is None or member_id not in named:
            return False
        named.discard(member_id)
        self._named_count -= 1
        if not named:
            del self._named[group_id]
        self.deadlines.drop((Due.NAME, group_id, member_id))
        return True

    @property
    def named_count(self) -> int:
        """Number of assigned ids with which no member has joined."""
        return self._named_count


def longest_us(classic: ClassicGroup, joins: Mapping[str, ClassicMember]) -> int:
    """Returns how long the members of a group wait for each other to join (µs)."""
    times = (member.rebalance_timeout_ms for member in (*classic.members.values(), *joins.values()))
    return max(times, default=0) * 1000
