"""One Raft group on a simulated disk: the effect of a ``RaftGroupWrite``, in memory.

It rejects the same writes as the shipped storage, and gives the same answers: a test applies the same transactions to
both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.storage.batch_row import BatchRow, any_batch, next_row
from quorumlog.storage.interface import FatalStorageError
from quorumlog.storage.transaction import RaftGroupWrite, SnapshotSlice
from quorumlog.wire.entry import parse_envelope, parse_header


@dataclass(slots=True)
class DurableRaftGroup:
    """The durable state of one Raft group.

    Arguments:
        slices: slices of snapshots, by stage and number: of the newest one, and of those that are being staged.
        batches: the rows of the offset index, in order.
    """

    group: int
    configuration: Configuration
    hard_state: HardState = field(default_factory=HardState)
    anchor: EntryId = ORIGIN
    entries: list[Entry] = field(default_factory=list)
    snapshot: Snapshot | None = None
    slices: dict[int, dict[int, bytes]] = field(default_factory=dict)
    table: dict[bytes, bytes] = field(default_factory=dict)
    batches: list[BatchRow] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def last(self) -> EntryId:
        """Id of the last entry, or of the anchor."""
        return identity_of(self.entries[-1]) if self.entries else self.anchor

    def entry(self, index: int) -> Entry | None:
        """Returns the entry at ``index``, if it is retained."""
        place = index - self.anchor.index - 1
        return self.entries[place] if 0 <= place < len(self.entries) else None

    def find_offset(self, offset: int) -> int | None:
        """Returns the index of the first batch whose last offset is at or after ``offset``."""
        row = self.find_batch(offset, any_batch)
        return row.index if row is not None else None

    def find_batch(self, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """Returns the first batch that contains ``first_offset`` or a later one and for which ``reached`` holds."""
        place = bisect_left(self.batches, first_offset, key=attrgetter("last_offset"))
        place = bisect_left(self.batches, True, lo=place, key=reached)
        return self.batches[place] if place < len(self.batches) else None

    # -- parts of a write --------------------------------------------------------------------------------------------

    def stage(self, piece: SnapshotSlice) -> None:
        """Stores a slice of a future snapshot."""
        in_use = self.snapshot is not None and self.snapshot.data.stage == piece.stage
        kept = self.slices.setdefault(piece.stage, {})
        fresh = not in_use and piece.number not in kept
        self._require(fresh, f"slice {piece.number} of stage {piece.stage:#x}, which exists already")
        kept[piece.number] = piece.data
        self.size_bytes += len(piece.data)

    def unstage(self, stage: int) -> None:
        """Drops unreferenced slices. The shipped storage does so later; they must not be read in the meantime."""
        in_use = self.snapshot is not None and self.snapshot.data.stage == stage
        self._require(not in_use, f"unstage of {stage:#x}, the data of its snapshot")
        self.size_bytes -= sum(map(len, self.slices.pop(stage, {}).values()))

    def drop_unfinished(self) -> None:
        """Drops stages that were unfinished when the process crashed, as at opening."""
        kept = self.snapshot.data.stage if self.snapshot is not None else None
        for stage in [stage for stage in self.slices if stage != kept]:
            self.unstage(stage)

    def _switch(self, snapshot: Snapshot) -> None:
        staged = self.slices.get(snapshot.data.stage, {})
        whole = list(staged) == list(range(snapshot.data.slices)) != []
        self._require(whole, f"snapshot of {snapshot.data.slices} slices, of which {list(staged)} are staged")
        before, self.snapshot = self.snapshot, snapshot
        if before is not None and before.data.stage != snapshot.data.stage:
            self.unstage(before.data.stage)

    def install(self, snapshot: Snapshot) -> None:
        """Replaces log and table."""
        floor = max(self.hard_state.commit, self.anchor.index)
        self._require(snapshot.last.index >= floor, f"snapshot at {snapshot.last.index} is older than {floor}")
        if snapshot.data.slices:
            self._switch(snapshot)
        else:
            # A witness's snapshot: the point alone.
            before, self.snapshot = self.snapshot, None
            if before is not None:
                self.unstage(before.data.stage)
        self.anchor = snapshot.last
        self.configuration = snapshot.configuration
        self.size_bytes -= sum(len(entry.data) for entry in self.entries)
        self.entries, self.batches, self.table = [], [], {}

    def truncate(self, index: int) -> None:
        """Removes the entries from ``index`` on."""
        floor = max(self.anchor.index, self.hard_state.commit)
        self._require(index > floor, f"truncation from {index}, committed or compacted up to {floor}")
        keep = index - self.anchor.index - 1
        self.size_bytes -= sum(len(entry.data) for entry in self.entries[keep:])
        del self.entries[keep:]
        while self.batches and self.batches[-1].index >= index:
            self.batches.pop()

    def append(self, entry: Entry) -> None:
        """Adds the entry that follows the last one."""
        last = self.last
        envelope = parse_envelope(entry.data)
        follows = (
            entry.index == envelope.index == last.index + 1
            and entry.term == envelope.term >= last.term
            and envelope.group == self.group
            and envelope.previous_hash == last.hash
        )
        self._require(follows, f"entry {entry.index} of term {entry.term}, {envelope} after {last}")
        self.entries.append(entry)
        self.size_bytes += len(entry.data)
        if entry.kind == EntryKind.BATCH:
            header = parse_header(entry.data)
            before = self.batches[-1] if self.batches else None
            size = len(entry.data)
            row = next_row(before, entry.index, header.base_offset, header.record_count, header.max_timestamp_ms, size)
            self._require(row is not None, f"batch {entry.index} at offset {header.base_offset} after {before}")
            assert row is not None
            self.batches.append(row)

    def set_hard_state(self, state: HardState) -> None:
        """Replaces term, vote and commit index."""
        old = self.hard_state
        kept_vote = state.term > old.term or state.vote == old.vote or old.vote < 0
        holds = state.term >= old.term and kept_vote and old.commit <= state.commit <= self.last.index
        self._require(holds, f"hard state {state} after {old}, log ends at {self.last.index}")
        self.hard_state = state

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Stores a snapshot of the state at an entry in the log."""
        self._require_entry(snapshot.last, "checkpoint at")
        self._switch(snapshot)

    def compact(self, up_to: EntryId) -> None:
        """Removes the entries up to and including ``up_to``."""
        if up_to.index == self.anchor.index:
            return
        self._require_entry(up_to, "compaction to")
        gone = up_to.index - self.anchor.index
        self.size_bytes -= sum(len(entry.data) for entry in self.entries[:gone])
        del self.entries[:gone]
        self.anchor = up_to
        del self.batches[: bisect_right(self.batches, up_to.index, key=attrgetter("index"))]

    def _require_entry(self, wanted: EntryId, what: str) -> None:
        entry = self.entry(wanted.index)
        known = self.anchor if wanted.index == self.anchor.index else identity_of(entry) if entry is not None else None
        self._require(known == wanted, f"{what} {wanted}, the log has {known}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise FatalStorageError(f"refused to write group {self.group}: {what}")


def identity_of(entry: Entry) -> EntryId:
    """Returns an entry's identity."""
    return EntryId(entry.index, entry.term, entry.hash)


def apply_write(group: DurableRaftGroup | None, write: RaftGroupWrite) -> DurableRaftGroup | None:
    """Executes a write; returns the resulting group, or None if none exists.

    Raises:
        FatalStorageError: the write contradicts the stored state.
    """
    if write.create is not None:
        if group is not None:
            raise FatalStorageError(f"refused to write group {write.group}: create of a replica that exists")
        group = DurableRaftGroup(write.group, write.create)
    if group is None:
        raise FatalStorageError(f"refused to write group {write.group}: no such replica")
    if write.destroy:
        return None
    for piece in write.stage:
        group.stage(piece)
    if write.snapshot is not None:
        if write.hard_state is None:
            raise FatalStorageError(f"refused to write group {write.group}: snapshot without its hard state")
        group.install(write.snapshot)
    if write.truncate_from is not None:
        group.truncate(write.truncate_from)
    for entry in write.entries:
        group.append(entry)
    if write.hard_state is not None:
        group.set_hard_state(write.hard_state)
    if write.configuration is not None:
        group.configuration = write.configuration
    for key, value in write.table.items():
        if value is None:
            group.table.pop(key, None)
        else:
            group.table[key] = value
    if write.checkpoint is not None:
        group.checkpoint(write.checkpoint)
    if write.compact_to is not None:
        group.compact(write.compact_to)
    for stage in write.unstage:
        group.unstage(stage)
    return group
