"""Ages of batches: how long ago a batch was appended, or is dated, whichever is later.

The append times are in the headers of the batches, the timestamps in the offset index too. So an age costs at most one
read of a batch, and the first batch that is young enough a binary search.
"""

from __future__ import annotations

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import parse_header

#: An append time further ahead than this is from a clock that was wrong, and is ignored: one leader whose clock was a
#: year ahead would otherwise have its batches, and all after them, kept until then.
MAX_CLOCK_AHEAD_MS = 3_600_000


def first_since(reader: StorageReader, partition: Partition, start: int, oldest_ms: int, wall_ms: int) -> int:
    """Returns the first offset from ``start`` on whose batch is dated, or was appended, at ``oldest_ms`` or later; the
    offset after the last batch in the index if none is.

    Arguments:
        start: at or after the compaction point of the replica.
        wall_ms: the node's clock.
    """
    last = reader.last_batch(partition.group)
    if last is None:
        return start
    kept = reader.find_batch(partition.group, start, lambda row: row.max_timestamp_ms >= oldest_ms)
    end_offset = kept.base_offset if kept is not None else last.last_offset + 1
    return max(start, _first_appended_since(reader, partition, start, end_offset, oldest_ms, wall_ms))


def _first_appended_since(
    reader: StorageReader, partition: Partition, start: int, end: int, oldest_ms: int, wall_ms: int
) -> int:
    """Returns the first offset from ``start`` on whose batch was appended at ``oldest_ms`` or later; ``end`` if none
    was before that. Nearly always the last batch before ``end`` decides for all before it, because append times
    increase."""

    def is_young(row: BatchRow) -> bool:
        return row.base_offset >= end or append_time_ms(partition, row.base_offset, wall_ms) >= oldest_ms

    if end <= start or append_time_ms(partition, end - 1, wall_ms) < oldest_ms:
        return end
    young = reader.find_batch(partition.group, start, is_young)
    return end if young is None else min(young.base_offset, end)


def append_time_ms(partition: Partition, offset: int, wall_ms: int) -> int:
    """Returns the append time of the batch at an offset; -1 if it is from a clock that was far ahead. Versions that did
    not record it left the smallest timestamp there, and if none exists, the batch counts as appended with the last one
    of the log.

    Arguments:
        wall_ms: the node's clock.
    """
    try:
        entries = partition.read(offset, 1)
    except UnreadableEntryError:
        return wall_ms  # It is not removed before it is repaired.
    if not entries:
        return wall_ms  # It is not committed yet.
    header = parse_header(entries[0])
    appended_ms = header.append_time_ms
    if max(appended_ms, header.max_timestamp_ms) < 0:
        last = partition.high_watermark - 1
        return wall_ms if header.last_offset >= last else append_time_ms(partition, last, wall_ms)
    return appended_ms if appended_ms <= wall_ms + MAX_CLOCK_AHEAD_MS else -1
