"""A replica's part in changes of its Raft group's members: one is proposed at a time, and applies once committed.

Supported changes, and their steps, are in membership.py.
"""

from __future__ import annotations

from quorumlog.raft.candidacy import Candidacy
from quorumlog.raft.errors import InvariantViolationError, ProposalRefusedError, Refusal
from quorumlog.raft.leading import Leading
from quorumlog.raft.membership import after_joint, next_step
from quorumlog.raft.replication import Replication
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import NO_NODE, Configuration, Entry, EntryKind, EntrySealer, TimeoutNow


class ConfigurationChanges:
    """Proposes changes of the members, one at a time, and applies them once they are committed."""

    __slots__ = ("_candidacy", "_leading", "_sealer", "_state")

    def __init__(self, state: ReplicaState, leading: Leading, candidacy: Candidacy, sealer: EntrySealer) -> None:
        self._state = state
        self._leading = leading
        self._candidacy = candidacy
        self._sealer = sealer

    # -- proposing --------------------------------------------------------------------------------------------

    @property
    def is_pending(self) -> bool:
        """True for a leader whose log may hold a change that is not applied yet."""
        return self._leading.pending_change_index > self._state.log.applied_index

    def next_step_to(self, wanted: Configuration) -> Configuration:
        """Returns the configuration to propose now, on the way to ``wanted``.

        Raises:
            ProposalRefusedError: another change is in progress.
            UnsupportedChangeError: the change is not supported.
        """
        if self.is_pending or self._state.configuration.is_joint:
            raise ProposalRefusedError(Refusal.CONFIGURATION_PENDING)
        return next_step(self._state.configuration, wanted)

    def append(self, configuration: Configuration) -> Entry:
        """Appends a change of members to the leader's log."""
        sealer = self._sealer
        entry = self._leading.append_own(
            lambda index, term, previous: sealer.config(index, term, previous, configuration)
        )
        self._leading.pending_change_index = entry.index
        self._state.change_index = entry.index
        return entry

    def leave_joint(self) -> None:
        """Proposes the configuration after a joint one, if this leader has applied a joint one.

        It does so once, because that configuration is then pending. The next leader waits until its whole tail is
        applied (scenario 11).
        """
        configuration = self._state.configuration
        if (
            self._leading.replication is not None
            and configuration.is_joint
            and self._leading.transfer.to == NO_NODE
            and not self.is_pending
        ):
            self.append(after_joint(configuration))

    # -- applying ---------------------------------------------------------------------------------------------

    def apply_those_in(self, committed: list[Entry]) -> bool:
        """Applies changes of members among delivered committed entries. Returns True if there was one."""
        changed = False
        for entry in committed:
            if entry.kind is EntryKind.CONFIG:
                self._apply(entry)
                changed = True
        self.leave_joint()
        return changed

    def _apply(self, entry: Entry) -> None:
        state, replication = self._state, self._leading.replication
        configuration = self._sealer.configuration_of(entry)
        state.configuration = configuration
        state.configuration_index = entry.index
        state.change_index = max(state.change_index, entry.index)
        if replication is None:
            # The change may be of the past: the node's former replica may have been a witness, or the new one may be.
            return
        if state.node_id in configuration.witnesses:
            raise InvariantViolationError(f"group {state.group}: leader {state.node_id} is a witness: {configuration}")
        now = replication.configure(configuration)
        if self._leading.transfer.to not in configuration.data_voters:
            self._leading.transfer.end()
        if state.is_voter:
            # With fewer voters, more may be committed already.
            replication.advance_commit()
        else:
            # This leader was removed. It steps down only after that is committed: until then it may be the only one
            # that could commit it. It sends no more heartbeats, which would prevent the remaining voters from electing
            # (scenario 12).
            self._abdicate(now, replication)

    def _abdicate(self, now: int, replication: Replication) -> None:
        """Steps down after this leader was removed, and asks the voter with the longest log to campaign."""
        state, progress = self._state, replication.progress
        heir = max(state.configuration.data_voters, key=lambda voter: progress[voter].match_index)
        state.send(TimeoutNow(state.node_id, heir, state.term))
        self._candidacy.become_follower(now, state.term, NO_NODE)

    @property
    def is_everywhere(self) -> bool:
        """True for a leader all of whose voters durably hold the newest change, and have durably stored that it is
        committed.

        See ``is_configuration_everywhere``.
        """
        state, replication = self._state, self._leading.replication
        if replication is None or state.configuration.is_joint or not self._leading.leads_committed:
            return False
        if self.is_pending:
            return False
        wanted = max(replication.term_start, state.configuration_index)
        others = [replication.progress[voter] for voter in state.configuration.voters if voter != state.node_id]
        # A voter that holds the change, but has not learned that it is committed, requests votes from those that were
        # removed (scenario 12): they must exist until all voters have learned it, including this leader, and none can
        # forget it.
        return (
            state.log.durable_index >= wanted
            and state.durable_commit >= state.configuration_index
            and all(min(progress.match_index, progress.known_commit) >= wanted for progress in others)
        )
