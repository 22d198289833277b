"""Garbage: rows without meaning, found at opening or left by a write, that must be swept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quorumlog.storage import rows
from quorumlog.storage.reading import LogReading, RaftGroupLog

#: Databases in which a Raft group may have many rows.
MANY_PER_GROUP = (rows.ENTRIES, rows.OFFSETS, rows.TABLES, rows.SLICES)


@dataclass(slots=True)
class Garbage:
    """Rows to be swept.

    Arguments:
        logs: the index up to which a group's rows are garbage; None if all rows of a destroyed group are.
        stages: (group, stage) of snapshot slices that no snapshot refers to.
    """

    logs: dict[int, int | None] = field(default_factory=dict)
    stages: dict[tuple[int, int], None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.logs or self.stages)

    def copy(self) -> Garbage:
        """Returns an independent copy."""
        return Garbage(dict(self.logs), dict(self.stages))


def find_garbage(reading: LogReading, logs: Mapping[int, RaftGroupLog]) -> Garbage:
    """Finds what compactions, destroyed Raft groups, and incomplete snapshots have left."""
    garbage = Garbage()
    for database in MANY_PER_GROUP:
        for group in reading.groups_with_rows(database):
            if group not in logs:
                garbage.logs[group] = None
    for group, log in logs.items():
        # Check both: a crash may have happened between the last slice of entries and that of the offset index.
        firsts = (reading.first_index(group), reading.first_batch_index(group))
        if any(first is not None and first <= log.anchor.index for first in firsts):
            garbage.logs[group] = log.anchor.index
    for group in reading.groups_with_rows(rows.SLICES):
        if group in logs:
            snapshot = reading.snapshot(group)
            kept = snapshot.data.stage if snapshot is not None else None
            garbage.stages.update({(group, stage): None for stage in reading.stages(group) if stage != kept})
    return garbage
