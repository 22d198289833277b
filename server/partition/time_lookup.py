"""The first offset at or after a time, by the offset index alone as far as that goes.

The index knows the latest timestamp up to and including each batch. It grows with the offset, so the first batch where
it reaches a time is found by binary search, and that batch holds a record of that time or later. But what the index
says of the first batches may come from batches before them, which are not kept any more, or which the client has ruled
out; then the batches themselves are looked at, one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_times import is_largest_timestamp_missing, largest_timestamp_by_records
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import BatchHeader, Flags, TimestampType, parse_envelope, parse_header

#: Bytes of batches that one look-up reads in one answer where the index does not help.
SCAN_BYTES = 4 << 20


class TimeFound(NamedTuple):
    """Where a look-up has come to.

    Arguments:
        offset: the first offset that may be the answer.
        header, entry: of the batch that holds the answer; None if the look-up has to go on from ``offset``.
    """

    offset: int
    header: BatchHeader | None = None
    entry: bytes = b""

    @property
    def append_time_ms(self) -> int:
        """The timestamp of all records of the batch where the leader set it, else -1. A compacted batch is made of
        several: each of its records has its own."""
        if self.header is None or self.header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            return -1
        return -1 if parse_envelope(self.entry).flags is Flags.GAPS else self.header.max_timestamp_ms


def find_time(partition: Partition, reader: StorageReader, timestamp_ms: int, first_offset: int) -> TimeFound | None:
    """The first committed batch from ``first_offset`` on that holds a record at or after a time.

    Returns:
        None if there is none.
    """
    start = max(first_offset, partition.log_start_offset)
    end = partition.high_watermark
    if start >= end:
        return None
    compacted = partition.compacted_log
    if compacted is not None and start < partition.compacted_offset:
        reached = compacted.first_reaching(timestamp_ms)
        if reached is not None:
            return _scan(partition, timestamp_ms, start, max(start, reached))
    row = reader.find_batch(partition.group, start, lambda row: row.max_timestamp_ms >= timestamp_ms)
    if row is not None and row.base_offset >= end:
        return None
    if row is None:
        # What followers have committed before this disk has written it is in no index yet.
        durable = reader.last_batch(partition.group)
        position = start if durable is None else max(start, durable.last_offset + 1)
    else:
        position = max(start, row.base_offset)
    return _scan(partition, timestamp_ms, start, position)


def find_latest(partition: Partition, reader: StorageReader) -> TimeFound | None:
    """The first committed batch that holds a record with the latest timestamp of all. Where that one is not kept any
    more, the index does not know which is the latest of those that are: then the last batch.

    Returns:
        None if there is no record.
    """
    last = partition.high_watermark - 1
    if last < partition.log_start_offset:
        return None
    row = reader.find_batch(partition.group, last, lambda row: True)
    if row is not None:
        found = find_time(partition, reader, row.max_timestamp_ms, 0)
        if found is not None:
            return found
    # The last batch was compacted, or is in no index yet.
    entries = partition.read(last, 1)
    return TimeFound(last, parse_header(entries[0]), entries[0]) if entries else None


def _scan(partition: Partition, timestamp_ms: int, start: int, position: int) -> TimeFound | None:
    """Looks at batches from ``position`` on; the records before ``start`` do not count."""
    end = partition.high_watermark
    scanned = 0
    while position < end:
        if scanned >= SCAN_BYTES:
            return TimeFound(position)
        # The batch that the index names comes alone: nearly always it is the one.
        entries = partition.read(position, SCAN_BYTES if scanned else 1)
        if not entries:
            return None
        for entry in entries:
            header = parse_header(entry)
            if _max_timestamp_ms(entry, header) >= timestamp_ms:
                return TimeFound(max(start, header.base_offset), header, entry)
            position = header.last_offset + 1
            scanned += len(entry)
    return None


def _max_timestamp_ms(entry: bytes, header: BatchHeader) -> int:
    if header.is_kafka and is_largest_timestamp_missing(entry):
        return largest_timestamp_by_records(entry, header)
    return header.max_timestamp_ms
