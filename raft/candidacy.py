"""Who leads, as one replica sees it: its state, its role and term, its campaigns, and the votes that it gives.

Terms, roles and rules are those of the Raft paper, with pre-vote and check-quorum (thesis §6.2, §9.6). What a leader's
messages do to a replica is in replica.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from quorumlog.raft.election import Ballot, ElectionTimer, Turn, claim, is_up_to_date, turn_of
from quorumlog.raft.errors import InvariantViolationError
from quorumlog.raft.log import ChainCheck, RaftLog
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.outbox import Outbox
from quorumlog.raft.quorum import VoteOutcome
from quorumlog.raft.replication import NEVER, Replication
from quorumlog.raft.types import (
    NO_NODE,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    EntrySealer,
    HardState,
    LogStore,
    Message,
    Role,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)


class Candidacy:
    """The state of one replica of one group, and its part in elections.

    Attributes:
        node_id: this replica's node.
        group: the group's id.
        term: the current term. Never goes back, and no message carries one that is not durable here.
        vote: whom this replica voted for in ``term``, or NO_NODE.
        role: Role.
        leader_id: the leader of ``term`` if known, else NO_NODE.
        configuration: members as of the applied index.
        configuration_index: of the last entry applied in this life that changed them; 0 before the first.
        next_deadline: microseconds; the driver calls ``on_time`` then or soon after.
        quiescent: the group is idle and this replica sleeps: no deadline, no heartbeats. The lease between its node and
            the leader's stands for both; ``wake`` says that it does so no more.
    """

    __slots__ = (
        "_ballot",
        "_durable_term",
        "_log",
        "_lost_peers",
        "_options",
        "_outbox",
        "_pending_configuration_index",
        "_replication",
        "_sealer",
        "_timer",
        "_transfer_deadline",
        "_transferee",
        "_votes_from",
        "configuration",
        "configuration_index",
        "group",
        "leader_id",
        "next_deadline",
        "node_id",
        "quiescent",
        "role",
        "term",
        "vote",
    )

    def __init__(
        self,
        *,
        node_id: int,
        group: int,
        configuration: Configuration,
        hard_state: HardState,
        last: EntryId,
        anchor: EntryId,
        applied: int,
        store: LogStore,
        sealer: EntrySealer,
        rng: random.Random,
        now: int,
        options: RaftOptions,
        check_chain: ChainCheck | None,
        votes_from: int,
    ) -> None:
        if last.term > hard_state.term:
            # Term and vote were lost while entries survived: it might vote twice in a term (scenario 2).
            raise InvariantViolationError(
                f"group {group}: the log ends in term {last.term}, the hard state is of term {hard_state.term}"
            )
        self.node_id = node_id
        self.group = group
        self.configuration = configuration
        self.configuration_index = 0
        self.term = self._durable_term = hard_state.term
        self.vote = hard_state.vote
        self.role = Role.FOLLOWER
        self.leader_id = NO_NODE
        self.quiescent = False
        self._options = options
        self._sealer = sealer
        self._votes_from = votes_from
        self._log = RaftLog(
            store=store,
            anchor=anchor,
            last=last,
            commit=hard_state.commit,
            applied=applied,
            check_chain=check_chain,
        )
        self._outbox = Outbox()
        self._lost_peers: set[int] = set()
        self._timer = ElectionTimer(options, rng, now, self._turn())
        self._ballot = Ballot()
        self._replication: Replication | None = None
        self._pending_configuration_index = 0
        self._transferee = NO_NODE
        self._transfer_deadline = NEVER
        if configuration.electors == (node_id,):
            # Nobody else can lead: no reason to wait.
            self._timer.deadline = now
        self.next_deadline = NEVER
        self._schedule(now)

    # -- sending ----------------------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        """Sends a message that speaks of nothing but the term: at once if the term is durable.

        No peer ever sees a term that a crash could make its sender forget.
        """
        if self._durable_term == self.term:
            self._outbox.now.append(message)
        else:
            self._outbox.after_durable.append(message)

    def _send_when_durable(self, message: Message) -> None:
        """Sends a message that promises something: after everything decided so far is durable (scenario 3)."""
        self._outbox.after_durable.append(message)

    # -- roles ------------------------------------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        """True when this replica's configuration counts its vote, and so lets it campaign."""
        return self.node_id in self.configuration.electors

    def _become_follower(self, now: int, term: int, leader_id: int) -> None:
        if term < self.term:
            raise InvariantViolationError(f"group {self.group}: term {self.term} would go back to {term}")
        if term > self.term:
            self.term = term
            self.vote = NO_NODE
        self.role = Role.FOLLOWER
        self.leader_id = leader_id
        self._replication = None
        self._end_transfer()
        self._timer.end_lease()
        self._timer.restart(now, self._turn())

    def _campaign(self, now: int, *, transfer: bool = False) -> None:
        """Asks for pre-votes; after TimeoutNow, for votes at once: the leader itself wants it (thesis §4.2.3)."""
        if self.role is Role.LEADER:
            return
        if not self._may_campaign():
            self._timer.restart(now, self._turn())
            return
        self.leader_id = NO_NODE
        self._timer.end_lease()
        if transfer:
            self._ask_for_votes(now, transfer=True)
            return
        self.role = Role.PRE_CANDIDATE
        self._ballot = Ballot()
        self._timer.retry_soon(now, self._turn())
        # Nothing is promised by a pre-vote, so one's own counts at once.
        self._ballot.record(self.node_id, True)
        self._request_votes(self.term + 1, pre_vote=True, transfer=False)
        self._count_votes(now)

    def _may_campaign(self) -> bool:
        if not (self.is_voter and self._has_a_say) or self._log.has_pending_snapshot:
            return False
        # A committed configuration that is not applied here may give the group other voters than those whose votes
        # would be counted: two leaders in a term (scenario 9). Delivered entries are applied at once, so this waits
        # only for the next Ready.
        first, last = self._log.applied_index + 1, self._log.commit_index
        while first <= last:
            entries = self._log.slice(first, last, self._options.max_apply_bytes)
            if any(entry.kind is EntryKind.CONFIG for entry in entries):
                return False
            first = entries[-1].index + 1
        return True

    def _ask_for_votes(self, now: int, *, transfer: bool) -> None:
        self.term += 1
        self.vote = self.node_id
        self.role = Role.CANDIDATE
        self.leader_id = NO_NODE
        self._ballot = Ballot()
        self._timer.restart(now, self._turn())
        # The own vote is counted in on_durable, when it can no longer be forgotten (scenario 3).
        self._request_votes(self.term, pre_vote=False, transfer=transfer)

    def _request_votes(self, term: int, *, pre_vote: bool, transfer: bool) -> None:
        last = self._log.last
        for voter in self.configuration.electors:
            if voter == self.node_id:
                continue
            request = VoteRequest(self.node_id, voter, term, last.index, last.term, pre_vote, transfer)
            if pre_vote:
                self._outbox.now.append(request)
            else:
                # After term, vote and the log it boasts of are durable: a candidate that forgot its tail and campaigned
                # again in this term could be elected by votes for the longer log.
                self._send_when_durable(request)

    def _count_votes(self, now: int) -> None:
        # After a real vote each node is asked once: if those who are gone decide it, try again soon. Pre-votes are
        # asked for again in any case.
        absent = self._lost_peers if self.role is Role.CANDIDATE else frozenset()
        outcome = self._ballot.outcome(self.configuration.halves, absent)
        if outcome is VoteOutcome.WON:
            if self.role is Role.PRE_CANDIDATE:
                self._ask_for_votes(now, transfer=False)
            else:
                self._become_leader(now)
        elif outcome is VoteOutcome.LOST:
            self.role = Role.FOLLOWER
            self._timer.retry_soon(now, self._turn())

    def _become_leader(self, now: int) -> None:
        if self.role is not Role.CANDIDATE:
            raise InvariantViolationError(f"group {self.group}: a {self.role.value} cannot become leader")
        self.role = Role.LEADER
        self.leader_id = self.node_id
        # An entry of the tail may be a configuration change of an earlier leader: another one waits until all of the
        # tail is applied, and the no-op behind it, with which this leader learns what is committed. (Else a joint
        # configuration would be left twice: scenario 11.)
        self._pending_configuration_index = self._log.last.index + 1
        self._replication = Replication(
            node_id=self.node_id,
            term=self.term,
            log=self._log,
            options=self._options,
            configuration=self.configuration,
            now=now,
        )
        # Entries of earlier terms are committed only with one of this term: without this no-op the group would hang
        # on the next proposal (Raft §8; scenario 1).
        self._append_own(self._sealer.noop)
        self._schedule(now)

    def _append_own(self, seal: Callable[[int, int, int], Entry]) -> Entry:
        replication = self._replication
        last = self._log.last
        entry = seal(last.index + 1, self.term, last.hash)
        if replication is None or entry.index != last.index + 1 or entry.term != self.term:
            raise InvariantViolationError(
                f"group {self.group}: entry {entry[:2]} sealed for {last.index + 1, self.term}"
            )
        self._log.append([entry])
        replication.appended(entry)
        return entry

    # -- members ----------------------------------------------------------------------------------------------

    def _append_configuration(self, configuration: Configuration) -> Entry:
        sealer = self._sealer
        entry = self._append_own(lambda index, term, previous: sealer.config(index, term, previous, configuration))
        self._pending_configuration_index = entry.index
        return entry

    def _configure(self, index: int, configuration: Configuration) -> None:
        """A change of members is committed, and applies."""
        self.configuration = configuration
        self.configuration_index = index
        replication = self._replication
        now = 0
        if replication is not None:
            now = replication.configure(configuration)
            if self._transferee not in configuration.voters:
                self._end_transfer()
            if self.is_voter:
                # Fewer voters may be content with what there is.
                replication.advance_commit()
            else:
                # Removed, and not before this is committed: until then it may be the only one who could commit it. It
                # sends no more heartbeats, which would keep those who remain from electing (scenario 12).
                self._abdicate(now, replication)
        self._schedule(now)

    def _abdicate(self, now: int, replication: Replication) -> None:
        progress = replication.progress
        heir = max(self.configuration.voters, key=lambda voter: progress[voter].match_index)
        self._send(TimeoutNow(self.node_id, heir, self.term))
        self._become_follower(now, self.term, NO_NODE)

    def _leave_joint(self) -> None:
        """A leader that has applied a joint configuration proposes the one after it: once, for it is then pending, and
        whoever leads next waits until its whole tail is applied (scenario 11)."""
        if (
            self._replication is not None
            and self.configuration.is_joint
            and self._transferee == NO_NODE
            and self._pending_configuration_index <= self._log.applied_index
        ):
            self._append_configuration(Configuration(self.configuration.voters, self.configuration.learners))

    def _end_transfer(self) -> None:
        self._transferee = NO_NODE
        self._transfer_deadline = NEVER

    def _turn(self) -> Turn:
        return turn_of(self.node_id, self.configuration.electors, self._lost_peers | {self.leader_id, self.vote})

    def _schedule(self, now: int) -> None:
        """Sets ``next_deadline`` after anything that can move it."""
        replication = self._replication
        if self.quiescent:
            self.next_deadline = NEVER
        elif replication is not None:
            contact = replication.quorum_contact()
            check = contact + self._options.election_timeout_us if contact < NEVER else NEVER
            self.next_deadline = min(check, self._transfer_deadline)
        elif self.is_voter:
            self.next_deadline = self._timer.deadline
        else:
            self.next_deadline = NEVER

    # -- votes ------------------------------------------------------------------------------------------------

    def _vote_request(self, now: int, request: VoteRequest) -> None:
        free = self.vote == request.sender or (self.vote == NO_NODE and self.leader_id == NO_NODE)
        if request.pre_vote:
            free = free or request.term > self.term
        free = free and self._has_a_say
        # A learner votes when asked: it may have been promoted without knowing it yet (scenario 10).
        granted = free and is_up_to_date(request.last_index, request.last_term, self._protected())
        if request.pre_vote:
            if granted and self.role is Role.PRE_CANDIDATE and request.term == self.term + 1:
                granted = self._yields_to(now, request)
            # A grant refreshes no lease: it is no sign of a leader.
            term = request.term if granted else self.term
            response = VoteResponse(self.node_id, request.sender, term, True, granted)
            if granted:
                self._timer.pre_vote_granted(now)
                self._outbox.now.append(response)
            else:
                self._send(response)
            return
        if granted:
            self.vote = request.sender
            self.role = Role.FOLLOWER
            self._timer.restart(now, self._turn())
        self._send_when_durable(VoteResponse(self.node_id, request.sender, self.term, False, granted))

    @property
    def _has_a_say(self) -> bool:
        """False of a replica that has come back to its group and not got as far yet as its former life may have.

        It has forgotten what it acknowledged then. (Else a candidate that has not heard of any change since counts it
        among the voters that it knows, and wins without what the former life has helped to commit: scenario 12.)
        """
        return self._log.commit_index >= self._votes_from

    def _protected(self) -> EntryId:
        """What a candidate's log must hold to have this replica's vote: as a rule all that this one has.

        A replica whose vote does not count, by all that is in its log, protects what it knows to be committed. (Else a
        group waits for ever: a leader that was removed may have taken proposals behind the change that removed it. It
        will never campaign, and those who remain ask for its vote until they know that the change is committed.)
        What is committed beyond that is held by a majority of those who remain, and this replica is none of them.
        """
        log = self._log
        if self.is_voter or self._has_unapplied_change():
            return log.last
        return EntryId(log.commit_index, log.term_at(log.commit_index), 0)

    def _has_unapplied_change(self) -> bool:
        """Whether a change of members stands in the log behind what is applied: it may have made this a voter."""
        index, last = self._log.applied_index + 1, self._log.last.index
        while index <= last:
            entries = self._log.slice(index, last, self._options.max_append_bytes)
            if any(entry.kind is EntryKind.CONFIG for entry in entries):
                return True
            index = entries[-1].index + 1
        return False

    def _yields_to(self, now: int, rival: VoteRequest) -> bool:
        """Two ask for the same term at once: the one with the longer log goes on, then the preferred one; one stops.

        (Else both would win their pre-vote, split the vote, and the group waits for another election timeout.)
        """
        voters, last = self.configuration.electors, self._log.last
        theirs = claim(rival.sender, rival.last_index, rival.last_term, voters)
        if theirs < claim(self.node_id, last.index, last.term, voters):
            return False
        self.role = Role.FOLLOWER
        self._timer.retry_soon(now, self._turn())
        return True

    def _vote_response(self, now: int, response: VoteResponse) -> None:
        expected = Role.PRE_CANDIDATE if response.pre_vote else Role.CANDIDATE
        if self.role is not expected:
            return
        if response.pre_vote and response.granted and response.term != self.term + 1:
            return
        self._ballot.record(response.sender, response.granted)
        self._count_votes(now)
