"""Inspection of a data directory while its node is down: its content, and its problems.

Everything is read from the bare file, page by page, so that a damaged environment can be inspected without the engine,
which would crash on it. Damage in one place does not hide the rest: problems are collected, not raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from quorumlog.raft.types import Configuration, EntryId, HardState, Snapshot
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.entry_rows import KEY_BYTES
from quorumlog.storage.environment import LOCK_FILE, DirectoryLock
from quorumlog.storage.interface import DamageError, StorageEngineError
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.opening import SMALL_DATABASES, check_format
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading
from quorumlog.wire.entry import (
    BatchHeader,
    CorruptEntryError,
    Envelope,
    EnvelopeKind,
    entry_hash,
    parse_envelope,
    parse_header,
)
from quorumlog.wire.entry import verify as verify_entry
from quorumlog.wire.kafka.batch import KafkaBatchHeader
from quorumlog.wire.kafka.entry import kept_kafka_header

_Value = TypeVar("_Value")


@dataclass(slots=True, frozen=True)
class Problem:
    """A deviation from what was written. ``group`` and ``index`` are None where it belongs to none."""

    group: int | None
    index: int | None
    what: str

    def __str__(self) -> str:
        place = "" if self.group is None else f"group {self.group}: "
        return f"{place}{self.what}" if self.index is None else f"{place}entry {self.index}: {self.what}"


@dataclass(slots=True, frozen=True)
class RaftGroupRow:
    """A replica: its small rows (None: missing or damaged) and the range of its entries (None: it has none)."""

    group: int
    configuration: Configuration | None
    hard_state: HardState | None
    anchor: EntryId | None
    snapshot: Snapshot | None
    table_rows: int
    first_index: int | None
    last_index: int | None
    problems: tuple[Problem, ...]


@dataclass(slots=True, frozen=True)
class EntryRow:
    """An entry as read. Fields that could not be decoded are None; ``problem`` has the reason.

    Arguments:
        kafka: the header of its batch, if a Kafka client has written it.
        data: the entry as it is stored; None if it could not be read.
    """

    group: int
    index: int
    term: int | None
    kind: EnvelopeKind | None
    length_bytes: int
    previous_hash: int | None
    hash: int | None
    header: BatchHeader | None
    problem: str | None
    kafka: KafkaBatchHeader | None = None
    data: bytes | None = field(default=None, repr=False, compare=False)


class Inspection:
    """An open data directory under inspection. Holds its lock: no node can start in the meantime."""

    def __init__(self, data_dir: Path | str) -> None:
        """Opens it.

        Raises:
            DataDirectoryLockedError: a node is running on it.
            DamageError: its meta pages are damaged, so nothing in it can be located.
            StorageError: it has no quorumlog data, or data of a newer version.
        """
        self.data_dir = Path(data_dir)
        data_file = self.data_dir / DATA_FILE
        if not data_file.is_file():
            raise StorageEngineError(f"{self.data_dir} has no {DATA_FILE}: specify the data directory of a node")
        self._lock = DirectoryLock(self.data_dir, create=False) if (self.data_dir / LOCK_FILE).exists() else None
        try:
            self._pages = PageFile(data_file)
            try:
                check_format(self._pages)
            except BaseException:
                self._pages.close()
                raise
        except BaseException:
            self._close_lock()
            raise
        self._reading = LogReading(self._pages, self.data_dir)

    def __enter__(self) -> Inspection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pages.close()
        self._close_lock()

    def _close_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def offset_rows_in_all(self) -> int:
        """Number of rows in the offset index, by the file's own count."""
        return self._pages.databases[rows.OFFSETS].entries

    @property
    def entries_in_all(self) -> int:
        """Number of rows of entries, by the file's own count: for progress bars."""
        return self._pages.databases[rows.ENTRIES].entries

    def groups(self) -> Iterator[RaftGroupRow]:
        """Yields every replica."""
        for group in self._reading.groups():
            yield self.group(group)

    def group(self, group: int) -> RaftGroupRow:
        """Returns one replica's small rows and range of entries."""
        problems: list[Problem] = []
        reading = self._reading
        anchor = _attempt(problems, group, lambda: reading.anchor(group))
        last = _attempt(problems, group, lambda: reading.last_index(group))
        has_entries = last is not None and (anchor is None or last > anchor.index)
        return RaftGroupRow(
            group=group,
            configuration=_attempt(problems, group, lambda: reading.configuration(group)),
            hard_state=_attempt(problems, group, lambda: reading.hard_state(group)),
            anchor=anchor,
            snapshot=_attempt(problems, group, lambda: reading.check_snapshot(group)),
            table_rows=len(_attempt(problems, group, lambda: reading.table(group)) or ()),
            first_index=(anchor.index + 1 if anchor else 1) if has_entries else None,
            last_index=last if has_entries else None,
            problems=tuple(problems),
        )

    def entries(self, group: int, first: int | None = None, last: int | None = None) -> Iterator[EntryRow]:
        """Yields a replica's entries from ``first`` to ``last`` inclusive, all by default, including damaged ones."""
        anchor = _attempt([], group, lambda: self._reading.anchor(group))
        start = anchor.index + 1 if anchor is not None else 1
        start = start if first is None else max(first, start)
        previous_hash = anchor.hash if anchor is not None and start == anchor.index + 1 else None
        expected = start
        for index, data in self._raw_entries(group, start):
            if last is not None and index > last:
                return
            if index != expected:
                yield _unreadable(group, expected, f"entries {expected} to {index - 1} are missing")
                previous_hash = None
            expected = index + 1
            if isinstance(data, DamageError):
                yield _unreadable(group, index, str(data))
                previous_hash = None
                continue
            row = _entry_row(group, index, data, previous_hash)
            previous_hash = row.hash if row.problem is None else None
            yield row

    def offset_rows(self, group: int) -> Iterator[BatchRow | Problem]:
        """Yields a replica's rows of the offset index, with a problem in place of each damaged one."""
        for last_offset, row in self._raw_rows(rows.OFFSETS, group, 0):
            if isinstance(row, DamageError):
                yield Problem(group, None, f"offset index at offset {last_offset}: {row}")
                continue
            try:
                body = rows.open_row(rows.OFFSETS, rows.position_key(group, last_offset), row)
                yield rows.unpack_batch_row(body, last_offset)
            except rows.RowError as error:
                yield Problem(group, None, f"offset index at offset {last_offset}: {error}")

    def small_row_problems(self) -> list[Problem]:
        """Returns problems of small rows, including those that no group owns: the first of each database."""
        problems: list[Problem] = []
        for database in (*SMALL_DATABASES, rows.SLICES):
            count = _attempt(problems, None, partial(self._reading.check_rows, database))
            if count is not None and count != self._pages.databases[database].entries:
                problems.append(Problem(None, None, f"rows of database {database.decode()} are missing"))
        return problems

    def _raw_entries(self, group: int, first: int) -> Iterator[tuple[int, bytes | DamageError]]:
        """Yields (index, bytes) of a Raft group's entries, with their rows joined, or the damage that prevents it."""
        parts: list[bytes] = []
        index: int | None = None
        damage: DamageError | None = None
        for position, data in self._raw_rows(rows.ENTRIES, group, first):
            if position != index:
                if index is not None:
                    yield index, damage or b"".join(parts)
                index, parts, damage = position, [], None
            if isinstance(data, DamageError):
                damage = data
            else:
                parts.append(data)
        if index is not None:
            yield index, damage or b"".join(parts)

    def _raw_rows(self, database: bytes, group: int, first: int) -> Iterator[tuple[int, bytes | DamageError]]:
        """Yields (position, value) of a Raft group's rows, or the damage that prevents reading one."""
        prefix = rows.group_key(group)
        cursor = self._pages.cursor(database)
        position, skip = first - 1, 1
        while position + skip <= rows.MAX_POSITION:
            try:
                if skip == 1 and cursor.key():
                    more = cursor.next()
                else:
                    more = cursor.set_range(rows.position_key(group, position + skip))
                key = cursor.key()
                if not more or not key.startswith(prefix):
                    return
                position, skip = rows.position_of(key[:KEY_BYTES])[1], 1
            except (DamageError, rows.RowError) as error:
                # Rows behind a damaged page cannot be reached: continue after it, in growing steps.
                position, skip = position + skip, skip * 2
                cursor = self._pages.cursor(database)
                yield position, DamageError(str(error))
                continue
            try:
                yield position, cursor.item()[1]
            except DamageError as error:
                yield position, error


def dump(data_dir: Path | str) -> Iterator[RaftGroupRow | EntryRow]:
    """Yields everything in a data directory: each replica, followed by its entries.

    Raises:
        As ``Inspection``.
    """
    with Inspection(data_dir) as inspection:
        for group in inspection.groups():
            yield group
            yield from inspection.entries(group.group)


def _entry_row(group: int, index: int, data: bytes, previous_hash: int | None) -> EntryRow:
    envelope: Envelope | None = None
    header: BatchHeader | None = None
    kafka: KafkaBatchHeader | None = None
    problem: str | None = None
    try:
        envelope = parse_envelope(data)
        header = parse_header(data) if envelope.kind is EnvelopeKind.BATCH else None
        verify_entry(data)
        kafka = kept_kafka_header(data, header)[1] if header is not None and header.is_kafka else None
    except CorruptEntryError as error:
        problem = str(error)
    if envelope is None:
        return EntryRow(group, index, None, None, len(data), None, None, header, problem)
    if problem is None and (envelope.group, envelope.index) != (group, index):
        problem = f"in its place is entry {envelope.index} of group {envelope.group}"
    if problem is None and previous_hash is not None and envelope.previous_hash != previous_hash:
        problem = "it does not follow the entry before it (hash chain)"
    return EntryRow(
        group,
        index,
        envelope.term,
        envelope.kind,
        len(data),
        envelope.previous_hash,
        entry_hash(data),
        header,
        problem,
        kafka,
        data,
    )


def _unreadable(group: int, index: int, problem: str) -> EntryRow:
    return EntryRow(group, index, None, None, 0, None, None, None, problem)


def _attempt(problems: list[Problem], group: int | None, read: Callable[[], _Value]) -> _Value | None:
    """Reads one thing; damage becomes a problem."""
    try:
        return read()
    except DamageError as error:
        problems.append(Problem(group, None, str(error)))
        return None
