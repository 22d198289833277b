"""Who leads, as one replica sees it: its terms and roles, its campaigns, and the votes that it gives.

Terms, roles and rules are those of the Raft paper, with pre-vote and check-quorum (thesis §6.2, §9.6). What a leader
does is in leading.py, what its messages do to a replica in following.py.
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
        timer: when to campaign, and whether a living leader holds votes up.
        lost_peers: peers whose connection broke and of whom nothing was heard since.
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
            # Nobody else can lead: no reason to wait.
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
        state.role = Role.FOLLOWER
        state.leader_id = leader_id
        self._leading.close_term()
        self.timer.end_lease()
        self.timer.restart(now, self._turn())

    def meet_higher_term(self, now: int, message: Message) -> bool:
        """Catches up with a newer term, where the message may do that. Returns False to ignore the message."""
        if isinstance(message, VoteRequest):
            if not message.transfer and self._holds_lease(now):
                # A leader lives. A node that cannot hear it must not depose it for all others (thesis §4.2.3).
                return False
            if not message.pre_vote:
                self.become_follower(now, message.term, NO_NODE)
        elif isinstance(message, VoteResponse) and message.pre_vote and message.granted:
            pass  # it carries the term that was asked for, which is nobody's yet
        else:
            self.become_follower(now, message.term, message.sender if isinstance(message, _FROM_LEADERS) else NO_NODE)
            if isinstance(message, VoteResponse):
                # The campaign ran behind: with the newer term it may win, and if the leader is gone, soon.
                self.timer.retry_soon(now, self._turn())
        return True

    def _holds_lease(self, now: int) -> bool:
        # A leader steps down by itself when it has not heard a quorum, so as long as it leads its lease holds.
        return self._state.role is Role.LEADER or self.timer.lease_holds(now)

    def answer_stale(self, message: Message) -> None:
        """Tells a node of an older term the newer one.

        A node that came back with a higher term ignores its leader's appends, and its leader knows nothing of it.
        Without this answer it is stuck for ever. The same holds for a pre-candidate of an older term, whose log may be
        the only one that can win (scenario 13: the pre-vote deadlock).
        """
        state = self._state
        if isinstance(message, _FROM_LEADERS):
            state.send(AppendResponse(state.node_id, message.sender, state.term, 0, True))
        elif isinstance(message, VoteRequest):
            state.send(VoteResponse(state.node_id, message.sender, state.term, message.pre_vote, False))

    # -- what makes a replica look for a leader ---------------------------------------------------------------

    def lose_leader(self, now: int) -> None:
        """The connection to the leader broke: this replica looks for a new one soon."""
        self._state.leader_id = NO_NODE
        self.timer.leader_lost(now, self._turn())

    def resume(self, contact: int) -> None:
        """Ends a sleep in which others watched the leader; it was last heard at ``contact``."""
        self.timer.resume(contact, self._turn())

    def take_timeout_now(self, now: int, message: TimeoutNow) -> None:
        """The leader wants this replica to lead."""
        if message.last_index not in (0, self._state.log.last.index):
            # The leader gave the transfer up and took proposals again: a delayed request must not depose it
            # (scenario 14).
            return
        self.campaign(now, transfer=True)

    # -- campaigns --------------------------------------------------------------------------------------------

    def campaign(self, now: int, *, transfer: bool = False) -> None:
        """Asks for pre-votes; after TimeoutNow, for votes at once: the leader itself wants it (thesis §4.2.3)."""
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
        state.role = Role.PRE_CANDIDATE
        self._ballot = Ballot()
        self.timer.retry_soon(now, self._turn())
        # Nothing is promised by a pre-vote, so one's own counts at once.
        self._ballot.record(state.node_id, True)
        self._request_votes(state.term + 1, pre_vote=True, transfer=False)
        self._count_votes(now)

    def _may_campaign(self) -> bool:
        state = self._state
        # A witness has nothing to lead with: it would be elected for an index and a term.
        if not (state.may_lead and self._has_a_say) or state.log.has_pending_snapshot:
            return False
        # A committed configuration that is not applied here may give the group other voters than those whose votes
        # would be counted: two leaders in a term (scenario 9). Delivered entries are applied at once, so this waits
        # only for the next Ready.
        try:
            return not self._has_unapplied_change(state.log.commit_index, state.options.max_apply_bytes)
        except UnreadableEntryError:
            # It may be such a change. Others can lead; this replica's vote stays its own.
            return False

    def _ask_for_votes(self, now: int, *, transfer: bool) -> None:
        state = self._state
        state.term += 1
        state.vote = state.node_id
        state.role = Role.CANDIDATE
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
                # After term, vote and the log it boasts of are durable: a candidate that forgot its tail and campaigned
                # again in this term could be elected by votes for the longer log.
                state.send_when_durable(request)

    def own_vote_is_durable(self, now: int, token: DurableToken) -> None:
        """A candidate counts its own vote, if ``token`` says that this term's vote is on its disk."""
        state = self._state
        if token.term == state.term and token.vote == state.node_id:
            self._ballot.record(state.node_id, True)
            self._count_votes(now)

    def take_vote_response(self, now: int, response: VoteResponse) -> bool:
        """Counts an answer. Returns True when this replica was elected by it."""
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
        # After a real vote each node is asked once: if those that are gone decide it, try again soon. Pre-votes are
        # asked for again in any case.
        absent = self.lost_peers if state.role is Role.CANDIDATE else frozenset()
        outcome = self._ballot.outcome(state.configuration.halves, absent)
        if outcome is VoteOutcome.WON:
            if state.role is Role.PRE_CANDIDATE:
                self._ask_for_votes(now, transfer=False)
            else:
                self._become_leader(now)
        elif outcome is VoteOutcome.LOST:
            state.role = Role.FOLLOWER
            self.timer.retry_soon(now, self._turn())

    def _become_leader(self, now: int) -> None:
        state = self._state
        if state.role is not Role.CANDIDATE:
            raise InvariantViolationError(f"group {state.group}: a {state.role.value} cannot become leader")
        state.role = Role.LEADER
        state.leader_id = state.node_id
        self._leading.open_term(now, self.lost_peers)

    # -- votes for others -------------------------------------------------------------------------------------

    def take_vote_request(self, now: int, request: VoteRequest) -> None:
        """Gives this replica's vote or pre-vote to a candidate, or refuses it."""
        state = self._state
        free = state.vote == request.sender or (state.vote == NO_NODE and state.leader_id == NO_NODE)
        if request.pre_vote:
            free = free or request.term > state.term
        free = free and self._has_a_say
        # A learner votes when asked: it may have been promoted without knowing it yet (scenario 10).
        granted = free and is_up_to_date(request.last_index, request.last_term, self._protected_end())
        if request.pre_vote:
            self._answer_pre_vote(now, request, granted)
            return
        if granted:
            state.vote = request.sender
            state.role = Role.FOLLOWER
            self.timer.restart(now, self._turn())
        state.send_when_durable(VoteResponse(state.node_id, request.sender, state.term, False, granted))

    def _answer_pre_vote(self, now: int, request: VoteRequest, granted: bool) -> None:
        state = self._state
        if granted and state.role is Role.PRE_CANDIDATE and request.term == state.term + 1:
            granted = self._yields_to(now, request)
        # A grant refreshes no lease: it is no sign of a leader.
        term = request.term if granted else state.term
        response = VoteResponse(state.node_id, request.sender, term, True, granted)
        if granted:
            self.timer.pre_vote_granted(now)
            state.outbox.now.append(response)
        else:
            state.send(response)

    @property
    def _has_a_say(self) -> bool:
        """False of a replica that has come back to its Raft group and does not know yet all that it knew before.

        It has forgotten what it acknowledged in its former life. A candidate that has not heard of any change since
        counts it among the voters. Without this rule that candidate wins without what the former life has helped to
        commit (scenario 12).
        """
        return self._state.log.commit_index >= self._votes_from

    def _protected_end(self) -> EntryId:
        """What a candidate's log must hold to have this replica's vote: as a rule all that this one has.

        A replica whose vote does not count, by all that is in its log, protects what it knows to be committed.
        Otherwise a group waits for ever: a leader that was removed may have taken proposals behind the change that
        removed it. It will never campaign, and those who remain ask for its vote until they know that the change is
        committed. What is committed beyond that is held by a majority of those who remain, and this replica is none of
        them.
        """
        state = self._state
        log = state.log
        if state.is_voter or self._has_unapplied_change(log.last.index, state.options.max_append_bytes):
            # A change behind what is applied may have made this a voter.
            return log.last
        return EntryId(log.commit_index, log.term_at(log.commit_index), 0)

    def _has_unapplied_change(self, last: int, max_bytes: int) -> bool:
        """Whether a change of members stands in the log behind what is applied, up to ``last``.

        Arguments:
            last: index of the last entry to look at.
            max_bytes: of the entries that are read at once.
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
        """Two ask for the same term at once: the one with the longer log goes on, then the preferred one; one stops.

        Otherwise both would win their pre-vote, split the vote, and the group waits for another election timeout.
        """
        state = self._state
        voters, last = state.configuration.electors, state.log.last
        theirs = claim(rival.sender, rival.last_index, rival.last_term, voters)
        if theirs < claim(state.node_id, last.index, last.term, voters):
            return False
        state.role = Role.FOLLOWER
        self.timer.retry_soon(now, self._turn())
        return True
