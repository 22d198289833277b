"""Where a leader epoch ends in a partition's log: how a client notices that what it has read is there no more.

Terms never fall along a log, so the last entry of an epoch is found by binary search, and the batch behind it by
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
        epoch: the newest one with entries, up to the one that was asked for; that one itself where all entries from
            before a newer epoch are gone.
        end_offset: of the first record of a newer epoch; the high watermark where there is none.
    """

    epoch: int
    end_offset: int


def find_epoch_end(partition: Partition, reader: StorageReader, epoch: int) -> EpochEnd | None:
    """Where an epoch ends, as a leader knows it that may serve reads (KIP-101).

    Of what is not kept as entries any more, because it was compacted or has expired, nobody knows the epochs. What is
    said of one of those is the first offset behind: it has ended there at the latest.

    Returns:
        None if the log knows of no such epoch: it is newer than the leader, or none.

    Raises:
        UnreadableEntryError: an entry on the way is damaged.
    """
    raft = partition.raft
    if not 0 <= epoch <= raft.term:
        return None
    if epoch == raft.term:
        return EpochEnd(epoch, partition.high_watermark)
    last = raft.last_up_to_term(epoch, partition.applied_index)
    index, found = (raft.anchor.index, epoch) if last is None else last
    return EpochEnd(found, _first_offset_behind(partition, reader, index))


def _first_offset_behind(partition: Partition, reader: StorageReader, index: int) -> int:
    """The offset of the first committed batch behind an entry; the high watermark if there is none."""
    raft, start = partition.raft, partition.log_start_offset
    row = reader.find_batch(partition.group, start, lambda row: row.index > index)
    if row is not None:
        return min(max(start, row.base_offset), partition.high_watermark)
    # What followers have committed before this disk has written it is in no index yet.
    behind = max(index, raft.durable_index) + 1
    batches = batches_between(raft, behind, partition.applied_index, 1)
    return parse_header(batches[0]).base_offset if batches else partition.high_watermark
