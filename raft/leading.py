"""A replica as leader: it opens its term, appends, sends heartbeats and processes the followers' responses.

Its state of each follower is in replication.py. That exists for one term; ``Leading`` outlives it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from quorumlog.raft.errors import InvariantViolationError, NotLeaderError, ProposalRefusedError, Refusal
from quorumlog.raft.replication import NEVER, Replication
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.transfer import LeadershipTransfer
from quorumlog.raft.types import (
    NO_NODE,
    AppendResponse,
    Entry,
    EntrySealer,
    Heartbeat,
    HeartbeatResponse,
    Seal,
    SnapshotResponse,
)


class Leading:
    """A replica's duties as leader.

    Attributes:
        replication: state of the term that this replica leads; None while it does not lead.
        transfer: the transfer of its leadership.
        pending_change_index: members must not be changed before the entry at this index is applied.
        heartbeat_round: number of the newest round of heartbeats, counted over all terms.
    """

    __slots__ = (
        "_last_index_at_heartbeat",
        "_sealer",
        "_state",
        "heartbeat_round",
        "pending_change_index",
        "replication",
        "transfer",
    )

    def __init__(self, state: ReplicaState, sealer: EntrySealer) -> None:
        self._state = state
        self._sealer = sealer
        self._last_index_at_heartbeat = 0
        self.replication: Replication | None = None
        self.transfer = LeadershipTransfer(state)
        self.pending_change_index = 0
        self.heartbeat_round = 0

    # -- the term ---------------------------------------------------------------------------------------------

    def open_term(self, now: int, lost_peers: AbstractSet[int]) -> None:
        """Starts to lead the term for which this replica was elected.

        Arguments:
            lost_peers: peers whose connection broke and that have sent nothing since.
        """
        state = self._state
        # An entry of the tail may be a configuration change of an earlier leader. Another one waits until all of the
        # tail is applied, and the no-op behind it, with which this leader learns what is committed. Otherwise a joint
        # configuration would be left twice (scenario 11).
        self.pending_change_index = state.log.last.index + 1
        self.replication = Replication(
            node_id=state.node_id,
            term=state.term,
            log=state.log,
            options=state.options,
            configuration=state.configuration,
            now=now,
            lost_peers=lost_peers,
            trace=self._sealer.trace,
        )
        # Entries of earlier terms are committed only with one of this term: without this no-op the group would wait for
        # the next proposal (Raft §8; scenario 1).
        self.append_own(self._sealer.noop)

    def close_term(self) -> None:
        """Stops leading."""
        self.replication = None
        self.transfer.end()

    @property
    def leads_committed(self) -> bool:
        """True for a leader that has committed an entry of its term: only then can it tell what is committed."""
        replication = self.replication
        return replication is not None and self._state.log.commit_index >= replication.term_start

    def next_deadline(self, replication: Replication) -> int:
        """Returns when the leader must check its quorum or abandon a transfer, in microseconds."""
        contact = replication.quorum_contact()
        check = contact + self._state.options.election_timeout_us if contact < NEVER else NEVER
        return min(check, self.transfer.deadline)

    # -- entries ----------------------------------------------------------------------------------------------

    def open_for_proposals(self) -> Replication:
        """Returns this leader's state of its followers, if it accepts proposals now.

        Raises:
            NotLeaderError: this replica does not lead.
            ProposalRefusedError: its leadership is being handed over.
        """
        if self.replication is None:
            raise NotLeaderError(self._state.leader_id)
        if self.transfer.to != NO_NODE:
            # The next leader might not have an entry that is accepted now (scenario 14).
            raise ProposalRefusedError(Refusal.TRANSFERRING)
        return self.replication

    def append_own(self, seal: Seal) -> Entry:
        """Appends an entry of this leader's term."""
        state, replication = self._state, self.replication
        last = state.log.last
        entry = seal(last.index + 1, state.term, last.hash)
        if replication is None or entry.index != last.index + 1 or entry.term != state.term:
            raise InvariantViolationError(
                f"group {state.group}: entry {entry[:2]} sealed for {last.index + 1, state.term}"
            )
        state.log.append([entry])
        replication.appended(entry)
        return entry

    # -- heartbeats -------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True when nothing was appended since the last heartbeat."""
        return self._last_index_at_heartbeat == self._state.log.last.index

    def send_heartbeats(self, now: int, replication: Replication) -> None:
        """Sends a heartbeat to every other member, as the next round."""
        state = self._state
        self.heartbeat_round += 1
        replication.review_engagement(now)
        commit_index = state.log.commit_index
        for member, progress in replication.progress.items():
            if member != state.node_id:
                # Never beyond what the member is known to have: its log may still end in another leader's entries.
                commit = min(progress.match_index, commit_index)
                progress.sent_heartbeat(self.heartbeat_round, commit)
                state.send(Heartbeat(state.node_id, member, state.term, commit, self.heartbeat_round))
        if self.is_idle:
            # Nothing was appended for a whole interval: an idle group keeps nothing in memory.
            state.log.trim(0)
        self._last_index_at_heartbeat = state.log.last.index

    # -- responses of followers --------------------------------------------------------------------------------

    def take_append_response(self, now: int, response: AppendResponse) -> None:
        """Processes a follower's response to entries. Does nothing if this replica does not lead."""
        replication = self.replication
        if replication is not None and replication.append_response(now, response):
            self._follower_advanced(replication, response.sender)

    def take_snapshot_response(self, now: int, response: SnapshotResponse) -> None:
        """Processes a follower's response to a snapshot. Does nothing if this replica does not lead."""
        replication = self.replication
        if replication is not None and replication.snapshot_response(
            now, response.sender, response.index, response.rejected
        ):
            self._follower_advanced(replication, response.sender)

    def take_heartbeat_response(self, now: int, response: HeartbeatResponse) -> None:
        """Processes a follower's response to a heartbeat. Does nothing if this replica does not lead."""
        replication = self.replication
        if replication is not None:
            replication.heartbeat_response(now, response.sender, response.round, response.quiescent)
            if response.sender == self.transfer.to:
                # The first TimeoutNow may have been lost.
                self.transfer.hand_over_when_caught_up(replication)

    def _follower_advanced(self, replication: Replication, follower: int) -> None:
        replication.advance_commit()
        if follower == self.transfer.to:
            self.transfer.hand_over_when_caught_up(replication)
