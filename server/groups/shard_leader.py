"""A coordinator's leader: it decides calls together, one decision at a time, and answers when that is applied.

Calls gather while a decision is on its way through Raft. They are decided in the order in which they came, each on what
those before it have made of the state (a draft), and what has changed in the end is one command for the log. So a
thousand members that arrive together cost a few writes. A call that changed nothing, in a consumer group that nobody
has changed, is answered at once. A heartbeat that brings its member no news is parked until there is some.

Nothing here outlives the leadership: sessions begin anew with the next leader, and everyone who waits is sent to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
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

#: Bytes of changes at which a decision takes no further calls.
DECISION_BYTES = 1 << 20
#: Calls, and heartbeats, decided in one go: the node does nothing else meanwhile.
DECISION_CALLS = 500
#: How soon a decision that Raft would not take is tried again (µs).
RETRY_US = 20_000
#: A parked heartbeat is answered after this part of the member's session at the latest: it has to send the next one.
PARKED_SESSIONS = 3
#: A leader that was cut off goes on for at most so many election timeouts.
GRACE_ELECTIONS = 2
#: How often a leader reviews offsets that have expired (µs): as often as this, and within their time.
EXPIRY_US = 600_000_000
EXPIRY_REVIEWS = 4
#: Bytes of calls of classic groups that may wait for others at one coordinator.
CLASSIC_CALL_BYTES = 64 << 20
#: When topics were deleted, their offsets are reviewed after this (µs): one review for many topics.
DELETED_US = 5_000_000


class CoordinatorCall(Protocol):
    """Something that a client wants to be decided of one consumer group, or to be read."""

    @property
    def group_id(self) -> str:
        """The consumer group; empty where it is about all of a coordinator's."""

    def decide(self, draft: Draft) -> ProtoMessage | None:
        """Decides on a draft, and says what to answer; None: whoever decides it keeps it."""

    def answer(self, response: ProtoMessage) -> None:
        """Takes the answer once what it says is so."""

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Takes the reason why there is none."""


Waiter: TypeAlias = CoordinatorCall | HeartbeatCall


@dataclass(slots=True, frozen=True)
class LeadershipOptions:
    """Bounds of one leadership.

    Arguments:
        limits: what members may ask for.
        max_calls: that may wait to be decided; as many heartbeats may besides.
        max_parked: heartbeats that may wait for news.
        offsets_retention_ms: how long committed offsets are kept that nobody needs.
        grace_us: for how long another leader may have gone on after this one began to lead. Members may have heard from
            it, and count their sessions from that.
    """

    limits: ConsumerGroupLimits
    max_calls: int
    max_parked: int
    offsets_retention_ms: int
    grace_us: int

    @classmethod
    def of_node(cls, options: NodeOptions) -> LeadershipOptions:
        """Those of a node with these options."""
        return cls(
            limits=options.groups.limits,
            max_calls=options.limits.group_calls,
            max_parked=options.limits.parked_heartbeats,
            offsets_retention_ms=options.groups.offsets_retention_ms,
            grace_us=GRACE_ELECTIONS * options.raft.election_timeout_us,
        )

    @property
    def expiry_interval_us(self) -> int:
        """How often offsets are reviewed."""
        return min(EXPIRY_US, self.offsets_retention_ms * 1000 // EXPIRY_REVIEWS)


@dataclass(slots=True, frozen=True)
class _Decision:
    """A command that is on its way, and who waits for it. The answer None is that of a heartbeat without news."""

    index: int
    waiting: list[tuple[Waiter, ProtoMessage | None]]


@dataclass(slots=True, frozen=True)
class _Read:
    """A call that only reads, and waits until it is certain what was committed when it came."""

    confirming_round: int
    index: int
    call: CoordinatorCall


class ShardLeader:
    """One term of one coordinator.

    Arguments:
        clock: the node's, shared.
        metadata: the topics as this node knows them.
        authorizer: decides what members may read; None: everything.

    Attributes:
        is_doubtful: the node stood still, and has not asked yet whether it still leads.
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
        #: By consumer group and member: the newest heartbeat that came. Those of members that are no more are forgotten
        #: in the order in which they were heard, when there are too many.
        self._newest: dict[tuple[str, str], int] = {}
        #: How many members got an id here. A term has one leader: no other one gives an id that begins so.
        self._named = 0
        self._decision: _Decision | None = None
        self._retry_at = 0
        self._unconfirmed = 0
        self._expiry_due = clock.awake_us + options.expiry_interval_us
        self._timers = MemberTimers()
        for group in coordinator.table.groups.values():
            for member in group.members.values():
                self._timers.track(clock.awake_us + options.grace_us, group.group_id, member)
        # A term has one leader: no other one gives an id that begins so.
        bounds = ClassicBounds(options.max_parked, CLASSIC_CALL_BYTES, options.grace_us, str(self.term))
        self.classic = ClassicDecisions(clock, bounds, authorizer)
        self._begin_classic()

    @property
    def table(self) -> GroupTable:
        """The consumer groups as the log has made them."""
        return self.coordinator.table

    @property
    def members(self) -> int:
        """How many members all consumer groups have together."""
        return len(self._timers) + self.classic.members

    @property
    def parked(self) -> int:
        """How many heartbeats wait for news; of classic groups, how many calls wait for others."""
        return len(self._parked) + len(self.classic.rounds)

    # -- what comes -------------------------------------------------------------------------------------------

    def heartbeat(self, call: HeartbeatCall) -> None:
        """A heartbeat came; ``decide`` is to follow. One of the same member that is parked here is answered: its client
        has moved on."""
        request = call.request
        if request.HasField("omitted"):
            self._name(request)
        key = (request.group_id, request.member_id)
        newest = self._newest.pop(key, -1)
        self._newest[key] = max(newest, request.correlation_id)
        if request.correlation_id <= newest and not request.HasField("omitted"):
            # Decided late, it could say of the member's partitions what has long been otherwise.
            late = f"heartbeat {request.correlation_id} of this member comes after {newest}: number them upwards"
            call.refuse(error(ErrorCode.INVALID_REQUEST, late))
            return
        if len(self._newest) > 2 * self._options.max_parked:
            del self._newest[next(iter(self._newest))]
        earlier = self._parked.take_of_member(*key)
        if earlier is not None:
            self._answer_nothing_new(earlier)
        if len(self._heartbeats) >= self._options.max_calls:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._heartbeats)} heartbeats wait here: try again later"))
            return
        self._timers.heard(self._clock.awake_us, *key)
        self._heartbeats.append(call)

    def _name(self, request: GroupHeartbeatRequest) -> None:
        """Gives a member an id that joins without one, as Kafka's older clients do."""
        if not request.member_id and request.member_epoch == JOIN_EPOCH:
            self._named += 1
            request.member_id = f"{self.term}-{self._named}"

    def submit(self, call: CoordinatorCall) -> None:
        """Takes a call that may change something; ``decide`` is to follow."""
        if len(self._calls) >= self._options.max_calls:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._calls)} calls of groups wait here; try again later"))
        else:
            self._calls.append(call)

    def read(self, call: CoordinatorCall, confirming_round: int) -> None:
        """Takes a call that changes nothing.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms that this node still leads.
        """
        self._reads.append(_Read(confirming_round, self.coordinator.raft.commit_index, call))

    def topics_changed(self, *, is_deletion: bool) -> None:
        """This node's topics are others than before, or may be others than the leader before knew."""
        self._review_all(Review.TOPICS)
        if is_deletion:
            self._expiry_due = min(self._expiry_due, self._clock.awake_us + DELETED_US)

    def rights_changed(self) -> None:
        """Rules of who may do what have changed."""
        self._review_all(Review.RIGHTS)

    def _review_all(self, review: Review) -> None:
        """Has each consumer group reviewed, once, however often that is asked for until then."""
        self._reviews.update(dict.fromkeys((group_id, review) for group_id in self.table.groups))

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._parked.take_request(request_id)
        self.classic.client_gone(request_id)

    # -- certainty --------------------------------------------------------------------------------------------

    def confirm_by(self, confirming_round: int) -> None:
        """The node stood still, and others may lead since: nothing is said before a quorum has confirmed that not.

        Otherwise a member that only this leader hears would count a new session from the answer, while the next leader
        has long given its partitions away.

        Arguments:
            confirming_round: the round of Raft heartbeats that confirms it.
        """
        self.is_doubtful = False
        self._unconfirmed = confirming_round

    @property
    def is_certain(self) -> bool:
        """Whether this node led when it was last in doubt."""
        return self.coordinator.raft.confirmed_round >= self._unconfirmed

    # -- decisions --------------------------------------------------------------------------------------------

    def do_what_is_due(self) -> bool:
        """Answers, reviews and decides as far as that is due. Returns whether there is something for the log."""
        for call in self._parked.take_due(self._clock.awake_us):
            self._answer_nothing_new(call)
        if self._clock.awake_us >= self._expiry_due:
            self._expiry_due = self._clock.awake_us + self._options.expiry_interval_us
            self._review_all(Review.OFFSETS)
        return self.decide()

    def decide(self) -> bool:
        """Decides what waits, unless a decision is on its way. Returns whether there is something for the log."""
        due = self.decision_due
        if due is None or due > self._clock.awake_us:
            return False
        draft = self._draft()
        calls = self._decide_calls(draft)
        reviews = self._decide_reviews(draft)
        batch: list[HeartbeatCall] = []
        if not self._calls and not self._reviews:
            # Heartbeats come last, all together: what a member is to have is computed once for all that has changed.
            # Whoever was heard by now is not silent, however late its heartbeat is decided.
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
                self._calls.extendleft(call for call, _ in reversed(calls))
                self._heartbeats.extendleft(reversed(batch))
                self._reviews.update(dict.fromkeys(reviews))
                self._begin_classic()
                self._retry_at = self._clock.awake_us + RETRY_US
                return False
            self._decision = _Decision(index, [each for each in decided if draft.changed(each[0].group_id)])
        for waiter, answer in decided:
            if index is None or not draft.changed(waiter.group_id):
                self._answer(waiter, answer)
        return index is not None

    def _draft(self) -> Draft:
        image = self._metadata.image
        # Nodes of the first feature level take no group whose versions begin later than at 1.
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
        """Sessions and rounds of classic groups begin, or begin anew: what waited is decided again."""
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
        """A command was applied: this leader's own, or one that its predecessor had left in the log."""
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
                # When topics came after the decision and before now, there was no such group to be reviewed.
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
            assert isinstance(waiter, HeartbeatCall), "only a heartbeat may wait for news"
            self._park(waiter)

    def _park(self, call: HeartbeatCall) -> None:
        """There is nothing to tell a member, yet."""
        request = call.request
        # Two of one number can be here: of the members that were heard of longest ago, the newest number is forgotten.
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
            gone = f"member {request.member_id} has left the group: join anew"
            call.refuse(error(ErrorCode.UNKNOWN_MEMBER_ID, gone))

    def _decide_parked_again(self, group_id: str) -> None:
        """A consumer group has changed: those of its members for whom that may be news are decided on again."""
        group = self.table.groups.get(group_id)
        concerned = [call for call in self._parked.of_group(group_id) if _may_be_news(group, call.request.member_id)]
        for call in concerned:
            self._parked.take_request(call.request_id)
        self._heartbeats.extend(concerned)

    # -- what happens meanwhile -------------------------------------------------------------------------------

    def after_round(self) -> None:
        """The coordinator's Raft group was stepped: reads may be certain by now."""
        if not self._reads:
            return
        raft = self.coordinator.raft
        still = []
        for each in self._reads:
            if each.confirming_round <= raft.confirmed_round and each.index <= raft.applied_index:
                answer = each.call.decide(self._draft())
                assert answer is not None, "a read waits for nobody else"
                each.call.answer(answer)
            else:
                still.append(each)
        self._reads = still

    @property
    def decision_due(self) -> int | None:
        """When ``decide`` is due, on the awake clock."""
        if self._decision is not None or not self.is_certain:
            return None
        due: int | None = self._clock.awake_us
        if not (self._calls or self._heartbeats or self._reviews):
            due = earlier(self._timers.next_deadline, self.classic.next_deadline)
        return None if due is None else max(due, self._retry_at)

    @property
    def next_deadline(self) -> int:
        """When ``do_what_is_due`` is due, on the awake clock."""
        due = (self.decision_due, self._parked.next_deadline, self._expiry_due)
        return min(deadline for deadline in due if deadline is not None)

    def end(self) -> None:
        """The leadership is over: everyone who waits is sent to the next leader."""
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
    """Whether a change of a consumer group can be news for a member: not for one that has all that the newest
    assignment gives it. Otherwise each of a thousand members would be looked at for each thing that another one
    releases."""
    member = group.members.get(member_id) if group is not None else None
    return group is None or member is None or not group.has_arrived(member)
