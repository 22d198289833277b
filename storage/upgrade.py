"""Repairs the offset index of a data directory written by an older version, once, before its node serves.

Older versions trusted the largest timestamps in the batches of Kafka's clients. The rows of the index are rewritten
with those of the records. Rows of unreadable entries are kept. A file in the directory marks the repair as done; older
versions ignore it, so a downgrade remains possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.batch_times import largest_timestamp_by_records
from quorumlog.storage.environment import EngineSource, EngineTransaction, Environment
from quorumlog.storage.interface import DamageError
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.wire.entry import parse_header

#: Rows written in one transaction: after a crash, those of the last one are written again.
_ROWS_AT_ONCE = 10_000
_ROWS_READ_AT_ONCE = 100
_DONE_FILE = "INDEX_BY_RECORDS"


def repair_index(environment: Environment, logs: dict[int, RaftGroupLog]) -> None:
    """Rewrites the offset index of all Raft groups, unless that has been done already.

    Arguments:
        logs: of the groups, whose last batches are replaced.
    """
    done = Path(environment.data_dir, _DONE_FILE)
    if done.exists():
        return
    for group, log in logs.items():
        last = None
        begin: bytes | None = rows.position_key(group, 0)
        while begin is not None:
            with environment.writing() as txn:
                last, begin = _repair_some(environment, txn, group, begin, last)
        if log.last_batch is not None and last is not None:
            logs[group] = RaftGroupLog(log.anchor, log.last, log.hard_state, last)
    done.touch()


def _repair_some(
    environment: Environment, txn: EngineTransaction, group: int, begin: bytes, previous: BatchRow | None
) -> tuple[BatchRow | None, bytes | None]:
    """Repairs rows from a key on; returns the last one, and the key to continue from, or None at the end."""
    reading = LogReading(EngineSource(environment, txn), environment.data_dir)
    for count, row in enumerate(_rows_from(reading, environment, txn, group, begin)):
        key = rows.position_key(group, row.last_offset)
        if count == _ROWS_AT_ONCE:
            return previous, key
        latest = max(_largest_timestamp(reading, group, row), row.max_timestamp_ms)
        previous = row._replace(max_timestamp_ms=latest if previous is None else max(latest, previous.max_timestamp_ms))
        if previous != row:
            sealed = rows.seal_row(rows.OFFSETS, key, rows.pack_batch_row(previous))
            txn.put(key, sealed, db=environment.databases[rows.OFFSETS])
    return previous, None


def _rows_from(
    reading: LogReading, environment: Environment, txn: EngineTransaction, group: int, begin: bytes
) -> Iterator[BatchRow]:
    """Yields the rows of a group from a key on. It reads some at a time, because writes move cursors."""
    prefix = rows.group_key(group)
    while True:
        found: list[BatchRow] = []
        with EngineSource(environment, txn).cursor(rows.OFFSETS) as cursor:
            more = reading.seek(cursor, begin)
            while more and cursor.key().startswith(prefix) and len(found) < _ROWS_READ_AT_ONCE:
                found.append(reading.batch_row(cursor))
                more = cursor.next()
        if not found:
            return
        yield from found
        begin = rows.position_key(group, found[-1].last_offset + 1)


def _largest_timestamp(reading: LogReading, group: int, row: BatchRow) -> int:
    try:
        entry = reading.entry(group, row.index).data
    except DamageError:
        return row.max_timestamp_ms
    header = parse_header(entry)
    return largest_timestamp_by_records(entry, header) if header.is_kafka else header.max_timestamp_ms
