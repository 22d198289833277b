"""A member of a consumer group, as a state machine: what to tell the coordinator, and what its answers mean (KIP-848).

No I/O and no clock: its owner sends what :meth:`GroupMembership.heartbeat` returns, hands in the answers, and
says what time it is. The consumer does so on its event loop, the simulator on virtual time.

Three rules keep a partition from being worked on by two members:

- What the coordinator takes away stays in ``owned``, and is told as such, until :meth:`GroupMembership.release`.
- A member that has not been answered for a session timeout counts everything as lost, by its own clock. The time runs
  from when the last answered heartbeat was *sent*, which is before the coordinator began to count: so it is the member
  that stops first.
- Each heartbeat repeats the version of the assignment that was taken up last. So one that is long on its way does not
  release, at the next coordinator, what the member was given since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from quorumlog.sdk.errors import (
    FencedMemberEpochError,
    QuorumlogError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    error_from_proto,
)
from quorumlog.v1 import groups_pb2

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member leaves for a restart: its partitions wait for it.
LEAVE_STATIC_EPOCH = -2
#: Beyond the time that it may wait at the coordinator, an answer may be on its way for so long.
ANSWER_PATIENCE_S = 1.0
#: A session that a new coordinator grants is longer than its time-out by two election timeouts: 1.2 s by default.
_LONGER_SESSION_MS = 3000
#: An answer without news may come long before its time, because the coordinator parks no more heartbeats. Then the
#: next heartbeat follows after this part of the interval. Without this pause the two would play ping-pong.
_EARLY_FRACTION = 0.1


class GroupPartition(NamedTuple):
    """A partition as groups name it: a topic that is deleted and made anew is another one."""

    topic_id: bytes
    partition: int


class AssignedTopic(NamedTuple):
    """A topic of the assignment: its name, and how many partitions it had when the group began to read it."""

    topic: str
    first_partitions: int


class MembershipState(Enum):
    """Where a member stands."""

    OUT = "out"
    JOINING = "joining"
    MEMBER = "member"
    #: The coordinator refuses it for good: ``error`` says why.
    REFUSED = "refused"


@dataclass(slots=True, frozen=True)
class MembershipConfig:
    """What a member tells of itself. Empty strings: nothing to tell."""

    group_id: str
    instance_id: str = ""
    rack: str = ""
    assignor: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


@dataclass(slots=True, eq=False)
class MemberHeartbeat:
    """One heartbeat as sent.

    Attributes:
        sent_at_s: when.
        answer_by_s: when its answer is overdue.
    """

    request: groups_pb2.GroupHeartbeatRequest
    sent_at_s: float
    answer_by_s: float


class AssignmentChange(NamedTuple):
    """What an answer, or silence, changes for who works on the partitions.

    Attributes:
        gained: to be read from now on.
        revoked: not to be read any more; to be released once the work on them is done. (One that is assigned again
            before that is simply no longer in ``owned - assigned``.)
        lost: not the member's any more, without a word: others may have them.
    """

    gained: frozenset[GroupPartition] = frozenset()
    revoked: frozenset[GroupPartition] = frozenset()
    lost: frozenset[GroupPartition] = frozenset()


_NOTHING = AssignmentChange()


@dataclass(slots=True)
class GroupMembership:
    """One member of one group.

    Invariant: ``assigned`` is what the coordinator said last; ``owned`` is that, and what has yet to be released.

    Arguments:
        new_member_id: makes the id of an incarnation, at random.
        retry_delay_s: how long to wait after the n-th failure in a row, from 1 on.

    Attributes:
        state: where it stands.
        member_id, member_epoch: who it is for the coordinator.
        owned: what the member has not given up.
        assigned: what it is to have.
        topics: the topics of ``assigned``, by id.
        error: why it is refused.
    """

    config: MembershipConfig
    new_member_id: Callable[[], str]
    retry_delay_s: Callable[[int], float]
    state: MembershipState = MembershipState.OUT
    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    owned: frozenset[GroupPartition] = frozenset()
    assigned: frozenset[GroupPartition] = frozenset()
    topics: Mapping[bytes, AssignedTopic] = field(default_factory=dict)
    error: QuorumlogError | None = None
    _subscribed: tuple[str, ...] = ()
    _pattern: str = ""
    _assignment_version: int = 0
    _known_to_coordinator: bool = False
    _in_flight: MemberHeartbeat | None = None
    _news: int = 0
    _told: int = -1
    _full: bool = True
    _due_at_s: float = 0.0
    _heard_at_s: float = 0.0
    _interval_ms: int = 0
    _failures: int = 0
    _unreleased_since_s: float | None = None

    # --- what the application wants ------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], pattern: str = "") -> None:
        """Wants these topics from now on, those of the pattern (RE2) beside them. Told at once by a member."""
        subscribed = tuple(sorted(topics))
        if (subscribed, pattern) != (self._subscribed, self._pattern):
            self._subscribed, self._pattern = subscribed, pattern
            self._news += 1

    def join(self, now_s: float) -> None:
        """Becomes a member; nothing changes for one that is, or is about to."""
        if self.state is MembershipState.OUT:
            self.member_id = self.new_member_id()
        if self.state in (MembershipState.OUT, MembershipState.REFUSED):
            self._begin_anew(now_s)

    def release(self, partitions: Iterable[GroupPartition]) -> AssignmentChange:
        """The work on partitions that were taken away is done: others may have them. Told at once.

        What has been given back in the meantime is gained again: the coordinator has never noticed.
        """
        released = self.owned.intersection(partitions)
        again = released & self.assigned
        if released != again:
            self.owned -= released - again
            self._news += 1
        return AssignmentChange(gained=again)

    def leave(self, now_s: float) -> MemberHeartbeat | None:
        """Is no member any more. A static one keeps its name and its partitions for the session timeout.

        Returns:
            What to tell the coordinator, if it may know of the member.
        """
        known, self._known_to_coordinator = self._known_to_coordinator, False
        self.state = MembershipState.OUT
        self._forget()
        if not known:
            return None
        request = groups_pb2.GroupHeartbeatRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if self.config.instance_id else LEAVE_EPOCH,
            instance_id=self.config.instance_id,
        )
        return MemberHeartbeat(request, now_s, now_s + ANSWER_PATIENCE_S)

    # --- what the coordinator hears ------------------------------------------------------------------------------

    def heartbeat(self, now_s: float) -> MemberHeartbeat | None:
        """The next heartbeat, if one is to be sent now; it counts as sent."""
        if not self.is_due(now_s):
            return None
        joins = self.state is MembershipState.JOINING
        request = groups_pb2.GroupHeartbeatRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH if joins else self.member_epoch,
            instance_id=self.config.instance_id,
            rack=self.config.rack,
            rebalance_timeout_ms=self.config.rebalance_timeout_ms,
            session_timeout_ms=self.config.session_timeout_ms,
            topics=self._subscribed,
            topic_pattern=self._pattern,
            assignor=self.config.assignor,
            owned=as_topic_partitions(self.owned),
            full=self._full or joins or self._in_flight is not None,
            max_wait_ms=min(self._interval_ms, self.config.session_timeout_ms // 3),
            assignment_version=self._assignment_version,
        )
        self._told = self._news
        self._full = False
        self._known_to_coordinator = True
        self._in_flight = MemberHeartbeat(request, now_s, now_s + request.max_wait_ms / 1000 + ANSWER_PATIENCE_S)
        return self._in_flight

    def is_due(self, now_s: float) -> bool:
        """Whether :meth:`heartbeat` returns one."""
        if self.state not in (MembershipState.JOINING, MembershipState.MEMBER):
            return False
        return now_s >= self._due_at_s and (self._in_flight is None or self._told != self._news)

    def unreachable(self, now_s: float) -> None:
        """The coordinator was not found, or there is no way to it: what is under way will not be answered."""
        self._in_flight = None
        self._retry(now_s)

    def unanswered(self, heartbeat: MemberHeartbeat, now_s: float) -> None:
        """A heartbeat gets no answer: its stream broke, or it is overdue. It may have taken effect."""
        if heartbeat is self._in_flight:
            self._in_flight = None
            self._retry(now_s)

    def overdue(self, now_s: float) -> MemberHeartbeat | None:
        """The heartbeat whose answer is late, if it is."""
        late = self._in_flight
        return late if late is not None and now_s >= late.answer_by_s else None

    def next_at_s(self) -> float | None:
        """When to look again if nothing happens before; None: not before :meth:`join`."""
        if self.state not in (MembershipState.JOINING, MembershipState.MEMBER):
            return None
        times = [] if self._in_flight is None else [self._in_flight.answer_by_s]
        if self._in_flight is None or self._told != self._news:
            times.append(self._due_at_s)
        if self.state is MembershipState.MEMBER:
            times.append(self.session_ends_s)
        return min(times)

    @property
    def session_ends_s(self) -> float:
        """When everything counts as lost unless an answer comes; minus infinity without a membership."""
        if self.state is not MembershipState.MEMBER:
            return float("-inf")
        return self._heard_at_s + self.config.session_timeout_ms / 1000

    def coordinator_changed(self) -> None:
        """Another coordinator is asked. From now on it gives the member with the same static name a whole session."""
        self._unreleased_since_s = None

    # --- what it says --------------------------------------------------------------------------------------------

    def heard(
        self, heartbeat: MemberHeartbeat, response: groups_pb2.GroupHeartbeatResponse, now_s: float
    ) -> AssignmentChange:
        """Takes in an answer. Only the answer to the newest heartbeat counts.

        An earlier answer may name a partition that the newest heartbeat does not name as the member's own. The
        coordinator may have given that partition to another member because of that, so this one must not take it up.
        Nothing is missed: the newest heartbeat is ``full``, so the coordinator tells everything again.
        """
        lost = self.check_session(now_s)
        if heartbeat is not self._in_flight:
            return lost
        self._in_flight = None
        if response.HasField("error"):
            return self.refused(error_from_proto(response.error), now_s)
        if now_s >= heartbeat.sent_at_s + self.config.session_timeout_ms / 1000:
            # The session that a join began is over before it is heard of (the process stood still): others may have
            # what the answer gives.
            self._begin_anew(now_s)
            return _NOTHING
        news = response.HasField("assignment") or response.member_epoch != heartbeat.request.member_epoch
        early = heartbeat.request.max_wait_ms / 2000 > now_s - heartbeat.sent_at_s and not heartbeat.request.full
        self._interval_ms = self.config.heartbeat_interval_ms
        if response.heartbeat_interval_ms:
            self._interval_ms = min(self._interval_ms, response.heartbeat_interval_ms)
        self._due_at_s = now_s
        if early and not news:
            self._due_at_s += _EARLY_FRACTION * self._interval_ms / 1000
        self._failures = 0
        self._unreleased_since_s = None
        self._heard_at_s = max(self._heard_at_s, heartbeat.sent_at_s)
        self.state = MembershipState.MEMBER
        self.member_epoch = response.member_epoch
        return self._adopt(response.assignment) if response.HasField("assignment") else _NOTHING

    def _adopt(self, assignment: groups_pb2.GroupAssignment) -> AssignmentChange:
        assigned = frozenset(
            GroupPartition(topic.topic_id, number) for topic in assignment.topics for number in topic.partitions
        )
        was_revoking = self.owned - self.assigned
        self._assignment_version = assignment.version
        self.topics = {
            topic.topic_id: AssignedTopic(topic.topic, topic.first_partitions) for topic in assignment.topics
        }
        self.assigned = assigned
        gained = assigned - self.owned
        revoked = self.owned - assigned - was_revoking
        self.owned |= assigned
        return AssignmentChange(gained=gained, revoked=revoked)

    def refused(self, error: QuorumlogError, now_s: float) -> AssignmentChange:
        """Takes in why a heartbeat was refused, or could not be sent to anybody for good."""
        if isinstance(error, UnknownMemberIdError | FencedMemberEpochError):
            lost, failures = self.owned, self._failures + 1
            # Under its id: a coordinator that has the member after all puts it in its own place. (Under another one the
            # former would keep its partitions for a session timeout.)
            self._begin_anew(now_s + self.retry_delay_s(failures))
            self._failures = failures
            return AssignmentChange(lost=lost)
        if isinstance(error, UnreleasedInstanceIdError):
            # Its former process may have been killed: then the name is free after a session timeout.
            if self._unreleased_since_s is None:
                self._unreleased_since_s = now_s
            more_ms = max(2 * self.config.heartbeat_interval_ms, _LONGER_SESSION_MS)
            patience_s = (self.config.session_timeout_ms + more_ms) / 1000
            if now_s - self._unreleased_since_s < patience_s:
                self._due_at_s = now_s + min(1.0, self.config.heartbeat_interval_ms / 1000)
                return _NOTHING
        elif error.retriable:
            self._retry(now_s)
            return _NOTHING
        lost = self.owned
        self._forget()
        self.state = MembershipState.REFUSED
        self.error = error
        return AssignmentChange(lost=lost)

    def check_session(self, now_s: float) -> AssignmentChange:
        """Counts everything as lost when nothing was heard for a session timeout, and goes on to join again.

        It keeps its id: the coordinator that hears of it in time gives it back what it had.
        """
        if self.state is not MembershipState.MEMBER or now_s < self.session_ends_s:
            return _NOTHING
        lost = self.owned
        self._begin_anew(now_s)
        return AssignmentChange(lost=lost)

    def _retry(self, now_s: float) -> None:
        self._failures += 1
        self._due_at_s = now_s + self.retry_delay_s(self._failures)
        self._full = True

    def _begin_anew(self, due_at_s: float) -> None:
        self._forget()
        self.state = MembershipState.JOINING
        self._due_at_s = due_at_s

    def _forget(self) -> None:
        self._in_flight = None
        self.member_epoch = JOIN_EPOCH
        self._assignment_version = 0
        self.owned = self.assigned = frozenset()
        self.topics = {}
        self.error = None
        self._full = True
        self._failures = 0
        self._interval_ms = self.config.heartbeat_interval_ms
        self._unreleased_since_s = None


def as_topic_partitions(partitions: Iterable[GroupPartition]) -> list[groups_pb2.TopicPartitions]:
    """Partitions as the wire has them, sorted."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return [groups_pb2.TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]
