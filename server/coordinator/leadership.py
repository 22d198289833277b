"""A coordinator's leader: it decides calls together, one decision at a time, and answers when that is applied.

Calls gather while a decision is on its way through Raft. They are decided in the order in which they came, each on what
those before it have made of the state (a draft), and what has changed in the end is one command for the log. So a
thousand members that arrive together cost a few writes. A call that changed nothing, in a group that nobody has
changed, is answered at once.

Nothing here outlives the leadership: sessions begin anew with the next leader, and whoever waits is sent to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.group import RaftGroup
from quorumlog.server.client_origin import ClientOrigin
from quorumlog.server.consumer_group_limits import GroupLimits
from quorumlog.server.coordinator.awake_clock import AwakeClock
from quorumlog.server.coordinator.draft import Draft
from quorumlog.server.coordinator.group_table import GroupTable
from quorumlog.server.coordinator.heartbeat_decisions import heartbeats
from quorumlog.server.coordinator.member_changes import expire_rebalance, expire_session
from quorumlog.server.coordinator.member_timers import MemberTimers
from quorumlog.server.coordinator.topic_catalog import TopicCatalog
from quorumlog.server.coordinator.topic_changes import topics_changed
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest

#: Bytes of changes at which a decision takes no further calls.
DECISION_BYTES = 1 << 20
#: Calls, and heartbeats, decided in one go: the node does nothing else meanwhile.
DECISION_CALLS = 500
#: How soon a decision that Raft would not take is tried again (µs).
RETRY_US = 20_000


class Led(Protocol):
    """What a leadership needs of its coordinator."""

    raft: RaftGroup
    table: GroupTable

    def propose(self, now: int, command: GroupCommand) -> int | None:
        """Puts a decision into the log and returns its index; None when that cannot be now."""

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        """Why a call is not answered here."""


@dataclass(slots=True, eq=False)
class Call:
    """Something to be decided of one group, or to be read.

    Arguments:
        decide: decides on a draft, and says what to answer.
        answer: takes the answer once what it says is so.
        refuse: takes the reason why there is none.
    """

    group_id: str
    decide: Callable[[Draft], ProtoMessage | None]
    answer: Callable[[ProtoMessage | None], None]
    refuse: Callable[[errors_pb2.Error], None]


@dataclass(slots=True, eq=False)
class Beat:
    """A heartbeat of a member. It is answered with None when it may wait for news."""

    group_id: str
    request: GroupHeartbeatRequest
    client: ClientOrigin
    answer: Callable[[ProtoMessage | None], None]
    refuse: Callable[[errors_pb2.Error], None]


Waiter: TypeAlias = Call | Beat

#: A look that the coordinator itself takes at a group, by its id.
Look: TypeAlias = Callable[[Draft, str], object]


@dataclass(slots=True, frozen=True)
class _Decision:
    """A command that is on its way, and who waits for it."""

    index: int
    waiting: list[tuple[Waiter, ProtoMessage | None]]


@dataclass(slots=True, frozen=True)
class _Read:
    """A call that only reads, and waits until it is certain what was committed when it came."""

    heartbeat: int
    index: int
    call: Call


class CoordinatorLeadership:
    """One term of one coordinator.

    Arguments:
        clock: the node's, shared.
        grace_us: for how long another leader may have gone on after this one began to lead. Members may have heard from
            it, and count their sessions from that.
        topics: gives the topics as this node knows them.
        max_calls: that may wait to be decided.
        group_changed: told of each group that a command has changed, once that is applied and answered.
    """

    def __init__(
        self,
        led: Led,
        clock: AwakeClock,
        grace_us: int,
        topics: Callable[[], TopicCatalog],
        limits: GroupLimits,
        max_calls: int,
        group_changed: Callable[[str], None],
    ) -> None:
        self.term = led.raft.term
        self._led = led
        self._clock = clock
        self._topics = topics
        self._limits = limits
        self._max_calls = max_calls
        self._group_changed = group_changed
        self._calls: deque[Call] = deque()
        self._beats: deque[Beat] = deque()
        self._looks: dict[tuple[str, Look], None] = {}
        self._reads: list[_Read] = []
        self._decision: _Decision | None = None
        self._retry_at = 0
        self._timers = MemberTimers()
        self._unconfirmed = 0
        for group in led.table.groups.values():
            for member in group.members.values():
                self._timers.track(clock.attended + grace_us, group.group_id, member)

    @property
    def table(self) -> GroupTable:
        """The groups as the log has made them."""
        return self._led.table

    @property
    def members(self) -> int:
        """How many members all groups have together."""
        return len(self._timers)

    # -- calls ------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Takes a call that may change something; ``decide`` is to follow."""
        if len(self._calls) >= self._max_calls:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._calls)} calls of groups wait here; try again later"))
        else:
            self._calls.append(call)

    def beat(self, beat: Beat) -> None:
        """Takes a heartbeat; its member was heard."""
        if len(self._beats) >= self._max_calls:
            beat.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._beats)} heartbeats wait here: try again later"))
            return
        self._timers.heard(self._clock.attended, beat.group_id, beat.request.member_id)
        self._beats.append(beat)

    def beat_again(self, beats: Iterable[Beat]) -> None:
        """Takes heartbeats that were decided before, as their groups have changed."""
        self._beats.extend(beats)

    def look_at_all(self, look: Look) -> None:
        """Has each group looked at, once, however often that is asked for until then."""
        self._looks.update(dict.fromkeys((group_id, look) for group_id in self.table.groups))

    def read(self, call: Call, heartbeat: int) -> None:
        """Takes a call that changes nothing.

        Arguments:
            heartbeat: the round that confirms that this node still leads.
        """
        self._reads.append(_Read(heartbeat, self._led.raft.commit_index, call))

    # -- decisions --------------------------------------------------------------------------------------------

    def doubt(self, heartbeat: int) -> None:
        """The node stood still, and others may lead since: nothing is said before a quorum has confirmed that not.

        (Else a member that only this leader hears would count a new session from the answer, while the next leader has
        long given away what is its.)

        Arguments:
            heartbeat: the round that confirms it.
        """
        self._unconfirmed = heartbeat

    @property
    def is_certain(self) -> bool:
        """Whether this node led when it was last in doubt."""
        return self._led.raft.confirmed_round >= self._unconfirmed

    def decide(self) -> bool:
        """Decides what waits, unless a decision is on its way. True when there is something for the log."""
        due = self.next_deadline
        if due is None or due > self._clock.attended:
            return False
        draft = self._draft()
        calls: list[tuple[Call, ProtoMessage | None]] = []
        while self._calls and len(calls) < DECISION_CALLS and draft.size_bytes < DECISION_BYTES:
            call = self._calls.popleft()
            calls.append((call, call.decide(draft)))
        looks = list(islice(self._looks, DECISION_CALLS))
        for group_id, look in looks:
            look(draft, group_id)
            del self._looks[group_id, look]
        beats: list[Beat] = []
        if not self._calls and not self._looks:
            # Heartbeats come last, all together: what a member is to have is computed once for all that has changed.
            # Whoever was heard by now is not silent, however late its heartbeat is decided.
            self._expire(draft)
            beats = [self._beats.popleft() for _ in range(min(len(self._beats), DECISION_CALLS))]
        answers = heartbeats(draft, [(beat.request, beat.client) for beat in beats])
        decided: list[tuple[Waiter, ProtoMessage | None]] = []
        decided.extend(calls)
        decided.extend(zip(beats, answers, strict=True))
        command = draft.command()
        index = None
        if command is not None:
            index = self._led.propose(self._clock.now, command)
            if index is None:
                self._calls.extendleft(call for call, _ in reversed(calls))
                self._beats.extendleft(reversed(beats))
                self._looks.update(dict.fromkeys(looks))
                self._retry_at = self._clock.attended + RETRY_US
                return False
            self._decision = _Decision(index, [each for each in decided if draft.changed(each[0].group_id)])
        for waiter, answer in decided:
            if index is None or not draft.changed(waiter.group_id):
                waiter.answer(answer)
        return index is not None

    def _draft(self) -> Draft:
        return Draft(self.table, self._topics(), self._limits, self._clock.wall_ms)

    def _expire(self, draft: Draft) -> None:
        for group_id, member_id, epoch in self._timers.take_due(self._clock.attended):
            if epoch is None:
                expire_session(draft, group_id, member_id)
            else:
                expire_rebalance(draft, group_id, member_id, epoch)

    def applied(self, index: int, term: int, command: GroupCommand, changed: set[str]) -> None:
        """A command was applied: this leader's own, or one that its predecessor had left in the log."""
        for change in command.changes:
            for member_id in change.removed_members:
                self._timers.forget(change.group_id, member_id)
            self._track(change.group_id, [member.member_id for member in change.members])
            if not change.base_version and change.group_id in self.table.groups:
                # When topics came after the decision and before now, there was no such group to be looked at.
                self._looks[change.group_id, topics_changed] = None
        decision = self._decision
        if decision is not None and (index, term) == (decision.index, self.term):
            self._decision = None
            for waiter, answer in decision.waiting:
                waiter.answer(answer)
        for group_id in sorted(changed):
            self._group_changed(group_id)

    def _track(self, group_id: str, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self._timers.track(self._clock.attended, group_id, self.table.groups[group_id].members[member_id])

    # -- what happens meanwhile -------------------------------------------------------------------------------

    def after_round(self) -> None:
        """The group was stepped: reads may be certain by now."""
        if not self._reads:
            return
        raft = self._led.raft
        still = []
        for each in self._reads:
            if each.heartbeat <= raft.confirmed_round and each.index <= raft.applied_index:
                each.call.answer(each.call.decide(self._draft()))
            else:
                still.append(each)
        self._reads = still

    @property
    def next_deadline(self) -> int | None:
        """When ``decide`` is due, on the clock of attended time."""
        if self._decision is not None or not self.is_certain:
            return None
        due: int | None = self._clock.attended
        if not (self._calls or self._beats or self._looks):
            due = self._timers.next_deadline
        return None if due is None else max(due, self._retry_at)

    def end(self) -> None:
        """The leadership is over: whoever waits is sent to the next leader."""
        definite = self._led.not_coordinator(definite=True)
        waiting: list[Waiter] = [*self._calls, *self._beats, *(each.call for each in self._reads)]
        for waiter in waiting:
            waiter.refuse(definite)
        self._calls.clear()
        self._beats.clear()
        self._looks.clear()
        self._reads.clear()
        decision, self._decision = self._decision, None
        if decision is not None:
            indefinite = self._led.not_coordinator(definite=False)
            for waiter, _ in decision.waiting:
                waiter.refuse(indefinite)
