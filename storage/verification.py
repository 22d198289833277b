"""Verifies a whole data directory offline: pages, small rows, every entry, hash chains, the offset index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lmdb.verify import VerifyError
from lmdb.verify import verify as verify_structure

from quorumlog.storage.batch_row import BatchRow, next_row
from quorumlog.storage.inspection import EntryRow, Inspection, Problem, RaftGroupRow
from quorumlog.wire.entry import BatchHeader

#: Maximum number of problems reported: a disk that lost a file's middle has millions, and the first ones suffice.
MAX_PROBLEMS = 1000
_PROGRESS_ENTRIES = 256


@dataclass(slots=True, frozen=True)
class VerifyReport:
    """Extent and result of a verification."""

    data_dir: Path
    groups: int
    entries: int
    entry_bytes: int
    offset_rows: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """True if everything is as it was written."""
        return not self.problems


def verify(data_dir: Path | str, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
    """Reads everything in a data directory and checks it.

    Arguments:
        progress: called periodically with the entries done and their total number.

    Raises:
        DataDirectoryLockedError: a node is running on it.
        DamageError: its meta pages are damaged, so nothing in it can be located.
        StorageError: it has no quorumlog data, or data of a newer version.
    """
    with Inspection(data_dir) as inspection:
        problems = _structure_problems(inspection.data_dir) + inspection.small_row_problems()
        groups = entries = entry_bytes = 0
        for group in inspection.groups():
            groups += 1
            check = _GroupCheck(group, inspection.offset_rows(group.group))
            for entry in inspection.entries(group.group):
                check.see(entry)
                entries += 1
                entry_bytes += entry.length_bytes
                if progress is not None and entries % _PROGRESS_ENTRIES == 0:
                    progress(entries, inspection.entries_in_all)
            check.finish()
            problems += itertools.chain(group.problems, check.problems)
        if progress is not None:
            progress(entries, entries)
        problems = problems[:MAX_PROBLEMS]
        return VerifyReport(
            inspection.data_dir, groups, entries, entry_bytes, inspection.offset_rows_in_all, tuple(problems)
        )


def _structure_problems(data_dir: Path) -> list[Problem]:
    """Returns problems of the pages themselves: a page both free and in use would be overwritten."""
    try:
        found: list[str] = verify_structure(str(data_dir))  # type: ignore[no-untyped-call]
    except VerifyError as error:
        found = [str(error)]
    return [Problem(None, None, f"page structure: {what}") for what in found]


class _GroupCheck:
    """Compares a replica's entries, in order, with the rows of its offset index."""

    def __init__(self, group: RaftGroupRow, offset_rows: Iterator[BatchRow | Problem]) -> None:
        self.problems: list[Problem] = []
        self._group = group
        anchor = group.anchor.index if group.anchor is not None else 0
        # Rows at or below the anchor are garbage that is not swept yet.
        rows = (row for row in offset_rows if isinstance(row, Problem) or row.index > anchor)
        self._offset_rows: Iterator[BatchRow | Problem] = rows
        self._offset_row = self._next_offset_row()
        self._before: BatchRow | None = None
        self._next_offset: int | None = None
        self._last_index = anchor

    def see(self, entry: EntryRow) -> None:
        """Checks one entry."""
        self._last_index = max(self._last_index, entry.index)
        if entry.problem is not None:
            self._report(entry.index, entry.problem)
            self._next_offset = None
            return
        header = entry.header
        if header is None:
            return
        while self._offset_row is not None and self._offset_row.index < entry.index:
            if self._next_offset is not None:
                self._report(None, f"offset index names batch {self._offset_row.index}, which does not exist")
            self._offset_row = self._next_offset_row()
        row = self._offset_row
        if row is None or row.index != entry.index:
            self._report(entry.index, "the offset index does not have this batch")
        else:
            self._compare(row, entry, header)
            self._offset_row = self._next_offset_row()
        if self._next_offset is not None and header.base_offset != self._next_offset:
            self._report(entry.index, f"it starts at offset {header.base_offset}, not {self._next_offset}")
        self._next_offset = header.last_offset + 1

    def _compare(self, row: BatchRow, entry: EntryRow, header: BatchHeader) -> None:
        before, self._before = self._before, row
        if (row.base_offset, row.last_offset) != (header.base_offset, header.last_offset):
            self._before = None
            self._report(entry.index, f"the offset index has it at {row.base_offset} to {row.last_offset}")
        elif before is not None and before.last_offset + 1 == row.base_offset:
            offsets = header.last_offset + 1 - header.base_offset
            right = next_row(before, row.index, row.base_offset, offsets, header.max_timestamp_ms, entry.length_bytes)
            if right is None or not _goes_on(row, right, header):
                self._report(entry.index, f"the offset index does not continue from the batch before it: {row}")

    def finish(self) -> None:
        """Checks what follows the last entry."""
        while self._offset_row is not None:
            if self._offset_row.index > self._last_index:
                self._report(None, f"offset index names entry {self._offset_row.index}, beyond the log's end")
            self._offset_row = self._next_offset_row()
        state = self._group.hard_state
        if state is not None and state.commit > self._last_index:
            self._report(
                None, f"the log ends at entry {self._last_index}, but entries up to {state.commit} were committed"
            )

    def _next_offset_row(self) -> BatchRow | None:
        for row in self._offset_rows:
            if isinstance(row, BatchRow):
                return row
            self._report(None, row.what)
        return None

    def _report(self, index: int | None, what: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self._group.group, index, what))


def _goes_on(row: BatchRow, right: BatchRow, header: BatchHeader) -> bool:
    """True if a row of the offset index follows from the batch's header and the row before it."""
    if header.is_kafka and row.max_timestamp_ms > right.max_timestamp_ms:
        # An older version trusted the client's largest timestamp: the index has that of the records.
        right = right._replace(max_timestamp_ms=row.max_timestamp_ms)
    return row == right
