"""The end of a leader epoch in a partition's log, by which a client detects that records it has read were truncated.

Terms never decrease along a log, so the last entry of an epoch is found by binary search, and the batch after it by
another one over the offset index. Neither reads payloads.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.partition.batch_reading import batches_between
from quorumlog.server.partition.partition import Partition
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import parse_header


class EpochEnd(NamedTuple):
    """The end of an epoch.

    Arguments:
        epoch: the newest epoch with entries, up to the requested one; the requested one itself if all entries from
            before a newer epoch are gone.
        end_offset: offset of the first record of a newer epoch; the high watermark without a newer epoch.
    """

    epoch: int
    end_offset: int


def find_epoch_end(partition: Partition, reader: StorageReader, epoch: int) -> EpochEnd | None:
    """Returns the end of an epoch, for a leader that may serve reads (KIP-101).

    The epochs of records that are no longer stored as entries, because they were compacted or have expired, are
    unknown. For such an epoch the result is the first offset after them: it has ended there at the latest.

    Returns:
        None if the log does not have the epoch: it is newer than the leader, or negative.

    Raises:
        UnreadableEntryError: an entry on the way is damaged.
    """
    raft = partition.raft
    if not 0 <= epoch <= raft.term:
        return None
    if epoch == raft.term:
        return EpochEnd(epoch, partition.high_watermark)
    last = raft.last_up_to_term(epoch, partition.applied_index)
    index, newest = (raft.anchor.index, epoch) if last is None else last
    return EpochEnd(newest, _first_offset_behind(partition, reader, index))


def _first_offset_behind(partition: Partition, reader: StorageReader, index: int) -> int:
    """Returns the offset of the first committed batch after an entry; the high watermark if no batch follows."""
    raft, start = partition.raft, partition.log_start_offset
    row = reader.find_batch(partition.group, start, lambda row: row.index > index)
    if row is not None:
        return min(max(start, row.base_offset), partition.high_watermark)
    # Entries that followers have committed before this disk has written them are not in the index yet.
    behind = max(index, raft.durable_index) + 1
    batches = batches_between(raft, behind, partition.applied_index, 1)
    return parse_header(batches[0]).base_offset if batches else partition.high_watermark
