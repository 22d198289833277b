"""A coordinator's decisions on classic groups. States and errors are those of Kafka's coordinator (KIP-345, KIP-394,
KIP-814).

A call that has to wait is kept in the leader's memory (`rounds`); the event it waits for becomes a change of the draft,
with answers that are sent once that is applied. If the log does not accept the change, all waiting calls are decided
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import not_authorized
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.classic import answers
from quorumlog.server.groups.classic.calls import ClassicCall, ClassicDraft
from quorumlog.server.groups.classic.classic_group import EMPTY, JOINING, STABLE, SYNCING, ClassicGroup, ClassicMember
from quorumlog.server.groups.classic.classic_records import NOTHING
from quorumlog.server.groups.classic.deadlines import Due
from quorumlog.server.groups.classic.joining import (
    Members,
    check_assignment,
    check_group,
    check_identity,
    check_others,
    check_room,
    holder_of,
    member_of_join,
)
from quorumlog.server.groups.classic.protocol_choice import choose_protocol
from quorumlog.server.groups.classic.request_forms import check_join, check_names
from quorumlog.server.groups.classic.rounds import ClassicRounds, JoinRound, longest_us
from quorumlog.server.groups.classic.subscription_metadata import wants_the_same
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_GROUP
from quorumlog.v1.errors_pb2 import ErrorCode

#: Bytes of a draft at which no further round is finished: the next decision does that.
DRAFT_BYTES = 1 << 20


class AwakeTime(Protocol):
    """Time in which heartbeats could have been received (µs); it stops while the node is stalled."""

    awake_us: int


@dataclass(slots=True, frozen=True)
class ClassicBounds:
    """Bounds of one leader's memory.

    Arguments:
        calls: maximum number of calls that may wait, and of ids assigned to members that have not joined with them yet.
        call_bytes: maximum size of all calls that wait.
        grace_us: maximum time that another leader may have continued after this one started.
        name: prefix of the ids that are assigned here; no other leader uses it.
    """

    calls: int
    call_bytes: int
    grace_us: int
    name: str


class ClassicDecisions:
    """Decides calls of classic groups for one leader of a coordinator's log.

    Arguments:
        clock: clock of sessions.
        authorizer: decides which members may still take part when a round ends; None if all may.
    """

    def __init__(self, clock: AwakeTime, bounds: ClassicBounds, authorizer: Authorizer | None = None) -> None:
        self.rounds = ClassicRounds()
        self._clock = clock
        self._bounds = bounds
        self._authorizer = authorizer
        self._born = clock.awake_us
        self._ids = 0
        #: Session timeouts by group and member (µs).
        self._sessions: dict[tuple[str, str], int] = {}
        #: Groups whose rounds may be complete.
        self._touched: dict[str, None] = {}
        self._answered: list[tuple[ClassicCall, ProtoMessage]] = []

    # -- calls --------------------------------------------------------------------------------------------------------

    def heard(self, group_id: str, member_id: str) -> None:
        """Extends the session of a member."""
        session_us = self._sessions.get((group_id, member_id))
        if session_us is not None:
            self.rounds.deadlines.put((Due.SESSION, group_id, member_id), self._clock.awake_us + session_us)

    def decide(self, draft: ClassicDraft, call: ClassicCall) -> ProtoMessage | None:
        """Decides a call; returns None if it waits, or if its client no longer does."""
        if not call.is_expected:
            return None
        request = call.request
        match request:
            case groups_pb2.JoinClassicGroupRequest():
                outcome = self._join(draft, call, request)
            case groups_pb2.SyncClassicGroupRequest():
                outcome = self._sync(draft, call, request)
            case groups_pb2.ClassicHeartbeatRequest():
                outcome = self._heartbeat(draft, request)
            case groups_pb2.LeaveClassicGroupRequest():
                outcome = self._leave(draft, request)
        return answers.refused(request, outcome) if isinstance(outcome, errors_pb2.Error) else outcome

    def take_answers(self) -> list[tuple[ClassicCall, ProtoMessage]]:
        """Removes and returns the answers to calls that have waited, for the current decision."""
        answered, self._answered = self._answered, []
        return answered

    def client_gone(self, request_id: int) -> None:
        """Forgets a request whose client is gone. If it was a join, that is withdrawn."""
        self.rounds.take_request(request_id)

    # -- joining ------------------------------------------------------------------------------------------------------

    def _join(
        self, draft: ClassicDraft, call: ClassicCall, request: groups_pb2.JoinClassicGroupRequest
    ) -> ProtoMessage | errors_pb2.Error | None:
        group_id = request.group_id
        refused = check_join(request, draft.limits) or check_group(draft, group_id) or self._check_busy()
        if refused is not None:
            return refused
        classic, joins = draft.classic(group_id) or NOTHING, self.rounds.joins(group_id)
        if call.member is None:
            refused = check_identity(request, classic, self.rounds) if request.member_id else None
            if refused is not None:
                return refused
            if not request.member_id and not request.instance_id and request.can_be_named_first:
                return self._name(draft, call, request, classic)
            member_id = request.member_id or self._new_id(request.instance_id or call.client.client_id)
            member = member_of_join(call, request, member_id, draft.limits)
        else:
            member = call.member
        former = holder_of(classic, joins, member.instance_id) if member.instance_id else None
        everyone: Members = {**classic.members, **joins}
        others = {key: each for key, each in everyone.items() if key not in (member.member_id, former)}
        joining = self.rounds.of(group_id)
        joining_type = joining.protocol_type if joining is not None else ""
        # A member that was alone may have joined with another type than the log has.
        common_type = (joining_type or classic.protocol_type) if others else ""
        before = classic.members.get(former or member.member_id)
        refused = check_others(request, common_type, member, others.values()) or check_room(
            draft, group_id, member, before, others
        )
        if refused is not None:
            return refused
        call.member = member
        if former is not None and former != member.member_id:
            return self._replace(draft, call, request, classic, former)
        return self._take_in(draft, call, classic)

    def _check_busy(self) -> errors_pb2.Error | None:
        """Returns the error if no further call may wait here now; None otherwise."""
        if len(self.rounds) < self._bounds.calls and self.rounds.waiting_bytes < self._bounds.call_bytes:
            return None
        return error(ErrorCode.SERVER_BUSY, f"{len(self.rounds)} members wait here already: try again later")

    def _new_id(self, name: str) -> str:
        self._ids += 1
        readable = "".join(letter for letter in name if letter.isprintable())[:100]
        return f"{readable or 'member'}-{self._bounds.name}-{self._ids}"

    def _name(
        self,
        draft: ClassicDraft,
        call: ClassicCall,
        request: groups_pb2.JoinClassicGroupRequest,
        classic: ClassicGroup,
    ) -> ProtoMessage | errors_pb2.Error:
        """Assigns an id to a new member, which counts once it has joined with it (KIP-394): otherwise each attempt of a
        client that does not receive its response would leave a member behind."""
        group_id, rounds = request.group_id, self.rounds
        if rounds.named_count >= self._bounds.calls:
            return error(
                ErrorCode.SERVER_BUSY, f"{rounds.named_count} members have yet to join with their ids: try again later"
            )
        if len(rounds.named(group_id)) + len(classic.members) >= draft.limits.members:
            return error(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {group_id} has {draft.limits.members} members, counting those about to join: stop others first",
            )
        member_id = self._new_id(call.client.client_id)
        rounds.name(group_id, member_id, self._clock.awake_us + request.session_timeout_ms * 1000)
        required = error(ErrorCode.MEMBER_ID_REQUIRED, f"join again as {member_id}")
        return answers.refused(request, required, member_id)

    def _replace(
        self,
        draft: ClassicDraft,
        call: ClassicCall,
        request: groups_pb2.JoinClassicGroupRequest,
        classic: ClassicGroup,
        former: str,
    ) -> ProtoMessage | None:
        """Replaces a static member by its new process (KIP-345); calls of the former process that wait are refused."""
        group_id, member = call.key, call.member
        assert member is not None
        fenced = answers.fenced_instance(group_id, member.instance_id)
        self._refuse(self.rounds.take_join(group_id, former), fenced)
        self._refuse(self.rounds.take_sync(group_id, former), fenced)
        known = classic.members.get(former)
        if known is None:
            return self._take_in(draft, call, classic)
        is_of_the_type = request.protocol_type == classic.protocol_type
        if classic.stage == STABLE and is_of_the_type and wants_the_same(classic, known, member):
            after = classic.replaced(former, member)
            draft.put_classic(group_id, after)
            return answers.came_back(after, member.member_id, former, can_skip=request.can_skip_assignment)
        after = classic.without([former])
        draft.put_classic(group_id, after)
        return self._take_in(draft, call, after)

    def _take_in(self, draft: ClassicDraft, call: ClassicCall, classic: ClassicGroup) -> ProtoMessage | None:
        """Joins a member, for the first time or again: it waits for the others, unless nothing has to change."""
        group_id, member = call.key, call.member
        assert member is not None
        known = classic.members.get(member.member_id)
        is_same = known is not None and known.protocols == member.protocols
        # The answer to its join was lost; or it joins without need, which only a leader may.
        if is_same and (classic.stage == SYNCING or (classic.stage == STABLE and classic.leader != member.member_id)):
            return answers.joined(classic, member.member_id)
        self._begin_round(draft, group_id, classic, member)
        earlier = self.rounds.park_join(call, member.member_id)
        self._refuse(earlier, answers.rebalancing(group_id))
        return None

    def _begin_round(
        self, draft: ClassicDraft, group_id: str, classic: ClassicGroup, joining: ClassicMember | None = None
    ) -> None:
        """Starts a round of joins, or continues the one that is under way."""
        if classic.stage != JOINING:
            draft.put_classic(group_id, classic.joining())
        for _, call in self.rounds.take_syncs(group_id):
            self._refuse(call, answers.rebalancing(group_id))
        is_first = classic.stage == EMPTY
        self._open_round(group_id, classic, draft.limits.initial_rebalance_delay_ms, is_first=is_first, joining=joining)
        self._touched[group_id] = None

    def _open_round(
        self,
        group_id: str,
        classic: ClassicGroup,
        delay_ms: int,
        *,
        is_first: bool,
        joining: ClassicMember | None = None,
    ) -> None:
        if self.rounds.of(group_id) is not None:
            return
        now = self._clock.awake_us
        limit = now + longest_us(classic, {"": joining} if joining is not None else {})
        # An earlier leader may still answer heartbeats for a moment: no member is left out within it.
        due = min(limit, now + delay_ms * 1000) if is_first else max(limit, self._born + self._bounds.grace_us)
        self.rounds.open(group_id, JoinRound(is_first, limit), due)

    # -- the end of a round -------------------------------------------------------------------------------------------

    def settle(self, draft: ClassicDraft) -> None:
        """Finishes rounds in which all members have joined, as far as the draft has space."""
        touched, self._touched = self._touched, {}
        for group_id in touched:
            if draft.size_bytes >= DRAFT_BYTES:
                self._touched[group_id] = None
            elif self._is_complete(draft.classic(group_id), group_id):
                self._finish(draft, group_id)

    def _is_complete(self, classic: ClassicGroup | None, group_id: str) -> bool:
        joining = self.rounds.of(group_id)
        if joining is None or joining.is_first or classic is None or self.rounds.named(group_id):
            return False
        return bool(joining.joins) and joining.joins.keys() >= classic.members.keys()

    def _round_due(self, draft: ClassicDraft, group_id: str) -> None:
        """Ends a round at its deadline. A first round is extended while further members join, up to its limit."""
        joining, now = self.rounds.of(group_id), self._clock.awake_us
        if joining is not None and joining.is_first and joining.has_new and now < joining.limit:
            joining.has_new = False
            again = now + max(1, draft.limits.initial_rebalance_delay_ms) * 1000
            self.rounds.deadlines.put((Due.ROUND, group_id, ""), min(joining.limit, again))
            return
        if draft.size_bytes >= DRAFT_BYTES:
            self.rounds.deadlines.put((Due.ROUND, group_id, ""), now)
        else:
            self._finish(draft, group_id)

    def _finish(self, draft: ClassicDraft, group_id: str) -> None:
        """Ends a round: the members that have joined form the next generation. Absent static members stay until their
        sessions end."""
        classic = draft.classic(group_id)
        ended = self.rounds.close(group_id)
        if classic is None or classic.stage != JOINING:
            return
        joins = self._allowed(ended)
        absent = {key: each for key, each in classic.members.items() if key not in joins and each.instance_id}
        if not joins:
            self._remove_absent(draft, group_id, classic, absent)
            return
        joined = {key: call.member for key, call in joins.items() if call.member is not None}
        members = {**absent, **joined}
        protocol = choose_protocol(list(members.values()))
        if protocol is None:
            # A member that waited with other protocols than it had is gone, and the absent members do not support
            # those.
            members, protocol = joined, choose_protocol(list(joined.values()))
        assert ended is not None and protocol is not None, (
            "each member was admitted because it shares a protocol with the others"
        )
        leader = classic.leader if classic.leader in joined else next(iter(joined))
        protocol_type = next(iter(joins.values())).request.protocol_type  # type: ignore[union-attr]
        after = classic.next_round(members, protocol_type, protocol, leader)
        draft.put_classic(group_id, after)
        self._answered += [(call, answers.joined(after, member_id)) for member_id, call in joins.items()]

    def _allowed(self, ended: JoinRound | None) -> dict[str, ClassicCall]:
        """Returns the joins whose clients still wait, and may still read for the group."""
        joins = ended.joins.items() if ended is not None else ()
        return {member_id: call for member_id, call in joins if call.is_expected and self._may_take_part(call)}

    def _may_take_part(self, call: ClassicCall) -> bool:
        """True if the client of a call that has waited is still authorized; otherwise the call is refused."""
        principal, permission = call.client.principal, (ACL_OPERATION_READ, ACL_RESOURCE_GROUP, call.key)
        if self._authorizer is None or self._authorizer.may(principal, *permission):
            return True
        self._refuse(call, not_authorized(principal, *permission))
        return False

    def _remove_absent(self, draft: ClassicDraft, group_id: str, classic: ClassicGroup, static: Members) -> None:
        """Removes absent members when no member has joined: without static members, which may return, the group is
        empty."""
        if not static:
            draft.put_classic(group_id, classic.emptied())
            return
        gone = classic.members.keys() - static.keys()
        after = classic.without(gone) if gone else classic
        if gone:
            draft.put_classic(group_id, after)
        self._open_round(group_id, after, draft.limits.initial_rebalance_delay_ms, is_first=False)
        # Long enough that the next round does not fail, however short their rebalance timeouts are.
        self.rounds.deadlines.put(
            (Due.ROUND, group_id, ""), self._clock.awake_us + self._sync_time_us(draft.limits, after)
        )

    # -- syncing ------------------------------------------------------------------------------------------------------

    def _sync(
        self, draft: ClassicDraft, call: ClassicCall, request: groups_pb2.SyncClassicGroupRequest
    ) -> ProtoMessage | errors_pb2.Error | None:
        group_id, member_id = request.group_id, request.member_id
        classic = draft.classic(group_id)
        refused = check_names(member_id, request.instance_id) or answers.check_member(
            classic, group_id, member_id, request.instance_id
        )
        if refused is not None or classic is None:
            return refused
        if request.generation != classic.generation:
            return answers.other_generation(classic, group_id, request.generation)
        if request.protocol_type not in ("", classic.protocol_type) or request.protocol not in ("", classic.protocol):
            return error(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group_id} has chosen {classic.protocol} of type {classic.protocol_type}: join again",
            )
        if classic.stage == JOINING:
            return answers.rebalancing(group_id)
        if classic.stage == STABLE:
            return answers.synced(classic, member_id)
        if classic.leader == member_id:
            return self._assign(draft, request, classic)
        busy = self._check_busy()
        if busy is not None:
            return busy
        earlier = self.rounds.park_sync(call, member_id)
        self._refuse(earlier, answers.rebalancing(group_id))
        return None

    def _assign(
        self, draft: ClassicDraft, request: groups_pb2.SyncClassicGroupRequest, classic: ClassicGroup
    ) -> ProtoMessage | errors_pb2.Error:
        """Stores the leader's assignment and answers all syncs that wait."""
        group_id = request.group_id
        parts = {row.member_id: row.assignment for row in request.assignments if row.member_id in classic.members}
        refused = check_assignment(draft, group_id, classic, parts)
        if refused is not None:
            return refused
        after = classic.assigned(parts)
        draft.put_classic(group_id, after)
        for member_id, call in self.rounds.take_syncs(group_id):
            if self._may_take_part(call):
                self._answered.append((call, answers.synced(after, member_id)))
        return answers.synced(after, request.member_id)

    # -- staying and leaving ------------------------------------------------------------------------------------------

    def _heartbeat(
        self, draft: ClassicDraft, request: groups_pb2.ClassicHeartbeatRequest
    ) -> ProtoMessage | errors_pb2.Error:
        group_id, member_id = request.group_id, request.member_id
        classic = draft.classic(group_id)
        if member_id in self.rounds.joins(group_id):
            return answers.rebalancing(group_id)
        refused = check_names(member_id, request.instance_id) or answers.check_member(
            classic, group_id, member_id, request.instance_id
        )
        if refused is not None or classic is None:
            return refused if refused is not None else answers.unknown_member(group_id, member_id)
        if request.generation != classic.generation:
            return answers.other_generation(classic, group_id, request.generation)
        return answers.rebalancing(group_id) if classic.stage == JOINING else groups_pb2.ClassicHeartbeatResponse()

    def _leave(self, draft: ClassicDraft, request: groups_pb2.LeaveClassicGroupRequest) -> ProtoMessage:
        response = groups_pb2.LeaveClassicGroupResponse()
        leaving: list[str] = []
        for row in request.members:
            outcome = response.results.add(member_id=row.member_id, instance_id=row.instance_id)
            problem = self._leaves(draft.classic(request.group_id), request.group_id, row, leaving)
            if problem is not None:
                outcome.error.CopyFrom(problem)
        self._remove(draft, request.group_id, leaving)
        return response

    def _leaves(
        self,
        classic: ClassicGroup | None,
        group_id: str,
        row: groups_pb2.LeavingClassicMember,
        leaving: list[str],
    ) -> errors_pb2.Error | None:
        """Adds a member to those that leave. Returns the error if it cannot leave; None otherwise."""
        refused = check_names(row.member_id, row.instance_id)
        if refused is not None:
            return refused
        joins, member_id = self.rounds.joins(group_id), row.member_id
        if row.instance_id:
            holder = holder_of(classic or NOTHING, joins, row.instance_id)
            if holder is not None and member_id not in ("", holder):
                return answers.fenced_instance(group_id, row.instance_id)
            member_id = holder or ""
        if not row.instance_id and self.rounds.forget_name(group_id, member_id):
            self._touched[group_id] = None
            return None
        is_known = member_id in joins or (classic is not None and member_id in classic.members)
        if not is_known or member_id in leaving:
            return answers.unknown_member(group_id, row.member_id or row.instance_id)
        leaving.append(member_id)
        return None

    def _remove(self, draft: ClassicDraft, group_id: str, member_ids: Iterable[str]) -> None:
        """Removes members: the others must join again."""
        classic = draft.classic(group_id)
        gone = list(member_ids)
        if classic is None or not gone:
            return
        for member_id in gone:
            problem = answers.unknown_member(group_id, member_id)
            self._refuse(self.rounds.take_join(group_id, member_id), problem)
            self._refuse(self.rounds.take_sync(group_id, member_id), problem)
        known = [member_id for member_id in gone if member_id in classic.members]
        after = classic.without(known) if known else classic
        if not after.members and not self.rounds.joins(group_id) and after.stage != EMPTY:
            self.rounds.close(group_id)
            draft.put_classic(group_id, after.emptied())
            return
        if known:
            draft.put_classic(group_id, after)
            self._begin_round(draft, group_id, after)
        self._touched[group_id] = None

    # -- time ---------------------------------------------------------------------------------------------------------

    def on_time(self, draft: ClassicDraft) -> None:
        """Handles the deadlines that have passed."""
        now = self._clock.awake_us
        for due, group_id, name in list(self.rounds.deadlines.take_due(now)):
            classic = draft.classic(group_id)
            if due is Due.SESSION:
                # Set again, because the log may not accept the change.
                self.rounds.deadlines.put((due, group_id, name), now + self._sessions[group_id, name])
                if not self.rounds.is_waiting(group_id, name):
                    self._remove(draft, group_id, [name])
            elif due is Due.ROUND:
                self._round_due(draft, group_id)
            elif due is Due.SYNC and classic is not None and classic.stage == SYNCING:
                self.rounds.deadlines.put((due, group_id, name), now + self._sync_time_us(draft.limits, classic))
                waiting = self.rounds.is_waiting
                self._remove(draft, group_id, [each for each in classic.members if not waiting(group_id, each)])
            elif due is Due.NAME:
                self.rounds.forget_name(group_id, name)
                self._touched[group_id] = None
            elif due is Due.CALL:
                self._refuse(self.rounds.take_request(int(name)), answers.rebalancing(group_id))

    def _sync_time_us(self, limits: ConsumerGroupLimits, classic: ClassicGroup) -> int:
        return max(longest_us(classic, {}), limits.min_session_timeout_ms * 1000)

    @property
    def next_deadline(self) -> int | None:
        """Time at which something is due, on the awake clock."""
        return self._clock.awake_us if self._touched else self.rounds.deadlines.next_deadline

    # -- applied changes ----------------------------------------------------------------------------------------------

    def begin(self, groups: Iterable[tuple[str, ClassicGroup]], limits: ConsumerGroupLimits) -> list[ClassicCall]:
        """Starts a leadership, or restarts sessions and rounds after the log has not accepted a decision.

        Returns:
            Calls that waited, which must be decided again.
        """
        waiting = list(self.rounds.take_all())
        for group_id, classic in groups:
            self.applied(group_id, [], classic, limits)
            for member in classic.members.values():
                self._watch(group_id, member, self._bounds.grace_us)
        return waiting

    def applied(
        self, group_id: str, removed: Iterable[str], classic: ClassicGroup | None, limits: ConsumerGroupLimits
    ) -> None:
        """Follows a change of a group in the log.

        Arguments:
            removed: members that were removed.
            classic: the group after the change; None if it is no longer classic.
        """
        for member_id in removed:
            self._sessions.pop((group_id, member_id), None)
            self.rounds.deadlines.drop((Due.SESSION, group_id, member_id))
        sync = (Due.SYNC, group_id, "")
        if classic is not None and classic.stage == SYNCING:
            for member in classic.members.values():
                self._watch(group_id, member)
            self.rounds.deadlines.put(sync, self._clock.awake_us + self._sync_time_us(limits, classic))
            return
        self.rounds.deadlines.drop(sync)
        for member in classic.members.values() if classic is not None else ():
            if (group_id, member.member_id) not in self._sessions:
                self._watch(group_id, member)
        if classic is not None and classic.stage == JOINING:
            self._open_round(group_id, classic, limits.initial_rebalance_delay_ms, is_first=not classic.members)

    def _watch(self, group_id: str, member: ClassicMember, grace_us: int = 0) -> None:
        """Starts or restarts a member's session."""
        session_us = self._sessions[group_id, member.member_id] = member.session_timeout_ms * 1000
        due = self._clock.awake_us + session_us + grace_us
        self.rounds.deadlines.put((Due.SESSION, group_id, member.member_id), due)

    @property
    def members(self) -> int:
        """Number of members in all classic groups."""
        return len(self._sessions)

    def _refuse(self, call: ClassicCall | None, problem: errors_pb2.Error) -> None:
        """Refuses a call that waited, immediately, because no change of the log is involved."""
        if call is not None:
            call.answer(answers.refused(call.request, problem))
