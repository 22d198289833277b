"""A replica's part in elections: its terms and roles, its campaigns, and its votes for others.

Terms, roles and rules are those of the Raft paper, with pre-vote and check-quorum (thesis §6.2, §9.6). The duties of a
leader are in leading.py, the effects of its messages on a replica in following.py.
"""

from __future__ import annotations

import random

from quorumlog.raft.election import Ballot, ElectionTimer, Turn, claim, is_up_to_date, turn_of
from quorumlog.raft.errors import InvariantViolationError, UnreadableEntryError
from quorumlog.raft.leading import Leading
from quorumlog.raft.membership import is_changed_by
from quorumlog.raft.quorum import VoteOutcome
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import (
    NO_NODE,
    AppendRequest,
    AppendResponse,
    DurableToken,
    EntryId,
    Heartbeat,
    InstallSnapshot,
    Message,
    Role,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_FROM_LEADERS = (AppendRequest, Heartbeat, InstallSnapshot)


class Candidacy:
    """A replica's part in elections. Only here does it change its term, its vote and its role.

    Attributes:
        timer: determines when to campaign, and if the lease of a living leader prevents votes.
        lost_peers: peers whose connection broke and that have sent nothing since.
    """

    __slots__ = ("_ballot", "_leading", "_state", "_votes_from", "lost_peers", "timer")

    def __init__(self, state: ReplicaState, leading: Leading, votes_from: int, rng: random.Random, now: int) -> None:
        self._state = state
        self._leading = leading
        self._votes_from = votes_from
        self._ballot = Ballot()
        self.lost_peers: set[int] = set()
        self.timer = ElectionTimer(state.options, rng, now, self._turn())
        if state.configuration.electors == (state.node_id,):
            # No other node can lead: no reason to wait.
            self.timer.deadline = now

    def _turn(self) -> Turn:
        state = self._state
        return turn_of(state.node_id, state.configuration.candidates, self.lost_peers | {state.leader_id, state.vote})

    # -- terms ------------------------------------------------------------------------------------------------

    def become_follower(self, now: int, term: int, leader_id: int) -> None:
        """Follows the leader of ``term``, or waits for one (NO_NODE). A leader steps down."""
        state = self._state
        if term < state.term:
            raise InvariantViolationError(f"group {state.group}: term {state.term} would go back to {term}")
        if term > state.term:
            state.term = term
            state.vote = NO_NODE
        state.become(Role.FOLLOWER)
        state.leader_id = leader_id
        self._leading.close_term()
        self.timer.end_lease()
        self.timer.restart(now, self._turn())

    def meet_higher_term(self, now: int, message: Message) -> bool:
        """Catches up with a newer term, where the message may do that. Returns False to ignore the message."""
        if isinstance(message, VoteRequest):
            if not message.transfer and self._holds_lease(now):
                # A leader exists. A node that cannot reach it must not depose it for all others (thesis §4.2.3).
                return False
            if not message.pre_vote:
                self.become_follower(now, message.term, NO_NODE)
        elif isinstance(message, VoteResponse) and message.pre_vote and message.granted:
            pass  # it carries the requested term, in which no node is yet
        else:
            self.become_follower(now, message.term, message.sender if isinstance(message, _FROM_LEADERS) else NO_NODE)
            if isinstance(message, VoteResponse):
                # The campaign was behind: with the newer term it may win, and if the leader is gone, soon.
                self.timer.retry_soon(now, self._turn())
        return True

    def _holds_lease(self, now: int) -> bool:
        # A leader steps down on its own when it has not heard from a quorum, so its lease holds for as long as it
        # leads.
        return self._state.role is Role.LEADER or self.timer.lease_holds(now)

    def answer_stale(self, message: Message) -> None:
        """Sends the current term to a node of an older term.

        A node that returned with a higher term ignores its leader's appends, and its leader does not notice. Without
        this response it would be stuck forever. The same holds for a pre-candidate of an older term, whose log may be
        the only one that can win (scenario 13: the pre-vote deadlock).
        """
        state = self._state
        if isinstance(message, _FROM_LEADERS):
            state.send(AppendResponse(state.node_id, message.sender, state.term, 0, True))
        elif isinstance(message, VoteRequest):
            state.send(VoteResponse(state.node_id, message.sender, state.term, message.pre_vote, False))

    # -- reasons to look for a leader --------------------------------------------------------------------------

    def lose_leader(self, now: int) -> None:
        """Handles a broken connection to the leader: this replica looks for a new one soon."""
        self._state.leader_id = NO_NODE
        self.timer.leader_lost(now, self._turn())

    def resume(self, contact: int) -> None:
        """Ends a quiescence in which node leases replaced heartbeats; the leader's last message arrived at
        ``contact``."""
        self.timer.resume(contact, self._turn())

    def take_timeout_now(self, now: int, message: TimeoutNow) -> None:
        """Campaigns at the leader's request, which transfers its leadership to this replica."""
        if message.last_index not in (0, self._state.log.last.index):
            # The leader abandoned the transfer and accepted proposals again: a delayed request must not depose it
            # (scenario 14).
            return
        self.campaign(now, transfer=True)

    # -- campaigns --------------------------------------------------------------------------------------------

    def campaign(self, now: int, *, transfer: bool = False) -> None:
        """Requests pre-votes; or votes immediately after TimeoutNow, as the leader wants it (thesis §4.2.3)."""
        state = self._state
        if state.role is Role.LEADER:
            return
        if not self._may_campaign():
            self.timer.restart(now, self._turn())
            return
        state.leader_id = NO_NODE
        self.timer.end_lease()
        if transfer:
            self._ask_for_votes(now, transfer=True)
            return
        state.become(Role.PRE_CANDIDATE)
        self._ballot = Ballot()
        self.timer.retry_soon(now, self._turn())
        # A pre-vote promises nothing, so this replica's own counts immediately.
        self._ballot.record(state.node_id, True)
        self._request_votes(state.term + 1, pre_vote=True, transfer=False)
        self._count_votes(now)

    def _may_campaign(self) -> bool:
        state = self._state
        # A witness has no data to lead with: its election would be based on an index and a term only.
        if not (state.may_lead and self._has_a_say) or state.log.has_pending_snapshot:
            return False
        # A committed configuration that is not applied here may give the group other voters than those whose votes
        # would be counted: two leaders in a term (scenario 9). Delivered entries are applied immediately, so this waits
        # only for the next Ready.
        try:
            return not self._has_unapplied_change(state.log.commit_index, state.options.max_apply_bytes)
        except UnreadableEntryError:
            # It may be such a change. Others can lead; this replica can still vote.
            return False

    def _ask_for_votes(self, now: int, *, transfer: bool) -> None:
        state = self._state
        state.term += 1
        state.vote = state.node_id
        state.become(Role.CANDIDATE)
        state.leader_id = NO_NODE
        self._ballot = Ballot()
        self.timer.restart(now, self._turn())
        # The own vote is counted in own_vote_is_durable, when it can no longer be forgotten (scenario 3).
        self._request_votes(state.term, pre_vote=False, transfer=transfer)

    def _request_votes(self, term: int, *, pre_vote: bool, transfer: bool) -> None:
        state = self._state
        last = state.log.last
        for voter in state.configuration.electors:
            if voter == state.node_id:
                continue
            request = VoteRequest(state.node_id, voter, term, last.index, last.term, pre_vote, transfer)
            if pre_vote:
                state.outbox.now.append(request)
            else:
                # Sent once term, vote and the log that it claims are durable: a candidate that forgot its tail and
                # campaigned again in this term could be elected by votes for the longer log.
                state.send_when_durable(request)

    def own_vote_is_durable(self, now: int, token: DurableToken) -> None:
        """Counts a candidate's own vote, if ``token`` shows that this term's vote is on its disk."""
        state = self._state
        if token.term == state.term and token.vote == state.node_id:
            self._ballot.record(state.node_id, True)
            self._count_votes(now)

    def take_vote_response(self, now: int, response: VoteResponse) -> bool:
        """Counts a response. Returns True if this replica was elected by it."""
        state = self._state
        expected = Role.PRE_CANDIDATE if response.pre_vote else Role.CANDIDATE
        if state.role is not expected:
            return False
        if response.pre_vote and response.granted and response.term != state.term + 1:
            return False
        self._ballot.record(response.sender, response.granted)
        self._count_votes(now)
        return state.role is Role.LEADER

    def _count_votes(self, now: int) -> None:
        state = self._state
        # A real vote is requested once from each node: if lost nodes decide it, retry soon. Pre-votes are requested
        # again in any case.
        absent = self.lost_peers if state.role is Role.CANDIDATE else frozenset()
        outcome = self._ballot.outcome(state.configuration.halves, absent)
        if outcome is VoteOutcome.WON:
            if state.role is Role.PRE_CANDIDATE:
                self._ask_for_votes(now, transfer=False)
            else:
                self._become_leader(now)
        elif outcome is VoteOutcome.LOST:
            state.become(Role.FOLLOWER)
            self.timer.retry_soon(now, self._turn())

    def _become_leader(self, now: int) -> None:
        state = self._state
        if state.role is not Role.CANDIDATE:
            raise InvariantViolationError(f"group {state.group}: a {state.role.value} cannot become leader")
        state.become(Role.LEADER)
        state.leader_id = state.node_id
        self._leading.open_term(now, self.lost_peers)

    # -- votes for others -------------------------------------------------------------------------------------

    def take_vote_request(self, now: int, request: VoteRequest) -> None:
        """Grants this replica's vote or pre-vote to a candidate, or refuses it."""
        state = self._state
        free = state.vote == request.sender or (state.vote == NO_NODE and state.leader_id == NO_NODE)
        if request.pre_vote:
            free = free or request.term > state.term
        free = free and self._has_a_say
        # A learner votes if requested: it may have been promoted without knowing it yet (scenario 10).
        granted = free and is_up_to_date(request.last_index, request.last_term, self._protected_end())
        if request.pre_vote:
            self._answer_pre_vote(now, request, granted)
            return
        if granted:
            state.vote = request.sender
            state.become(Role.FOLLOWER)
            self.timer.restart(now, self._turn())
        state.send_when_durable(VoteResponse(state.node_id, request.sender, state.term, False, granted))

    def _answer_pre_vote(self, now: int, request: VoteRequest, granted: bool) -> None:
        state = self._state
        if granted and state.role is Role.PRE_CANDIDATE and request.term == state.term + 1:
            granted = self._yields_to(now, request)
        # A granted pre-vote does not refresh the lease: it does not prove that a leader exists.
        term = request.term if granted else state.term
        response = VoteResponse(state.node_id, request.sender, term, True, granted)
        if granted:
            self.timer.pre_vote_granted(now)
            state.outbox.now.append(response)
        else:
            state.send(response)

    @property
    def _has_a_say(self) -> bool:
        """False of a replica that has returned to its Raft group and does not yet have all that it had before.

        It has forgotten what it acknowledged before it was removed. A candidate that has received no change since
        counts it among the voters. Without this rule, that candidate could win without entries that the former replica
        helped to commit (scenario 12).
        """
        return self._state.log.commit_index >= self._votes_from

    def _protected_end(self) -> EntryId:
        """Returns the end of the log that a candidate must have to get this replica's vote: usually all of this log.

        A replica whose vote does not count, by everything in its log, protects what it has learned to be committed.
        Otherwise a group could wait forever: a leader that was removed may have accepted proposals behind the change
        that removed it. It will never campaign, and the remaining voters request its vote until they learn that the
        change is committed. Anything committed beyond that is held by a majority of the remaining voters, and this
        replica is not one of them.
        """
        state = self._state
        log = state.log
        if state.is_voter or self._has_unapplied_change(log.last.index, state.options.max_append_bytes):
            # A change that is not applied yet may have made this replica a voter.
            return log.last
        return EntryId(log.commit_index, log.term_at(log.commit_index), 0)

    def _has_unapplied_change(self, last: int, max_bytes: int) -> bool:
        """True if the log has a change of members behind what is applied, up to ``last``.

        Arguments:
            last: index of the last entry to check.
            max_bytes: of the entries that are read at a time.
        """
        log = self._state.log
        first = log.applied_index + 1
        while first <= last:
            entries = log.slice(first, last, max_bytes)
            if is_changed_by(entries):
                return True
            first = entries[-1].index + 1
        return False

    def _yields_to(self, now: int, rival: VoteRequest) -> bool:
        """True if a rival for the same term takes precedence: it has the longer log, or the same and is preferred.

        This replica then stops. Otherwise both would win their pre-vote and split the vote, and the group would wait
        for another election timeout.
        """
        state = self._state
        voters, last = state.configuration.electors, state.log.last
        theirs = claim(rival.sender, rival.last_index, rival.last_term, voters)
        if theirs < claim(state.node_id, last.index, last.term, voters):
            return False
        state.become(Role.FOLLOWER)
        self.timer.retry_soon(now, self._turn())
        return True
