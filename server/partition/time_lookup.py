"""The first offset at or after a time, by the offset index alone as far as possible.

The index has the latest timestamp up to and including each batch. It increases with the offset, so the first batch
where it reaches a time is found by binary search, and that batch holds a record of that time or later. But the index
entries of the first batches may reflect earlier batches, which are no longer kept, or which the client has excluded;
then the batches themselves are examined, one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_times import is_largest_timestamp_missing, largest_timestamp_by_records
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import BatchHeader, Flags, TimestampType, parse_envelope, parse_header

#: Bytes of batches that one lookup reads in one answer if the index does not help.
SCAN_BYTES = 4 << 20
#: Number of markers at the end of a log that a lookup of the latest record passes over.
MOST_MARKERS = 1_000


class TimeFound(NamedTuple):
    """The position that a lookup has reached.

    Arguments:
        offset: the first offset that may be the answer.
        header, entry: the batch that holds the answer; None if the lookup has to continue from ``offset``.
    """

    offset: int
    header: BatchHeader | None = None
    entry: bytes = b""

    @property
    def append_time_ms(self) -> int:
        """The timestamp of all records of the batch if the leader set it, otherwise -1. A compacted batch consists of
        several: each of its records has its own."""
        if self.header is None or self.header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            return -1
        return -1 if parse_envelope(self.entry).flags is Flags.GAPS else self.header.max_timestamp_ms


def find_time(
    partition: Partition, reader: StorageReader, timestamp_ms: int, first_offset: int, end: int | None = None
) -> TimeFound | None:
    """Returns the first committed batch from ``first_offset`` on that holds a record at or after a time.

    Arguments:
        end: the offset before which the batch must start; None: the high watermark.

    Returns:
        None if no record is that late.
    """
    start = max(first_offset, partition.log_start_offset)
    end = partition.high_watermark if end is None else end
    if start >= end:
        return None
    compacted = partition.compacted_log
    if compacted is not None and start < partition.compacted_offset:
        reached = compacted.first_reaching(timestamp_ms)
        if reached is not None:
            return _scan(partition, timestamp_ms, start, max(start, reached), end)
    row = reader.find_batch(partition.group, start, lambda row: row.max_timestamp_ms >= timestamp_ms)
    if row is not None and row.base_offset >= end:
        return None
    if row is None:
        # Entries that followers have committed before this disk has written them are not in the index yet.
        durable = reader.last_batch(partition.group)
        position = start if durable is None else max(start, durable.last_offset + 1)
    else:
        position = max(start, row.base_offset)
    return _scan(partition, timestamp_ms, start, position, end)


def find_latest(partition: Partition, reader: StorageReader, end: int | None = None) -> TimeFound | None:
    """Returns the first committed batch with a record of the latest timestamp. If that one is no longer kept, the index
    does not contain the latest of the others, and the result is the last batch with records.

    Arguments:
        end: the offset before which the batch must start; None: the high watermark.

    Returns:
        None if there is no record, or the log ends with more than ``MOST_MARKERS`` markers.
    """
    last = (partition.high_watermark if end is None else end) - 1
    if last < partition.log_start_offset:
        return None
    row = reader.find_batch(partition.group, last, lambda row: True)
    if row is not None:
        result = find_time(partition, reader, row.max_timestamp_ms, 0, end)
        if result is not None:
            return result
    # The last batch was compacted, or is in no index yet, or the one that the index means is no longer kept.
    return _last_records(partition, last)


def _last_records(partition: Partition, last: int) -> TimeFound | None:
    """Returns the last batch with records that starts at or before an offset, behind which there are only markers."""
    compacted = partition.compacted_log
    for _ in range(MOST_MARKERS + 1):
        if last < partition.compacted_offset:
            last = -1 if compacted is None else min(last, compacted.end_offset - 1)
        entries = partition.read(last, 1) if last >= partition.log_start_offset else []
        if not entries:
            return None
        header = parse_header(entries[0])
        if not header.is_control:
            return TimeFound(last, header, entries[0])
        last = header.base_offset - 1
    return None


def _scan(partition: Partition, timestamp_ms: int, start: int, position: int, end: int) -> TimeFound | None:
    """Examines batches from ``position`` on that start before ``end``; the records before ``start`` do not count, and
    markers have none."""
    scanned = 0
    while position < end:
        if scanned >= SCAN_BYTES:
            return TimeFound(position)
        # The batch that the index names is read alone: nearly always it is the result.
        entries = partition.read(position, SCAN_BYTES if scanned else 1)
        if not entries:
            return None
        for entry in entries:
            header = parse_header(entry)
            if header.base_offset >= end:
                return None
            if not header.is_control and _max_timestamp_ms(entry, header) >= timestamp_ms:
                return TimeFound(max(start, header.base_offset), header, entry)
            position = header.last_offset + 1
            scanned += len(entry)
    return None


def _max_timestamp_ms(entry: bytes, header: BatchHeader) -> int:
    if header.is_kafka and is_largest_timestamp_missing(entry):
        return largest_timestamp_by_records(entry, header)
    return header.max_timestamp_ms
