"""Quiescence of an idle Raft group: no deadline and no heartbeats, until something happens.

While a replica is quiescent, the lease between its node and the leader's node replaces deadlines and heartbeats. The
driver maintains the leases (docs/internals/raft.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from quorumlog.raft.candidacy import Candidacy
from quorumlog.raft.leading import Leading
from quorumlog.raft.replication import Replication
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import NO_NODE, Heartbeat, HeartbeatResponse, Message, Role


class Quiescence:
    """Puts a replica to sleep and wakes it."""

    __slots__ = ("_candidacy", "_leading", "_state")

    def __init__(self, state: ReplicaState, leading: Leading, candidacy: Candidacy) -> None:
        self._state = state
        self._leading = leading
        self._candidacy = candidacy

    def sleeps_through(self, message: Message) -> bool:
        """True for messages that do not wake a quiescent replica: the leader's call to quiescence, and its response."""
        state = self._state
        if message.term != state.term:
            return False
        if isinstance(message, Heartbeat):
            return message.quiesce and message.sender == state.leader_id
        return isinstance(message, HeartbeatResponse) and message.quiescent and state.role is Role.LEADER

    def call_to_sleep(self, reachable: Container[int]) -> bool:
        """Makes a leader's idle group quiescent, or calls those followers again that have not responded yet.

        Returns:
            False, with nothing done, unless the group may become quiescent (``RaftGroup.quiesce``).
        """
        state, leading, log = self._state, self._leading, self._state.log
        replication = leading.replication
        if replication is None or leading.transfer.to != NO_NODE or not leading.is_idle:
            return False
        if state.configuration.is_joint:
            return False
        at_rest = log.applied_index == log.commit_index == log.durable_index == log.last.index
        if not at_rest or not leading.leads_committed or not replication.is_settled(reachable):
            return False
        if state.quiescent:
            called = replication.awake_members(reachable)
        else:
            called = [member for member in replication.progress if member != state.node_id and member in reachable]
            log.trim(0)
            state.quiescent = True
        if called:
            self._send_calls(replication, called)
        return True

    def _send_calls(self, replication: Replication, called: list[int]) -> None:
        state, leading = self._state, self._leading
        leading.heartbeat_round += 1
        replication.call_to_sleep(called, leading.heartbeat_round)
        for member in called:
            # A follower that missed the call would wait for a heartbeat that never comes, and campaign.
            replication.progress[member].sent_heartbeat(leading.heartbeat_round, state.log.last.index)
            call = Heartbeat(state.node_id, member, state.term, state.log.last.index, leading.heartbeat_round, True)
            state.send(call)

    def end(self, now: int, contacts: Mapping[int, int]) -> None:
        """Wakes this replica.

        Arguments:
            contacts: node -> when its last message arrived (µs). A node that is not named counts as if it had just sent
                one.
        """
        state, replication = self._state, self._leading.replication
        state.quiescent = False
        if replication is not None:
            replication.resume(now, contacts)
        else:
            self._candidacy.resume(contacts.get(state.leader_id, now))

    def say_awake(self) -> None:
        """Reports to the leader that this follower has woken.

        A leader that remains quiescent would not send again, and the follower that woke would depose it (scenario 17).
        """
        state = self._state
        if self._leading.replication is None and state.leader_id != NO_NODE:
            state.send(HeartbeatResponse(state.node_id, state.leader_id, state.term, 0))
