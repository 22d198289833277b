"""The leader of a coordinator of consumer groups, during one term.

It decides the queued calls together (`DecisionQueue`), and with them heartbeats, timeouts and periodic checks. A
heartbeat without changes for its member is parked until there are some. The assignment is computed once for a thousand
members that arrive together.

No state here outlives the leadership: sessions restart with the next leader, and every waiting client is sent to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.deciding.connection_fence import ConnectionFence
from quorumlog.server.deciding.decision_queue import DECISION_CALLS, AgendaDecisions, DecisionQueue, WaitingCall
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.groups.classic.decisions import ClassicBounds, ClassicDecisions
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.enlisted_groups import EnlistedGroups
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeats, nothing_new
from quorumlog.server.groups.member import JOIN_EPOCH
from quorumlog.server.groups.member_changes import expire_rebalance, expire_session
from quorumlog.server.groups.member_timers import MemberTimers
from quorumlog.server.groups.parked_heartbeats import HeartbeatCall, ParkedHeartbeats
from quorumlog.server.groups.periodic_checks import Review, expire_offsets, rights_changed, topics_changed
from quorumlog.server.groups.topic_catalog import ImageCatalog
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest

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


class ShardLeader:
    """One term of one coordinator: the agenda of its `DecisionQueue`, and the calls of members.

    Arguments:
        clock: clock shared by the node's coordinators.
        metadata: the topics in this node's metadata.
        authorizer: decides what members may read; None if they may read everything.

    Attributes:
        queue: decides the calls of clients, and what is due here.
        classic: the leader's part of classic groups.
        enlisted: the transactions in which the groups take part.
        fence: the connections of producers that commit offsets in transactions, and keep their epoch.
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
        self.queue: DecisionQueue[Draft] = DecisionQueue(coordinator, clock, self, options.max_calls)
        self.enlisted = EnlistedGroups()
        self.fence = ConnectionFence(clock.now)
        self._clock = clock
        self._metadata = metadata
        self._options = options
        self._heartbeats: deque[HeartbeatCall] = deque()
        self._reviews: dict[tuple[str, Review], None] = {}
        self._parked = ParkedHeartbeats()
        #: By consumer group and member: number of the newest heartbeat that arrived. If there are too many, the members
        #: without a heartbeat for the longest time are forgotten first.
        self._newest: dict[tuple[str, str], int] = {}
        #: Number of member ids assigned here. A term has one leader: no other leader assigns an id with the same
        #: prefix.
        self._named = 0
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
    def term(self) -> int:
        """The Raft term in which it leads."""
        return self.queue.term

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
        """Queues a heartbeat; call ``do_what_is_due`` afterwards. A parked one of the same member is answered, because
        its client has moved on."""
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

    # -- decisions --------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> bool:
        """Answers, reviews and decides what is due. Returns True if it proposed a command."""
        for call in self._parked.take_due(self._clock.awake_us):
            self._answer_nothing_new(call)
        if self._clock.awake_us >= self._expiry_due:
            self._expiry_due = self._clock.awake_us + self._options.expiry_interval_us
            self._review_all(Review.OFFSETS)
        return self.queue.decide()

    @property
    def decision_due(self) -> int | None:
        """Time at which something is due to be decided beside the queued calls, on the awake clock."""
        if self._heartbeats or self._reviews:
            return self._clock.awake_us
        return earlier(self._timers.next_deadline, self.classic.next_deadline)

    def decide(self, draft: Draft, *, calls_left: bool) -> AgendaDecisions[Draft]:
        """Decides reviews; then, unless calls or reviews are left, timeouts and heartbeats."""
        reviews = self._decide_reviews(draft)
        batch: list[HeartbeatCall] = []
        if not calls_left and not self._reviews:
            # Heartbeats come last, all together: the assignment is computed once for all changes. A member whose
            # heartbeat has arrived is not silent, however late its heartbeat is decided.
            self._expire_members(draft)
            self.classic.on_time(draft)
            batch = [self._heartbeats.popleft() for _ in range(min(len(self._heartbeats), DECISION_CALLS))]
        self.classic.settle(draft)
        calls = self.classic.take_answers()
        answers = heartbeats(draft, [(call.request, call.client) for call in batch])
        return AgendaDecisions([*calls], [*zip(batch, answers, strict=True)], partial(self._put_back, reviews, batch))

    def _put_back(self, reviews: Iterable[tuple[str, Review]], batch: Sequence[HeartbeatCall]) -> None:
        self._heartbeats.extendleft(reversed(batch))
        self._reviews.update(dict.fromkeys(reviews))
        self._begin_classic()

    def draft(self) -> Draft:
        """Returns a draft without changes over the consumer groups."""
        image = self._metadata.image
        # Nodes of the first feature level reject a group whose versions start later than at 1.
        applied = self.coordinator.raft.applied_index if image.feature_level >= SECOND_FEATURE_LEVEL else 0
        return Draft(
            self.table, ImageCatalog(image), self._options.limits, self._clock.wall_ms, applied, self._authorizer,
            has_classic_groups=image.feature_level >= SECOND_FEATURE_LEVEL,
        )  # fmt: skip

    def _begin_classic(self) -> None:
        """Starts or restarts the sessions and rounds of classic groups: calls that waited are decided again."""
        groups = self.table.groups.values()
        classic = ((group.group_id, group.classic) for group in groups if group.classic is not None)
        self.queue.submit_again(self.classic.begin(classic, self._options.limits))

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
        self.queue.applied(index, term)
        for group_id in sorted(changed):
            self._decide_parked_again(group_id)

    def _track(self, group_id: str, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self._timers.track(self._clock.awake_us, group_id, self.table.groups[group_id].members[member_id])

    def keep(self, waiter: WaitingCall) -> None:
        """Parks a heartbeat that was decided without changes for its member."""
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

    @property
    def next_deadline(self) -> int:
        """Time at which ``do_what_is_due`` is due, on the awake clock."""
        due = (self.queue.decision_due, self._parked.next_deadline, self._expiry_due)
        return min(deadline for deadline in due if deadline is not None)

    def end(self) -> None:
        """Ends the leadership: all waiting clients are sent to the next leader."""
        definite = self.queue.end(self._heartbeats, self.classic.rounds.take_all())
        self._heartbeats.clear()
        self._reviews.clear()
        for call in self._parked.take_all():
            call.refuse(definite)


def _may_be_news(group: ConsumerGroup | None, member_id: str) -> bool:
    """True if a change of a consumer group may affect a member: not if it has exactly its part of the newest
    assignment.

    Otherwise every release of a partition would cost a look at each of a thousand members.
    """
    member = group.members.get(member_id) if group is not None else None
    return group is None or member is None or not group.has_arrived(member)
