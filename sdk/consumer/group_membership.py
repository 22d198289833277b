"""A member of a consumer group as a state machine: its heartbeats, and the effect of the coordinator's responses
(KIP-848).

No I/O and no clock: its owner sends the heartbeats from :meth:`GroupMembership.heartbeat`, and passes in the responses
and the time. The consumer does so on its event loop, the simulator on virtual time.

Three rules prevent two members from working on one partition:

- A revoked partition stays in ``owned``, and is reported as such, until :meth:`GroupMembership.release`.
- A member without a response for a session timeout considers everything lost, by its own clock. The time counts from
  when the last answered heartbeat was *sent*, which is before the coordinator started to count: so the member stops
  first.
- Each heartbeat repeats the version of the last adopted assignment. So a delayed heartbeat does not release, at the
  next coordinator, partitions that the member was assigned since.
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
#: A static member leaves for a restart: its partitions are reserved for it.
LEAVE_STATIC_EPOCH = -2
#: Allowance for the network, in addition to the time that a heartbeat may wait at the coordinator.
ANSWER_PATIENCE_S = 1.0
#: A session that a new coordinator grants is longer than its time-out by two election timeouts: 1.2 s by default.
_LONGER_SESSION_MS = 3000
#: A response without changes may come early, because the coordinator cannot park more heartbeats. Then the next
#: heartbeat follows after this part of the interval. Without this pause the two would exchange messages without end.
_EARLY_FRACTION = 0.1


class GroupPartition(NamedTuple):
    """A partition as groups identify it: a recreated topic has another id."""

    topic_id: bytes
    partition: int


class AssignedTopic(NamedTuple):
    """A topic of the assignment: its name, and its number of partitions when the group started to read it."""

    topic: str
    first_partitions: int


class MembershipState(Enum):
    """State of a membership."""

    OUT = "out"
    JOINING = "joining"
    MEMBER = "member"
    #: The coordinator refuses the member permanently: ``error`` has the reason.
    REFUSED = "refused"


@dataclass(slots=True, frozen=True)
class MembershipConfig:
    """A member's properties. Empty strings are not reported."""

    group_id: str
    instance_id: str = ""
    rack: str = ""
    assignor: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


@dataclass(slots=True, eq=False)
class MemberHeartbeat:
    """A sent heartbeat.

    Attributes:
        sent_at_s: time of sending.
        answer_by_s: time at which its response is overdue.
    """

    request: groups_pb2.GroupHeartbeatRequest
    sent_at_s: float
    answer_by_s: float


class AssignmentChange(NamedTuple):
    """The effect of a response, or of its absence, on the member's partitions.

    Attributes:
        gained: to be read from now on.
        revoked: no longer to be read; to be released once their records are processed. (One that is assigned again
            before that is simply no longer in ``owned - assigned``.)
        lost: no longer the member's, without notice: others may have them.
    """

    gained: frozenset[GroupPartition] = frozenset()
    revoked: frozenset[GroupPartition] = frozenset()
    lost: frozenset[GroupPartition] = frozenset()


_NOTHING = AssignmentChange()


@dataclass(slots=True)
class GroupMembership:
    """One member of one group.

    Invariant: ``assigned`` is the last assignment; ``owned`` is that, and the partitions that have yet to be released.

    Arguments:
        new_member_id: creates the random id of an incarnation.
        retry_delay_s: delay after the n-th consecutive failure, from 1 on.

    Attributes:
        state: of the membership.
        member_id, member_epoch: its identity at the coordinator.
        owned: partitions that the member has not given up.
        assigned: partitions that it is assigned.
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
        """Sets the subscription: topics, and a pattern (RE2) in addition. A member reports it at once."""
        subscribed = tuple(sorted(topics))
        if (subscribed, pattern) != (self._subscribed, self._pattern):
            self._subscribed, self._pattern = subscribed, pattern
            self._news += 1

    def join(self, now_s: float) -> None:
        """Joins the group; does nothing for a member, or one that is joining."""
        if self.state is MembershipState.OUT:
            self.member_id = self.new_member_id()
        if self.state in (MembershipState.OUT, MembershipState.REFUSED):
            self._begin_anew(now_s)

    def release(self, partitions: Iterable[GroupPartition]) -> AssignmentChange:
        """Releases revoked partitions whose records are processed, so that others may have them. Reported at once.

        A partition that was assigned again in the meantime is gained again: the coordinator has not noticed.
        """
        released = self.owned.intersection(partitions)
        again = released & self.assigned
        if released != again:
            self.owned -= released - again
            self._news += 1
        return AssignmentChange(gained=again)

    def leave(self, now_s: float) -> MemberHeartbeat | None:
        """Leaves the group. A static member keeps its name and its partitions for the session timeout.

        Returns:
            The heartbeat for leaving, if the coordinator may have the member.
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

    # --- requests to the coordinator ------------------------------------------------------------------------------

    def heartbeat(self, now_s: float) -> MemberHeartbeat | None:
        """Returns the next heartbeat if one is due, and counts it as sent."""
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
        """True if :meth:`heartbeat` returns one."""
        if self.state not in (MembershipState.JOINING, MembershipState.MEMBER):
            return False
        return now_s >= self._due_at_s and (self._in_flight is None or self._told != self._news)

    def unreachable(self, now_s: float) -> None:
        """Notes that the coordinator was not found or not reached: heartbeats in flight will not be answered."""
        self._in_flight = None
        self._retry(now_s)

    def unanswered(self, heartbeat: MemberHeartbeat, now_s: float) -> None:
        """Notes that a heartbeat gets no response: its stream broke, or it is overdue. It may have taken effect."""
        if heartbeat is self._in_flight:
            self._in_flight = None
            self._retry(now_s)

    def overdue(self, now_s: float) -> MemberHeartbeat | None:
        """Returns the heartbeat whose response is overdue, or None."""
        late = self._in_flight
        return late if late is not None and now_s >= late.answer_by_s else None

    def next_at_s(self) -> float | None:
        """Returns the time of the next check if nothing happens before; None before :meth:`join`."""
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
        """Time at which everything counts as lost without a response; minus infinity without a membership."""
        if self.state is not MembershipState.MEMBER:
            return float("-inf")
        return self._heard_at_s + self.config.session_timeout_ms / 1000

    def coordinator_changed(self) -> None:
        """Notes a change of coordinator. The new one grants the member with the same static name a whole session."""
        self._unreleased_since_s = None

    # --- what it says --------------------------------------------------------------------------------------------

    def heard(
        self, heartbeat: MemberHeartbeat, response: groups_pb2.GroupHeartbeatResponse, now_s: float
    ) -> AssignmentChange:
        """Handles a response. Only the response to the newest heartbeat counts.

        An earlier response may name a partition that the newest heartbeat does not list as owned. The coordinator may
        have assigned that partition to another member because of that, so this one must not adopt it. Nothing is
        missed: the newest heartbeat is ``full``, so the coordinator reports everything again.
        """
        lost = self.check_session(now_s)
        if heartbeat is not self._in_flight:
            return lost
        self._in_flight = None
        if response.HasField("error"):
            return self.refused(error_from_proto(response.error), now_s)
        if now_s >= heartbeat.sent_at_s + self.config.session_timeout_ms / 1000:
            # The session that a join started is over before its response is handled (the process was suspended): other
            # members may have the partitions of the response.
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
        """Handles the refusal of a heartbeat, or a permanent failure to send one."""
        if isinstance(error, UnknownMemberIdError | FencedMemberEpochError):
            lost, failures = self.owned, self._failures + 1
            # Keeps its id: a coordinator that has the member after all gives it its former place. (Under another id the
            # former member would keep its partitions for a session timeout.)
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
        """Considers everything lost if no response came for a session timeout, and starts to rejoin.

        It keeps its id: a coordinator that receives it in time returns its partitions.
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
    """Returns partitions as on the wire, sorted."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return [groups_pb2.TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic.items()]
