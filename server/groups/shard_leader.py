"""A coordinator's leader: it decides calls together, one decision at a time, and answers when that is applied.

Calls are queued while a decision is being replicated. They are decided in the order of their arrival, each based on the
state after those before it (a draft), and the final changes are one command for the log. So a thousand members that
arrive together cost a few writes. A call that changed nothing, in an unchanged consumer group, is answered immediately.
A heartbeat without changes for its member is parked until there are some.

No state here outlives the leadership: sessions restart with the next leader, and every waiting client is sent to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.groups.classic.decisions import ClassicBounds, ClassicDecisions
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeats, nothing_new
from quorumlog.server.groups.member import JOIN_EPOCH
from quorumlog.server.groups.member_changes import expire_rebalance, expire_session
from quorumlog.server.groups.member_timers import MemberTimers
from quorumlog.server.groups.parked_heartbeats import HeartbeatCall, ParkedHeartbeats
from quorumlog.server.groups.periodic_checks import Review, expire_offsets, rights_changed, topics_changed
from quorumlog.server.groups.stall_aware_clock import AwakeClock
from quorumlog.server.groups.topic_catalog import ImageCatalog
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest

#: Bytes of changes at which a decision accepts no further calls.
DECISION_BYTES = 1 << 20
#: Maximum number of calls, and of heartbeats, in one decision: the node does nothing else in the meantime.
DECISION_CALLS = 500
#: Retry interval of a decision that Raft did not accept (µs).
RETRY_US = 20_000
#: A parked heartbeat is answered after this fraction of the member's session at the latest: it has to send the next
#: one.
PARKED_SESSIONS = 3
#: A partitioned leader continues for at most this many election timeouts.
GRACE_ELECTIONS = 2
#: Interval between reviews of expired offsets (µs): at most this, and this many times within the retention.
EXPIRY_US = 600_000_000
EXPIRY_REVIEWS = 4
#: Bytes of calls of classic groups that may wait for others at one coordinator.
CLASSIC_CALL_BYTES = 64 << 20
#: Delay of the review of offsets after topics were deleted (µs): one review for many topics.
DELETED_US = 5_000_000


class CoordinatorCall(Protocol):
    """A call of a client that a coordinator decides, or that reads its state."""

    @property
    def group_id(self) -> str:
        """The consumer group; empty if the call is about all groups of a coordinator."""

    def decide(self, draft: Draft) -> ProtoMessage | None:
        """Decides on a draft and returns the answer; None if the call was queued elsewhere and is answered from
        there."""

    def answer(self, response: ProtoMessage) -> None:
        """Receives the answer once it is applied."""

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Receives the error if the call is not decided."""


Waiter: TypeAlias = CoordinatorCall | HeartbeatCall


@dataclass(slots=True, frozen=True)
class LeadershipOptions:
    """Bounds of one leadership.

    Arguments:
        limits: limits for requests of members.
        max_calls: maximum number of calls that may wait for a decision, and of heartbeats that may.
        max_parked: maximum number of heartbeats that may wait for changes.
        offsets_retention_ms: retention of committed offsets without a reader.
        grace_us: maximum time that another leader may have continued after this one started to lead. Members may have
            had answers from it, and count their sessions from those.
    """

    limits: ConsumerGroupLimits
    max_calls: int
    max_parked: int
    offsets_retention_ms: int
    grace_us: int

    @classmethod
    def of_node(cls, options: NodeOptions) -> LeadershipOptions:
        """Returns the bounds for a node with these options."""
        return cls(
            limits=options.groups.limits,
            max_calls=options.limits.group_calls,
            max_parked=options.limits.parked_heartbeats,
            offsets_retention_ms=options.groups.offsets_retention_ms,
            grace_us=GRACE_ELECTIONS * options.raft.election_timeout_us,
        )

    @property
    def expiry_interval_us(self) -> int:
        """Interval between reviews of offsets."""
        return min(EXPIRY_US, self.offsets_retention_ms * 1000 // EXPIRY_REVIEWS)


@dataclass(slots=True, frozen=True)
class _Decision:
    """A command in flight, and the calls that wait for it. The answer None is that of a heartbeat without changes."""

    index: int
    waiting: list[tuple[Waiter, ProtoMessage | None]]


@dataclass(slots=True, frozen=True)
class _Read:
    """A call that only reads, and waits until the commit index at its arrival is confirmed and applied."""

    confirming_round: int
    index: int
    call: CoordinatorCall


class ShardLeader:
    """One term of one coordinator.

    Arguments:
        clock: clock shared by the node's coordinators.
        metadata: the topics in this node's metadata.
        authorizer: decides what members may read; None if they may read everything.

    Attributes:
        is_doubtful: the node was stalled, and has not yet asked for a confirmation of its leadership.
    """

    def __init__(
        self,
        coordinator: GroupShard,
        clock: AwakeClock,
        metadata: CurrentImage,
        options: LeadershipOptions,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._authorizer = authorizer
        self.coordinator = coordinator
        self.term = coordinator.raft.term
        self.is_doubtful = False
        self._clock = clock
        self._metadata = metadata
        self._options = options
        self._calls: deque[CoordinatorCall] = deque()
        self._heartbeats: deque[HeartbeatCall] = deque()
        self._reviews: dict[tuple[str, Review], None] = {}
        self._reads: list[_Read] = []
        self._parked = ParkedHeartbeats()
        #: By consumer group and member: number of the newest heartbeat that arrived. If there are too many, the members
        #: without a heartbeat for the longest time are forgotten first.
        self._newest: dict[tuple[str, str], int] = {}
        #: Number of member ids assigned here. A term has one leader: no other leader assigns an id with the same
        #: prefix.
        self._named = 0
        self._decision: _Decision | None = None
        self._retry_at = 0
        self._unconfirmed = 0
        self._expiry_due = clock.awake_us + options.expiry_interval_us
        self._timers = MemberTimers()
        for group in coordinator.table.groups.values():
            for member in group.members.values():
                self._timers.track(clock.awake_us + options.grace_us, group.group_id, member)
        # A term has one leader: no other leader assigns an id with the same prefix.
        bounds = ClassicBounds(options.max_parked, CLASSIC_CALL_BYTES, options.grace_us, str(self.term))
        self.classic = ClassicDecisions(clock, bounds, authorizer)
        self._begin_classic()

    def keep_offsets_for(self, retention_ms: int) -> None:
        """Changes how long unused committed offsets are kept, from now on."""
        self._options = replace(self._options, offsets_retention_ms=retention_ms)
        self._expiry_due = min(self._expiry_due, self._clock.awake_us + self._options.expiry_interval_us)

    @property
    def table(self) -> GroupTable:
        """The consumer groups as the log has made them."""
        return self.coordinator.table

    @property
    def members(self) -> int:
        """Number of members in all consumer groups."""
        return len(self._timers) + self.classic.members

    @property
    def parked(self) -> int:
        """Number of heartbeats that wait for changes, and of calls of classic groups that wait for others."""
        return len(self._parked) + len(self.classic.rounds)

    # -- incoming calls ---------------------------------------------------------------------------------------

    def heartbeat(self, call: HeartbeatCall) -> None:
        """Queues a heartbeat; call ``decide`` afterwards. A parked one of the same member is answered, because its
        client has moved on."""
        request = call.request
        if request.HasField("omitted"):
            self._name(request)
        key = (request.group_id, request.member_id)
        newest = self._newest.pop(key, -1)
        self._newest[key] = max(newest, request.correlation_id)
        if request.correlation_id <= newest and not request.HasField("omitted"):
            # If it were decided now, it could report an outdated state of the member's partitions.
            late = f"heartbeat {request.correlation_id} of this member arrived after {newest}: number them upwards"
            call.refuse(error(ErrorCode.INVALID_REQUEST, late))
            return
        if len(self._newest) > 2 * self._options.max_parked:
            del self._newest[next(iter(self._newest))]
        earlier = self._parked.take_of_member(*key)
        if earlier is not None:
            self._answer_nothing_new(earlier)
        if len(self._heartbeats) >= self._options.max_calls:
            call.refuse(
                error(ErrorCode.SERVER_BUSY, f"{len(self._heartbeats)} heartbeats wait here already: try again later")
            )
            return
        self._timers.heard(self._clock.awake_us, *key)
        self._heartbeats.append(call)

    def _name(self, request: GroupHeartbeatRequest) -> None:
        """Assigns an id to a member that joins without one, as Kafka's older clients do."""
        if not request.member_id and request.member_epoch == JOIN_EPOCH:
            self._named += 1
            request.member_id = f"{self.term}-{self._named}"

    def submit(self, call: CoordinatorCall) -> None:
        """Queues a call that may change something; call ``decide`` afterwards."""
        if len(self._calls) >= self._options.max_calls:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._calls)} calls of groups wait here; try again later"))
        else:
            self._calls.append(call)

    def read(self, call: CoordinatorCall, confirming_round: int) -> None:
        """Queues a call that changes nothing.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms that this node still leads.
        """
        self._reads.append(_Read(confirming_round, self.coordinator.raft.commit_index, call))

    def topics_changed(self, *, is_deletion: bool) -> None:
        """Reviews all groups, because this node's topics changed, or may differ from those of the previous leader."""
        self._review_all(Review.TOPICS)
        if is_deletion:
            self._expiry_due = min(self._expiry_due, self._clock.awake_us + DELETED_US)

    def rights_changed(self) -> None:
        """Reviews all groups after a change of ACLs."""
        self._review_all(Review.RIGHTS)

    def _review_all(self, review: Review) -> None:
        """Schedules one review of each consumer group, however often it is requested before."""
        self._reviews.update(dict.fromkeys((group_id, review) for group_id in self.table.groups))

    def client_gone(self, request_id: int) -> None:
        """Forgets a request whose client is gone."""
        self._parked.take_request(request_id)
        self.classic.client_gone(request_id)

    # -- certainty --------------------------------------------------------------------------------------------

    def confirm_by(self, confirming_round: int) -> None:
        """Suspends answers after a stall of the node until a quorum has confirmed that no other node leads.

        Otherwise a member that only this leader reaches would count a new session from the answer, after the next
        leader has given its partitions away.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms it.
        """
        self.is_doubtful = False
        self._unconfirmed = confirming_round

    @property
    def is_certain(self) -> bool:
        """True if this node's leadership is confirmed since it was last in doubt."""
        return self.coordinator.raft.confirmed_round >= self._unconfirmed

    # -- decisions --------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> bool:
        """Answers, reviews and decides what is due. Returns True if it proposed a command."""
        for call in self._parked.take_due(self._clock.awake_us):
            self._answer_nothing_new(call)
        if self._clock.awake_us >= self._expiry_due:
            self._expiry_due = self._clock.awake_us + self._options.expiry_interval_us
            self._review_all(Review.OFFSETS)
        return self.decide()

    def decide(self) -> bool:
        """Decides the queued calls, unless a decision is in flight. Returns True if it proposed a command."""
        due = self.decision_due
        if due is None or due > self._clock.awake_us:
            return False
        # All of them change one draft, and later calls see what earlier ones have changed. The log gets one command.
        draft = self._draft()
        calls = self._decide_calls(draft)
        reviews = self._decide_reviews(draft)
        batch: list[HeartbeatCall] = []
        if not self._calls and not self._reviews:
            # Heartbeats come last, all together: the assignment is computed once for all changes. A member whose
            # heartbeat has arrived is not silent, however late its heartbeat is decided.
            self._expire_members(draft)
            self.classic.on_time(draft)
            batch = [self._heartbeats.popleft() for _ in range(min(len(self._heartbeats), DECISION_CALLS))]
        self.classic.settle(draft)
        calls.extend(self.classic.take_answers())
        answers = heartbeats(draft, [(call.request, call.client) for call in batch])
        decided: list[tuple[Waiter, ProtoMessage | None]] = [*calls, *zip(batch, answers, strict=True)]
        command = draft.command()
        index = None
        if command is not None:
            index = self.coordinator.propose(self._clock.now, command)
            if index is None:
                # Raft accepts nothing now (a leadership transfer, a full log): the queues are as they were before, in
                # the same order. The draft is dropped, so nothing that was decided has happened.
                self._calls.extendleft(call for call, _ in reversed(calls))
                self._heartbeats.extendleft(reversed(batch))
                self._reviews.update(dict.fromkeys(reviews))
                self._begin_classic()
                self._retry_at = self._clock.awake_us + RETRY_US
                return False
            # Answers about changed groups wait until the command is applied: another leader may take over before it is
            # committed, and its groups would contradict the answer.
            self._decision = _Decision(index, [each for each in decided if draft.changed(each[0].group_id)])
        for waiter, answer in decided:
            if index is None or not draft.changed(waiter.group_id):
                self._answer(waiter, answer)
        return index is not None

    def _draft(self) -> Draft:
        image = self._metadata.image
        # Nodes of the first feature level reject a group whose versions start later than at 1.
        applied = self.coordinator.raft.applied_index if image.feature_level >= SECOND_FEATURE_LEVEL else 0
        return Draft(
            self.table, ImageCatalog(image), self._options.limits, self._clock.wall_ms, applied, self._authorizer,
            has_classic_groups=image.feature_level >= SECOND_FEATURE_LEVEL,
        )  # fmt: skip

    def _decide_calls(self, draft: Draft) -> list[tuple[CoordinatorCall, ProtoMessage]]:
        decided: list[tuple[CoordinatorCall, ProtoMessage]] = []
        while self._calls and len(decided) < DECISION_CALLS and draft.size_bytes < DECISION_BYTES:
            call = self._calls.popleft()
            answer = call.decide(draft)
            if answer is not None:
                decided.append((call, answer))
        return decided

    def _begin_classic(self) -> None:
        """Starts or restarts the sessions and rounds of classic groups: calls that waited are decided again."""
        groups = self.table.groups.values()
        classic = ((group.group_id, group.classic) for group in groups if group.classic is not None)
        self._calls.extend(self.classic.begin(classic, self._options.limits))

    def _decide_reviews(self, draft: Draft) -> list[tuple[str, Review]]:
        reviews = list(islice(self._reviews, DECISION_CALLS))
        for group_id, review in reviews:
            if review is Review.TOPICS:
                topics_changed(draft, group_id)
            elif review is Review.RIGHTS:
                rights_changed(draft, group_id)
            else:
                expire_offsets(draft, group_id, self._options.offsets_retention_ms)
            del self._reviews[group_id, review]
        return reviews

    def _expire_members(self, draft: Draft) -> None:
        for group_id, member_id, epoch in self._timers.take_due(self._clock.awake_us):
            if epoch is None:
                expire_session(draft, group_id, member_id)
            else:
                expire_rebalance(draft, group_id, member_id, epoch)

    # -- answers ----------------------------------------------------------------------------------------------

    def applied(self, index: int, term: int, command: GroupCommand, changed: set[str]) -> None:
        """Handles an applied command: this leader's own, or one that its predecessor had left in the log."""
        for change in command.changes:
            for member_id in change.removed_members:
                self._timers.forget(change.group_id, member_id)
            self._track(change.group_id, [member.member_id for member in change.members])
            group = self.table.groups.get(change.group_id)
            if change.HasField("classic") or change.ends_classic or group is None:
                now = group.classic if group is not None else None
                gone = (*change.classic.removed_members, *change.ended_members)
                self.classic.applied(change.group_id, gone, now, self._options.limits)
            if not change.base_version and change.group_id in self.table.groups:
                # Topics changed between the decision and now were not reviewed for this group, which did not exist yet.
                self._reviews[change.group_id, Review.TOPICS] = None
        decision = self._decision
        if decision is not None and (index, term) == (decision.index, self.term):
            self._decision = None
            for waiter, answer in decision.waiting:
                self._answer(waiter, answer)
        for group_id in sorted(changed):
            self._decide_parked_again(group_id)

    def _track(self, group_id: str, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self._timers.track(self._clock.awake_us, group_id, self.table.groups[group_id].members[member_id])

    def _answer(self, waiter: Waiter, answer: ProtoMessage | None) -> None:
        if answer is not None:
            waiter.answer(answer)
        else:
            assert isinstance(waiter, HeartbeatCall), "only a heartbeat may wait for changes"
            self._park(waiter)

    def _park(self, call: HeartbeatCall) -> None:
        """Parks a heartbeat, because there are no changes for its member yet."""
        request = call.request
        # Two heartbeats of one number can be here, because the newest numbers of long silent members are forgotten.
        earlier = self._parked.take_of_member(request.group_id, request.member_id)
        if earlier is not None:
            self._answer_nothing_new(earlier)
        session_ms = request.session_timeout_ms or self._options.limits.usual_session_ms
        call.deadline = min(call.deadline, call.came + session_ms * 1000 // PARKED_SESSIONS)
        newest = self._newest.get((request.group_id, request.member_id))
        if call.deadline <= self._clock.awake_us or newest not in (None, request.correlation_id):
            self._answer_nothing_new(call)
        elif len(self._parked) >= self._options.max_parked:
            busy = f"{len(self._parked)} heartbeats wait here: try again after a pause"
            call.refuse(error(ErrorCode.SERVER_BUSY, busy))
        else:
            self._parked.park(call)

    def _answer_nothing_new(self, call: HeartbeatCall) -> None:
        request = call.request
        group = self.table.groups.get(request.group_id)
        if group is not None and request.member_id in group.members:
            call.answer(nothing_new(group, request, self._options.limits))
        else:
            gone = f"member {request.member_id} has left the group: join again"
            call.refuse(error(ErrorCode.UNKNOWN_MEMBER_ID, gone))

    def _decide_parked_again(self, group_id: str) -> None:
        """Queues the parked heartbeats of a changed consumer group again, for members that may be affected."""
        group = self.table.groups.get(group_id)
        concerned = [call for call in self._parked.of_group(group_id) if _may_be_news(group, call.request.member_id)]
        for call in concerned:
            self._parked.take_request(call.request_id)
        self._heartbeats.extend(concerned)

    # -- events -----------------------------------------------------------------------------------------------

    def after_round(self) -> None:
        """Answers reads that a step of the coordinator's Raft group has confirmed."""
        if not self._reads:
            return
        raft = self.coordinator.raft
        still = []
        for each in self._reads:
            if each.confirming_round <= raft.confirmed_round and each.index <= raft.applied_index:
                answer = each.call.decide(self._draft())
                assert answer is not None, "a read does not wait for other calls"
                each.call.answer(answer)
            else:
                still.append(each)
        self._reads = still

    @property
    def decision_due(self) -> int | None:
        """Time at which ``decide`` is due, on the awake clock."""
        if self._decision is not None or not self.is_certain:
            return None
        due: int | None = self._clock.awake_us
        if not (self._calls or self._heartbeats or self._reviews):
            due = earlier(self._timers.next_deadline, self.classic.next_deadline)
        return None if due is None else max(due, self._retry_at)

    @property
    def next_deadline(self) -> int:
        """Time at which ``do_what_is_due`` is due, on the awake clock."""
        due = (self.decision_due, self._parked.next_deadline, self._expiry_due)
        return min(deadline for deadline in due if deadline is not None)

    def end(self) -> None:
        """Ends the leadership: all waiting clients are sent to the next leader."""
        definite = self.coordinator.not_coordinator(definite=True)
        waiting: list[Waiter] = [*self._calls, *self._heartbeats, *(each.call for each in self._reads)]
        waiting.extend(self.classic.rounds.take_all())
        for waiter in waiting:
            waiter.refuse(definite)
        self._calls.clear()
        self._heartbeats.clear()
        self._reviews.clear()
        self._reads.clear()
        decision, self._decision = self._decision, None
        if decision is not None:
            indefinite = self.coordinator.not_coordinator(definite=False)
            for waiter, _ in decision.waiting:
                waiter.refuse(indefinite)
        for call in self._parked.take_all():
            call.refuse(definite)


def _may_be_news(group: ConsumerGroup | None, member_id: str) -> bool:
    """True if a change of a consumer group may affect a member: not if it has exactly its part of the newest
    assignment.

    Otherwise every release of a partition would cost a look at each of a thousand members.
    """
    member = group.members.get(member_id) if group is not None else None
    return group is None or member is None or not group.has_arrived(member)
