"""Rows of the offset index: the offsets of a batch, its position, and totals up to it.

Position and timestamp are cumulative: each row continues from the row before it, so both grow (or stay) with the
offset,
and one binary search over offsets finds how many bytes are behind a batch, and which batch is the first to reach a
time. They restart where a log restarts (nothing kept above its anchor), so replicas agree on differences of positions,
not on positions.
"""

from __future__ import annotations

from typing import NamedTuple


class BatchRow(NamedTuple):
    """One row of the offset index.

    Arguments:
        index: of the batch's entry.
        base_offset, last_offset: of its first and its last record.
        end_position: bytes of the batches up to and including this one.
        max_timestamp_ms: the largest timestamp of the batches up to and including this one.
    """

    index: int  # type: ignore[assignment]
    base_offset: int
    last_offset: int
    end_position: int
    max_timestamp_ms: int


def next_row(
    previous: BatchRow | None, index: int, base_offset: int, offsets: int, max_timestamp_ms: int, size_bytes: int
) -> BatchRow | None:
    """Returns the row of a batch that follows ``previous`` (None: no batch is kept before it).

    Arguments:
        offsets: number of offsets that the batch covers.
        max_timestamp_ms: the batch's own.
        size_bytes: of its whole entry.

    Returns:
        None if the batch does not follow: offsets are dense.
    """
    last_offset = base_offset + offsets - 1
    if offsets < 1:
        return None
    if previous is None:
        return BatchRow(index, base_offset, last_offset, size_bytes, max_timestamp_ms) if base_offset >= 0 else None
    if base_offset != previous.last_offset + 1 or index <= previous.index:
        return None
    end = previous.end_position + size_bytes
    return BatchRow(index, base_offset, last_offset, end, max(max_timestamp_ms, previous.max_timestamp_ms))


def any_batch(row: BatchRow) -> bool:
    """Returns True for every row: a search by offset alone."""
    return True
