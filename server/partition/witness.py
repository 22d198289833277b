"""A partition's witness on this node: a voter that stores the index, the term and the hash of each entry.

It applies nothing, serves nothing and never leads. Its only state is a log of traces, whose beginning it removes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Entry, EntryId, Snapshot
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Key of the row that marks a replica as a witness, whatever the current metadata.
WITNESS_ROW = b"w"
_APPLIED = struct.Struct("<Q")


def is_witness(table: Mapping[bytes, object]) -> bool:
    """True if the replica with these rows is a witness."""
    return WITNESS_ROW in table


def witness_rows(applied: int = 0) -> dict[bytes, bytes]:
    """Returns the rows of a witness that has applied its log up to an index."""
    return {WITNESS_ROW: _APPLIED.pack(applied)}


def applied_of(table: Mapping[bytes, bytes]) -> int:
    """Returns the applied index of a witness with these rows."""
    return int(_APPLIED.unpack(table[WITNESS_ROW])[0])


class PartitionWitness:
    """A witness over one Raft group.

    Arguments:
        raft: the group's replica on this node.
        table: its rows as found on disk.
    """

    def __init__(self, identity: PartitionId, raft: RaftGroup, table: Mapping[bytes, bytes]) -> None:
        assert raft.is_witness
        self.identity = identity
        self.group = raft.group
        self.raft = raft
        #: It has no state to offer.
        self.snapshot: Snapshot | None = None
        self._applied = max(applied_of(table), raft.anchor.index)
        self._rows_due = False

    # -- the replicated state: an index -----------------------------------------------------------------------

    def apply(self, entries: list[Entry]) -> None:
        """Advances the applied index over committed entries."""
        for entry in entries:
            assert entry.index == self._applied + 1, f"group {self.group}: applied {self._applied}, then {entry.index}"
            self._applied = entry.index
        self._rows_due = True

    def restore(self, snapshot: Snapshot) -> None:
        """Restarts the log after the snapshot's last entry."""
        self._applied = snapshot.last.index
        self._rows_due = True

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the rows of the table that changed, to be written with the next transaction."""
        if not self._rows_due:
            return {}
        self._rows_due = False
        return {**witness_rows(self._applied)}

    def log_to_give_up(self, most_traces: int) -> EntryId | None:
        """Returns the last entry that is no longer needed, since no replica copies from a witness.

        Arguments:
            most_traces: number of traces that are kept.

        Returns:
            None as long as there are fewer.
        """
        raft = self.raft
        last = min(raft.applied_index, raft.durable_index)
        if last - raft.anchor.index < most_traces:
            return None
        try:
            return raft.entry_id(last)
        except UnreadableEntryError:
            # It is being repaired; the next one will do too.
            return None

    # -- requests ---------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """False: a witness never leads."""
        return False

    @property
    def name(self) -> str:
        """Name in the form topic-number."""
        return f"{self.identity.topic}-{self.identity.number}"

    def configure(self, configs: Mapping[str, str]) -> None:
        """Does nothing: a topic's configuration concerns only replicas with records."""

    def not_leader(self) -> errors_pb2.Error:
        """Returns the error for a request that only the leader can serve."""
        return error(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this node is the witness of {self.name} and has no records of it; ask its leader",
            leader=self.raft.leader_id,
            leader_epoch=self.raft.term,
        )
