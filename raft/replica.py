"""What every message does to a replica, and when it sleeps.

``RaftGroup`` (group.py) adds the driver's face; elections are in candidacy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from quorumlog.raft.candidacy import Candidacy
from quorumlog.raft.errors import InvariantViolationError, MalformedMessageError
from quorumlog.raft.types import (
    NO_NODE,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Role,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_FROM_LEADERS = (AppendRequest, Heartbeat, InstallSnapshot)


class Replica(Candidacy):
    """One replica of one group: the handlers of messages over its state."""

    __slots__ = ()

    # -- quiescence -------------------------------------------------------------------------------------------

    def sleeps_through(self, message: Message) -> bool:
        """True for what a quiescent replica takes without waking: the leader's call to sleep, and its answer."""
        if message.term != self.term:
            return False
        if isinstance(message, Heartbeat):
            return message.quiesce and message.sender == self.leader_id
        return isinstance(message, HeartbeatResponse) and message.quiescent and self.role is Role.LEADER

    def wake(self, now: int, contacts: Mapping[int, int]) -> None:
        """Ends the sleep of a quiescent replica: the lease of a node no longer stands, or somebody stirs.

        Arguments:
            contacts: node -> when it was last heard (µs), of a leader's followers when they last answered; whoever is
                not named counts as heard just now.
        """
        if self.quiescent:
            self._rouse(now, contacts)
            self._say_awake()

    def _rouse(self, now: int, contacts: Mapping[int, int]) -> None:
        self.quiescent = False
        if self._replication is not None:
            self._replication.resume(now, contacts)
        else:
            self._timer.resume(contacts.get(self.leader_id, now), self._turn())
        self._schedule(now)

    def _say_awake(self) -> None:
        # A leader that sleeps on would not speak again, and the one who woke would depose it (scenario 17).
        if self._replication is None and self.leader_id != NO_NODE:
            self._send(HeartbeatResponse(self.node_id, self.leader_id, self.term, 0))

    # -- messages ---------------------------------------------------------------------------------------------

    def step(self, now: int, message: Message) -> None:
        """Takes a message from a peer.

        Raises:
            MalformedMessageError: no correct peer sends this; nothing was changed.
            InvariantViolationError: the group is broken; stop the node.
        """
        handler = self._HANDLERS.get(type(message))
        if handler is None:
            raise MalformedMessageError(f"no Raft message: {type(message).__name__}")
        if type(message) is AppendRequest:
            _check_sequence(message)
        if self._lost_peers:
            self._lost_peers.discard(message.sender)
        if self.quiescent and not self.sleeps_through(message):
            self._rouse(now, {})
            if message.sender != self.leader_id:
                self._say_awake()
        if message.term > self.term:
            if not self._meet_higher_term(now, message):
                return
        elif message.term < self.term:
            self._answer_stale(message)
            return
        handler(self, now, message)
        if self._replication is None:
            self._schedule(now)

    def _meet_higher_term(self, now: int, message: Message) -> bool:
        """Catches up with a newer term, where the message may do that. Returns False to ignore the message."""
        if isinstance(message, VoteRequest):
            if not message.transfer and self._holds_lease(now):
                # A leader lives: who cannot hear it must not depose it for all others (thesis §4.2.3).
                return False
            if not message.pre_vote:
                self._become_follower(now, message.term, NO_NODE)
        elif isinstance(message, VoteResponse) and message.pre_vote and message.granted:
            pass  # it carries the term that was asked for, which is nobody's yet
        else:
            self._become_follower(now, message.term, message.sender if isinstance(message, _FROM_LEADERS) else NO_NODE)
            if isinstance(message, VoteResponse):
                # The campaign ran behind: with the newer term it may win, and if the leader is gone, soon.
                self._timer.retry_soon(now, self._turn())
        return True

    def _holds_lease(self, now: int) -> bool:
        # A leader steps down by itself when it has not heard a quorum, so as long as it leads its lease holds.
        return self.role is Role.LEADER or self._timer.lease_holds(now)

    def _answer_stale(self, message: Message) -> None:
        """Tells a node of an older term the newer one.

        A node that came back with a higher term ignores its leader's appends, and its leader knows nothing of it:
        without this answer it is stuck until the end of days. The same for a pre-candidate of an older term, whose
        log may be the only one that can win (scenario 13: the pre-vote deadlock).
        """
        if isinstance(message, _FROM_LEADERS):
            self._send(AppendResponse(self.node_id, message.sender, self.term, 0, True))
        elif isinstance(message, VoteRequest):
            self._send(VoteResponse(self.node_id, message.sender, self.term, message.pre_vote, False))

    def _hear_leader(self, now: int, sender: int) -> None:
        """A message of this term's leader arrived."""
        if self.role is not Role.FOLLOWER:
            if self.role is Role.LEADER:
                raise InvariantViolationError(
                    f"group {self.group}: node {sender} leads term {self.term} too: two leaders in one term"
                )
            self._become_follower(now, self.term, sender)
        elif self.leader_id != sender:
            if self.leader_id != NO_NODE:
                raise InvariantViolationError(
                    f"group {self.group}: nodes {self.leader_id} and {sender} both lead term {self.term}"
                )
            self.leader_id = sender
        self._timer.heard_leader(now)

    def _append_request(self, now: int, request: AppendRequest) -> None:
        entries = request.entries
        self._hear_leader(now, request.sender)
        log = self._log
        if request.prev_index < log.commit_index:
            # A delayed duplicate: what is committed is not looked at again (scenario 8).
            self._acknowledge(request.sender, log.commit_index)
        elif log.holds(request.prev_index, request.prev_term):
            matching = log.merge(request.prev_index, entries)
            log.commit_to(min(request.commit, matching))
            self._acknowledge(request.sender, matching)
        else:
            # Skip all of the terms that the leader cannot have: below the commit index the logs agree in any case.
            hint = log.last_at_most(min(request.prev_index, log.last.index), request.prev_term, log.commit_index)
            hint = max(hint, log.commit_index)
            self._send(
                AppendResponse(
                    self.node_id, request.sender, self.term, request.prev_index, True, hint, log.term_at(hint)
                )
            )

    def _acknowledge(self, leader: int, index: int) -> None:
        waiting = self._outbox.after_durable
        if waiting:
            newest = waiting[-1]
            # One answer stands for all of the same round.
            if (
                type(newest) is AppendResponse
                and not newest.rejected
                and newest.to == leader
                and newest.term == self.term
            ):
                newest.index = max(newest.index, index)
                return
        waiting.append(AppendResponse(self.node_id, leader, self.term, index))

    def _heartbeat(self, now: int, heartbeat: Heartbeat) -> None:
        self._hear_leader(now, heartbeat.sender)
        log = self._log
        log.commit_to(heartbeat.commit)
        # Only with all that the leader has, and not on a word from before the connection broke.
        whole = log.last.index == log.commit_index == heartbeat.commit
        self.quiescent = heartbeat.quiesce and whole and not self._timer.is_deaf(now)
        self._send(HeartbeatResponse(self.node_id, heartbeat.sender, self.term, heartbeat.round, self.quiescent))

    def _install_snapshot(self, now: int, message: InstallSnapshot) -> None:
        self._hear_leader(now, message.sender)
        snapshot = message.snapshot
        index = snapshot.last.index
        if index > self._log.commit_index:
            if self._log.holds(index, snapshot.last.term):
                # The log leads to the same state and may go on behind it: installing would delete newer, perhaps
                # acknowledged entries (scenario 6).
                self._log.commit_to(index)
            else:
                self._log.install(snapshot)
                self.configuration = snapshot.configuration
        self._send_when_durable(SnapshotResponse(self.node_id, message.sender, self.term, index))

    def _append_response(self, now: int, response: AppendResponse) -> None:
        replication = self._replication
        if replication is not None and replication.append_response(now, response):
            self._follower_advanced(response.sender)

    def _snapshot_response(self, now: int, response: SnapshotResponse) -> None:
        replication = self._replication
        if replication is not None and replication.snapshot_response(
            now, response.sender, response.index, response.rejected
        ):
            self._follower_advanced(response.sender)

    def _follower_advanced(self, follower: int) -> None:
        replication = self._replication
        if replication is None:
            return
        replication.advance_commit()
        if follower == self._transferee:
            self._hand_over_when_caught_up()

    def _hand_over_when_caught_up(self) -> None:
        replication = self._replication
        if replication is None or self._transferee == NO_NODE:
            return
        last_index = self._log.last.index
        if replication.progress[self._transferee].match_index == last_index:
            self._send(TimeoutNow(self.node_id, self._transferee, self.term, last_index))

    def _heartbeat_response(self, now: int, response: HeartbeatResponse) -> None:
        replication = self._replication
        if replication is not None:
            replication.heartbeat_response(now, response.sender, response.round, response.quiescent)
            if response.sender == self._transferee:
                # The first TimeoutNow may have been lost.
                self._hand_over_when_caught_up()

    def _timeout_now(self, now: int, message: TimeoutNow) -> None:
        if message.last_index not in (0, self._log.last.index):
            # The leader gave the transfer up and took proposals again: a delayed request must not depose it
            # (scenario 14).
            return
        self._campaign(now, transfer=True)

    _HANDLERS: ClassVar[dict[type[Message], Callable[..., None]]] = {
        AppendRequest: _append_request,
        AppendResponse: _append_response,
        Heartbeat: _heartbeat,
        HeartbeatResponse: _heartbeat_response,
        VoteRequest: Candidacy._vote_request,
        VoteResponse: Candidacy._vote_response,
        InstallSnapshot: _install_snapshot,
        SnapshotResponse: _snapshot_response,
        TimeoutNow: _timeout_now,
    }


def _check_sequence(request: AppendRequest) -> None:
    """Entries of a request follow each other and its predecessor, in terms that never fall and are not the future's."""
    index, term = request.prev_index, request.prev_term
    for entry in request.entries:
        index += 1
        if entry.index != index or not term <= entry.term <= request.term:
            raise MalformedMessageError(
                f"node {request.sender} sent entry {entry[:2]} after {(index - 1, term)} in term {request.term}"
            )
        term = entry.term
