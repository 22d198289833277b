"""A replica as follower: effects of a leader's entries, heartbeats and snapshots."""

from __future__ import annotations

from quorumlog.raft.candidacy import Candidacy
from quorumlog.raft.errors import InvariantViolationError, MalformedMessageError, UnreadableEntryError
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import (
    NO_NODE,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Role,
    SnapshotResponse,
)


class Following:
    """A replica's part as follower. Every message that it processes is of the current term."""

    __slots__ = ("_candidacy", "_log", "_outbox", "_state")

    def __init__(self, state: ReplicaState, candidacy: Candidacy) -> None:
        self._state = state
        self._log = state.log
        self._outbox = state.outbox
        self._candidacy = candidacy

    def take_append_request(self, now: int, request: AppendRequest) -> None:
        """Appends the leader's entries where the logs agree, and refuses them where they do not."""
        entries = request.entries
        self._hear_leader(now, request.sender)
        state, log = self._state, self._log
        if not all(_is_for(entry, witness=state.is_witness) for entry in entries):
            # A leader that has not applied the last changes mistakes this replica for the one that was here before it:
            # a witness, or one with data. Neither stores what is intended for the other.
            return
        if request.prev_index < log.commit_index:
            # A delayed duplicate: committed entries are not compared again (scenario 8).
            self._acknowledge(request.sender, log.commit_index)
        elif self._holds(request.prev_index, request.prev_term):
            matching = log.merge(request.prev_index, entries)
            for entry in entries:
                if entry.kind is EntryKind.CONFIG:
                    state.change_index = entry.index
            state.learn_commit(min(request.commit, matching))
            self._acknowledge(request.sender, matching)
        else:
            # Skip all terms that the leader cannot have: below the commit index the logs agree in any case.
            try:
                hint = log.last_at_most(min(request.prev_index, log.last.index), request.prev_term, log.commit_index)
            except UnreadableEntryError:
                hint = log.commit_index
            hint = max(hint, log.commit_index)
            try:
                hint_term = log.term_at(hint)
            except UnreadableEntryError:
                # The leader also has what is committed, and its terms never decrease.
                hint_term = request.prev_term
            state.send(
                AppendResponse(state.node_id, request.sender, state.term, request.prev_index, True, hint, hint_term)
            )

    def _holds(self, index: int, term: int) -> bool:
        """True if the logs agree at an index and term.

        That is unknown for a damaged entry; then an earlier one decides, with what the leader has in its place.
        """
        try:
            return self._log.holds(index, term)
        except UnreadableEntryError:
            return False

    def take_heartbeat(self, now: int, heartbeat: Heartbeat) -> None:
        """Learns what is committed, and becomes quiescent if the leader requests it and this replica has everything."""
        self._hear_leader(now, heartbeat.sender)
        state, log = self._state, self._log
        state.learn_commit(heartbeat.commit)
        # Only with everything that the leader has, and not due to a message from before the connection broke.
        whole = log.last.index == log.commit_index == heartbeat.commit
        state.quiescent = heartbeat.quiesce and whole and not self._candidacy.timer.is_deaf(now)
        response = HeartbeatResponse(state.node_id, heartbeat.sender, state.term, heartbeat.round, state.quiescent)
        if state.would_forget_change(state.durable_commit):
            # The leader treats the response as a promise: the replicas that a change removed are no longer needed. That
            # this replica is alive it has to learn immediately: stalled disks must not depose a leader.
            state.send(HeartbeatResponse(state.node_id, heartbeat.sender, state.term, 0))
            state.send_when_durable(response)
        else:
            state.send(response)

    def take_install_snapshot(self, now: int, message: InstallSnapshot) -> None:
        """Replaces the log with a snapshot, unless the log leads to the same state."""
        self._hear_leader(now, message.sender)
        state, log, snapshot = self._state, self._log, message.snapshot
        index = snapshot.last.index
        if index > log.commit_index:
            if log.holds(index, snapshot.last.term):
                # The log leads to the same state and may continue behind it: installing would delete newer, perhaps
                # acknowledged entries (scenario 6).
                state.learn_commit(index)
            else:
                log.install(snapshot)
                state.configuration = snapshot.configuration
        state.send_when_durable(SnapshotResponse(state.node_id, message.sender, state.term, index))

    def _hear_leader(self, now: int, sender: int) -> None:
        """Records that a message of this term's leader arrived."""
        state, candidacy = self._state, self._candidacy
        if state.role is not Role.FOLLOWER:
            if state.role is Role.LEADER:
                raise InvariantViolationError(
                    f"group {state.group}: node {sender} leads term {state.term} too: two leaders in one term"
                )
            candidacy.become_follower(now, state.term, sender)
        elif state.leader_id != sender:
            if state.leader_id != NO_NODE:
                raise InvariantViolationError(
                    f"group {state.group}: nodes {state.leader_id} and {sender} both lead term {state.term}"
                )
            state.leader_id = sender
        candidacy.timer.heard_leader(now)

    def _acknowledge(self, leader: int, index: int) -> None:
        """Reports to the leader, once it is durable, that this log equals the leader's up to ``index``."""
        state, waiting = self._state, self._outbox.after_durable
        if waiting:
            newest = waiting[-1]
            # One response covers all of the same round.
            if (
                type(newest) is AppendResponse
                and not newest.rejected
                and newest.to == leader
                and newest.term == state.term
            ):
                newest.index = max(newest.index, index)
                newest.has_readers = state.has_readers
                return
        waiting.append(AppendResponse(state.node_id, leader, state.term, index, has_readers=state.has_readers))


def _is_for(entry: Entry, *, witness: bool) -> bool:
    """True if an entry is of the kind that a witness stores, or that all others store."""
    return entry.kind is EntryKind.CONFIG or (entry.kind is EntryKind.TRACE) == witness


def check_sequence(request: AppendRequest) -> None:
    """Checks that the entries of a request follow each other and its predecessor.

    Their terms must not decrease, nor exceed the request's.

    Raises:
        MalformedMessageError: they do not.
    """
    index, term = request.prev_index, request.prev_term
    for entry in request.entries:
        index += 1
        if entry.index != index or not term <= entry.term <= request.term:
            raise MalformedMessageError(
                f"node {request.sender} sent entry {entry[:2]} after {(index - 1, term)} in term {request.term}"
            )
        term = entry.term
