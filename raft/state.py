"""State shared by all parts of a replica: its term and vote, its role, its log, its members and its outbox.

It is the state of the Raft paper (figure 2) with the role added. The parts (candidacy.py, leading.py, following.py and
so on) read and change it; each rule is in one of them.
"""

from __future__ import annotations

from quorumlog.raft.errors import InvariantViolationError, UnreadableEntryError
from quorumlog.raft.log import RaftLog
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.outbox import Outbox
from quorumlog.raft.types import NO_NODE, EntryKind, Message, RaftLogServices, RestoredReplica, Role

#: Bytes of entries found on disk that are searched for a change of members when they are committed.
MOST_LOOKED_AT_BYTES = 1 << 16


class ReplicaState:
    """The state of one replica of one Raft group.

    Attributes:
        node_id: this replica's node.
        is_witness: it keeps no payload: it votes and counts, and never leads.
        group: the Raft group's id.
        options: limits and times.
        log: the entries, with commit and applied index.
        outbox: messages on their way out.
        term: the current term. Never decreases, and no message carries one that is not durable here.
        vote: the node that this replica voted for in ``term``, or NO_NODE.
        durable_term: the newest term that is on this replica's disk.
        role: Role.
        leader_id: the leader of ``term`` if known, otherwise NO_NODE.
        configuration: members as of the applied index.
        configuration_index: of the last entry applied since the start that changed them; 0 before the first.
        change_index: of the newest change of members in the log, as far as it arrived or was applied since the start.
            That the previous one is committed is on the disk, since that was written with this one.
        durable_commit: entries up to here are known to be committed after a restart, too.
        has_readers: clients read from this replica although it does not lead: its leader notifies it of commits at
            once.
        quiescent: the Raft group is idle: this replica has no deadline, and there are no heartbeats. The lease between
            its node and the leader's replaces both (quiescence.py).
    """

    __slots__ = (
        "_found_last",
        "change_index",
        "configuration",
        "configuration_index",
        "durable_commit",
        "durable_term",
        "group",
        "has_readers",
        "is_leader",
        "is_witness",
        "leader_id",
        "log",
        "node_id",
        "options",
        "outbox",
        "quiescent",
        "role",
        "term",
        "vote",
    )

    def __init__(self, restored: RestoredReplica, services: RaftLogServices, options: RaftOptions) -> None:
        group, last, hard_state = restored.group, restored.last, restored.hard_state
        if restored.first_index != restored.anchor.index + 1:
            raise InvariantViolationError(
                f"group {group}: the log starts at {restored.first_index}, its anchor is {restored.anchor.index}"
            )
        if last.term > hard_state.term:
            # Term and vote were lost while entries survived: it might vote twice in a term (scenario 2).
            raise InvariantViolationError(
                f"group {group}: the log ends in term {last.term}, the hard state is of term {hard_state.term}"
            )
        self.node_id = restored.node_id
        self.is_witness = restored.is_witness
        self.group = group
        self.options = options
        self.term = self.durable_term = hard_state.term
        self.vote = hard_state.vote
        self.become(Role.FOLLOWER)
        self.leader_id = NO_NODE
        self.configuration = restored.configuration
        self.configuration_index = 0
        self.has_readers = False
        self.quiescent = False
        self.log = RaftLog(
            store=services.store,
            anchor=restored.anchor,
            last=last,
            commit=hard_state.commit,
            applied=restored.applied,
            check_chain=services.check_chain,
        )
        self.durable_commit = self.log.commit_index
        self.change_index = 0
        self._found_last = last.index
        self.outbox = Outbox()

    def become(self, role: Role) -> None:
        """Takes a role."""
        self.role = role
        self.is_leader = role is Role.LEADER

    def learn_commit(self, index: int) -> None:
        """Records a commit index from the leader.

        Entries that were found on disk have not been searched for a change of members before.
        """
        log, before = self.log, self.log.commit_index
        log.commit_to(index)
        first, last = max(before + 1, log.first_index), min(log.commit_index, self._found_last)
        if first > last:
            return
        try:
            entries = log.slice(first, last, MOST_LOOKED_AT_BYTES)
        except UnreadableEntryError:
            entries = []
        if not entries or entries[-1].index < last:
            # If the entries are not read, their end counts as a change, which costs a write.
            self.change_index = max(self.change_index, last)
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                self.change_index = max(self.change_index, entry.index)

    def would_forget_change(self, commit: int) -> bool:
        """True if a replica that has learned only ``commit`` to be committed could consider a change of members
        uncommitted.

        That is, one that this replica has learned to be committed.
        """
        return commit < self.change_index <= self.log.commit_index

    @property
    def is_voter(self) -> bool:
        """True if this replica's configuration counts its vote."""
        return self.node_id in self.configuration.electors

    @property
    def may_lead(self) -> bool:
        """True if this replica's configuration lets it campaign, and it has the data that a leader needs."""
        return not self.is_witness and self.node_id in self.configuration.candidates

    def send(self, message: Message) -> None:
        """Sends a message that depends only on the term: immediately if the term is durable.

        No peer ever sees a term that a crash could make its sender forget.
        """
        if self.durable_term == self.term:
            self.outbox.now.append(message)
        else:
            self.outbox.after_durable.append(message)

    def send_when_durable(self, message: Message) -> None:
        """Sends a message that is a promise: after everything decided so far is durable (scenario 3)."""
        self.outbox.after_durable.append(message)
