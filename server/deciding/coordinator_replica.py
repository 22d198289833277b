"""One replica of a coordinator: the state from its log, and its leadership.

The whole state is in memory; snapshots replace the log as they do the metadata's. State that only a leader has (queued
calls, timers, the decision in flight) is its leader's, created for every term and discarded with it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Generic, Protocol

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import ORIGIN, Entry, EntryId, EntryKind, Snapshot
from quorumlog.server.deciding.coordinator_kind import CommandT, CommandT_contra, CoordinatorKind, TableT
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import ENVELOPE_BYTES

META_ROW = b"m"
_META = struct.Struct("<Q")


class ReadSnapshot(Protocol):
    """Reads the data of a snapshot on this node's disk."""

    def __call__(self, snapshot: Snapshot, /) -> bytes:
        """Returns the whole data."""


class CoordinatorTerm(Protocol[CommandT_contra]):
    """The leader state of a coordinator, which is notified of its applied decisions."""

    @property
    def term(self) -> int:
        """The Raft term in which it leads."""

    def applied(self, index: int, term: int, command: CommandT_contra, changed: set[str]) -> None:
        """Handles an applied command that changed these keys."""


class CoordinatorReplica(Generic[TableT, CommandT]):
    """A coordinator's state machine over one Raft group.

    Arguments:
        raft: its replica on this node.
        snapshot: the newest one found at opening.

    Attributes:
        group: its Raft group.
        table: the state that the log has made.
        leadership: the leader state of this replica; None while it does not lead, or is not ready to.
        entry_bytes: bytes of the commands applied since the newest snapshot.
    """

    def __init__(
        self,
        kind: CoordinatorKind[TableT, CommandT],
        identity: PartitionId,
        raft: RaftGroup,
        sealer: GroupSealer,
        snapshot: Snapshot | None,
        read: ReadSnapshot,
    ) -> None:
        self.kind = kind
        self.identity = identity
        self.group = raft.group
        self.raft = raft
        self.snapshot = snapshot
        self.table = kind.table() if snapshot is None else kind.table.from_snapshot(read(snapshot))[0]
        self.last_applied = snapshot.last if snapshot is not None else ORIGIN
        self.leadership: CoordinatorTerm[CommandT] | None = None
        self.entry_bytes = 0
        self._sealer = sealer
        self._read = read
        self._rows_due = False

    @property
    def name(self) -> str:
        """Name in the form topic-number."""
        return f"{self.identity.topic}-{self.identity.number}"

    def configure(self, configs: Mapping[str, str]) -> None:
        """Does nothing: a coordinator has no configuration of its own."""

    # -- the replicated state ---------------------------------------------------------------------------------

    def apply(self, entries: list[Entry]) -> None:
        """Applies committed entries, in order."""
        for entry in entries:
            assert entry.index == self.last_applied.index + 1, f"{self.name}: {self.last_applied}, then {entry.index}"
            self.last_applied = EntryId(entry.index, entry.term, entry.hash)
            if entry.kind is not EntryKind.COMMAND:
                continue
            self.entry_bytes += len(entry.data)
            command = self.kind.command.FromString(entry.data[ENVELOPE_BYTES:])
            changed = self.table.apply(command, self.last_applied)
            if self.leadership is not None:
                self.leadership.applied(entry.index, entry.term, command, changed)
        self._rows_due = True

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the state by that of a snapshot."""
        self.table = self.kind.table.from_snapshot(self._read(snapshot))[0]
        self.snapshot = snapshot
        self.last_applied = snapshot.last
        self.entry_bytes = 0

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the row with the applied index, a lower bound of the commit index after a restart."""
        if not self._rows_due:
            return {}
        self._rows_due = False
        return {META_ROW: _META.pack(self.last_applied.index)}

    # -- snapshots --------------------------------------------------------------------------------------------

    def is_checkpoint_due(self, max_entries: int, max_bytes: int) -> bool:
        """True if enough was applied since the newest snapshot to justify another, and all of it is on this node's own
        disk."""
        entries = self.last_applied.index - (self.snapshot.last.index if self.snapshot is not None else 0)
        # A large state is not written again for a few changes.
        least = max(max_bytes, self.snapshot.data.size_bytes if self.snapshot is not None else 0)
        due = entries >= max_entries or self.entry_bytes >= least
        return due and self.raft.durable_index >= self.last_applied.index

    def to_snapshot(self) -> bytes:
        """Returns the state in the format of a snapshot; commands applied from now on count towards the next one."""
        self.entry_bytes = 0
        return self.table.to_snapshot(self.last_applied.index)

    def take_due_checkpoint(self, snapshots: Snapshots, max_entries: int, max_bytes: int) -> None:
        """Starts to write a snapshot if one is due and this node may write one now."""
        if self.is_checkpoint_due(max_entries, max_bytes) and snapshots.may_checkpoint(self.group):
            last, configuration = self.last_applied, self.raft.configuration
            snapshots.checkpoints.begin(self.group, last, configuration, self.to_snapshot(), self.checkpointed)

    def checkpointed(self, snapshot: Snapshot) -> None:
        """Records that a snapshot is durable: from now on it is the one to offer."""
        self.snapshot = snapshot

    # -- leadership -------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True while this replica leads and decides."""
        return self.leadership is not None and self.raft.is_leader and self.raft.term == self.leadership.term

    def may_lead(self, metadata_index: int) -> bool:
        """True if a leadership can start: this replica leads and has applied all decisions before its term, and its
        node has applied the metadata on which the earlier leaders based their decisions.

        Arguments:
            metadata_index: applied index of the metadata log on this node.
        """
        led = self.raft.is_leader and self.last_applied.term == self.raft.term
        return led and metadata_index >= self.table.metadata_index

    def propose(self, now: int, command: CommandT) -> int | None:
        """Proposes a decision to the log and returns its index; None if that is impossible now."""
        try:
            body = command.SerializeToString(deterministic=True)
            return self.raft.propose(now, self._sealer.command(body)).index
        except (NotLeaderError, ProposalRefusedError):
            return None

    def not_leader(self) -> errors_pb2.Error:
        """Returns the error for a request that only the leader can serve, with the known leader as a hint."""
        return self.not_coordinator(definite=True)

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        """Returns the error for a call that is not answered here.

        Arguments:
            definite: False if the call may have taken effect.
        """
        if definite and self.raft.is_leader:
            return error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the new leader of {self.name} is not ready yet: try again",
                leader=self.raft.node_id,
                leader_epoch=self.raft.term,
            )
        return error(
            ErrorCode.NOT_COORDINATOR,
            f"this node does not lead {self.name}, which keeps the {self.kind.noun}: ask FindCoordinators",
            definite=definite,
            leader=self.raft.leader_id,
            leader_epoch=self.raft.term,
        )


def decode_applied(table: Mapping[bytes, bytes]) -> int:
    """Returns the index up to which a coordinator's log was known to be committed when its table was last written."""
    row = table.get(META_ROW)
    return int(_META.unpack(row)[0]) if row is not None else 0
