"""Brings a data directory of the former format up to this version's, once, before its node serves.

Format 3 had an offset index without append times, and believed what Kafka's clients said of their largest timestamp.
The rows of the index are written anew: from the headers of entries, and for batches of Kafka's clients from their
records. A batch without any timestamp counts as appended now. What cannot be read stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow, BatchTimes
from quorumlog.storage.batch_times import times_by_records, times_of
from quorumlog.storage.environment import EngineSource, EngineTransaction, Environment
from quorumlog.storage.interface import DamageError
from quorumlog.storage.raft_group_log import RaftGroupLog
from quorumlog.storage.reading import LogReading
from quorumlog.v1.entry import parse_header

#: Rows written in one transaction: those of a crash are written again.
_ROWS_AT_ONCE = 10_000


def upgrade(environment: Environment, logs: dict[int, RaftGroupLog]) -> None:
    """Writes the offset index of all Raft groups anew, and then the format.

    Arguments:
        logs: of the groups, whose last batches are replaced.
    """
    now_ms = time.time_ns() // 1_000_000
    for group, log in logs.items():
        last = None
        begin: bytes | None = rows.position_key(group, 0)
        while begin is not None:
            with environment.writing() as txn:
                last, begin = _upgrade_some(environment, txn, group, begin, last, now_ms)
        if log.last_batch is not None and last is not None:
            logs[group] = RaftGroupLog(log.anchor, log.last, log.hard_state, last)
    with environment.writing() as txn:
        environment.write_format(txn)


def _upgrade_some(
    environment: Environment, txn: EngineTransaction, group: int, begin: bytes, previous: BatchRow | None, now_ms: int
) -> tuple[BatchRow | None, bytes | None]:
    """Upgrades rows from a key on; returns the last one, and the key to go on from, None at the end."""
    reading = LogReading(EngineSource(environment, txn), environment.data_dir)
    for count, row in enumerate(_rows_from(reading, environment, txn, group, begin)):
        key = rows.position_key(group, row.last_offset)
        if count == _ROWS_AT_ONCE:
            return previous, key
        times = _times(reading, group, row, now_ms)
        before = BatchTimes(-1, -1) if previous is None else BatchTimes(*previous[4:])
        previous = row._replace(
            max_timestamp_ms=max(times.max_timestamp_ms, before.max_timestamp_ms),
            append_time_ms=max(times.append_time_ms, before.append_time_ms),
        )
        sealed = rows.seal_row(rows.OFFSETS, key, rows.pack_batch_row(previous))
        txn.put(key, sealed, db=environment.databases[rows.OFFSETS])
    return previous, None


def _rows_from(
    reading: LogReading, environment: Environment, txn: EngineTransaction, group: int, begin: bytes
) -> Iterator[BatchRow]:
    """The rows of a group, from a key on, in batches: writing moves cursors."""
    prefix = rows.group_key(group)
    while True:
        found: list[BatchRow] = []
        with EngineSource(environment, txn).cursor(rows.OFFSETS) as cursor:
            more = reading.seek(cursor, begin)
            while more and cursor.key().startswith(prefix) and len(found) < 100:
                found.append(reading.batch_row(cursor))
                more = cursor.next()
        if not found:
            return
        yield from found
        begin = rows.position_key(group, found[-1].last_offset + 1)


def _times(reading: LogReading, group: int, row: BatchRow, now_ms: int) -> BatchTimes:
    try:
        entry = reading.entry(group, row.index).data
    except DamageError:
        return BatchTimes(row.max_timestamp_ms, -1)
    header = parse_header(entry)
    times = times_by_records(entry, header) if header.is_kafka else times_of(header)
    return times if max(times) >= 0 else BatchTimes(-1, now_ms)
