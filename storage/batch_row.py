"""A batch as the offset index knows it: which offsets it holds, where it is, and what came before it.

Position and times run: each row carries on from the row before it, so all grow (or stay) with the offset, and one
binary search over offsets answers how much lies behind a batch, and which batch is the first to be as late as a time.
They start anew where a log starts anew (nothing kept above its anchor), so that replicas agree on differences of
positions, not on positions.
"""

from __future__ import annotations

from typing import NamedTuple

#: An append time further ahead than this came of a clock that was wrong, and does not count: one leader whose clock
#: showed the next year would otherwise have its batches, and all after them, kept until then.
MAX_CLOCK_AHEAD_MS = 3_600_000


class BatchRow(NamedTuple):
    """One row of the offset index.

    Arguments:
        index: of the batch's entry.
        base_offset, last_offset: of its first and its last record.
        end_position: bytes of the batches up to and including this one.
        max_timestamp_ms: the largest timestamp of the batches up to and including this one.
        append_time_ms: the latest time at which a leader appended one of these batches.
    """

    index: int  # type: ignore[assignment]
    base_offset: int
    last_offset: int
    end_position: int
    max_timestamp_ms: int
    append_time_ms: int


class BatchTimes(NamedTuple):
    """The times of one batch, in milliseconds since the epoch, -1 for none: its largest timestamp, and when it was
    appended."""

    max_timestamp_ms: int
    append_time_ms: int


def next_row(
    previous: BatchRow | None, index: int, base_offset: int, offsets: int, times: BatchTimes, size_bytes: int
) -> BatchRow | None:
    """The row of a batch that follows ``previous`` (None: no batch is kept before it).

    Arguments:
        offsets: how many the batch covers.
        times: the batch's own.
        size_bytes: of its whole entry.

    Returns:
        None if the batch does not follow: offsets are dense.
    """
    last_offset = base_offset + offsets - 1
    if offsets < 1:
        return None
    if previous is None:
        return BatchRow(index, base_offset, last_offset, size_bytes, *times) if base_offset >= 0 else None
    if base_offset != previous.last_offset + 1 or index <= previous.index:
        return None
    end = previous.end_position + size_bytes
    latest = max(times.max_timestamp_ms, previous.max_timestamp_ms)
    appended = max(times.append_time_ms, previous.append_time_ms)
    if times.append_time_ms >= 0 and appended > times.append_time_ms + MAX_CLOCK_AHEAD_MS:
        appended = times.append_time_ms
    return BatchRow(index, base_offset, last_offset, end, latest, appended)


def any_batch(row: BatchRow) -> bool:
    """Every row will do: a search by offset alone."""
    return True
