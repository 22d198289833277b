"""Which offset here a record has that had another one there.

A mirror adds records one after the other, so offsets differ by a number that changes only where the source has a gap
(compaction, transactions) or has removed its oldest records. Between two changes lies a *run*. Where there are more
than can be kept, the oldest are given up: a group that stands there reads some records again, and misses none.

Source: the offset syncs of Kafka's MirrorMaker 2 (KIP-382), which keep single points.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

#: Of one partition. They are written with every plan.
MOST_RUNS = 200


class OffsetRun(NamedTuple):
    """Records that follow each other there and here.

    Arguments:
        source: offset of the first one in the source.
        target: its offset here.
        length: how many they are.
    """

    source: int
    target: int
    length: int


def runs_of(source_offsets: Sequence[int], first_target: int) -> list[OffsetRun]:
    """The runs of records that have been added one after the other.

    Arguments:
        source_offsets: growing, at least one.
        first_target: offset here of the first one.
    """
    starts = [0, *(at for at, (one, next_) in enumerate(pairwise(source_offsets), start=1) if next_ != one + 1)]
    ends = [*starts[1:], len(source_offsets)]
    return [OffsetRun(source_offsets[at], first_target + at, end - at) for at, end in zip(starts, ends, strict=True)]


def joined(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Runs in their order, those that follow each other made one, and no more than the newest ``MOST_RUNS``."""
    found: list[OffsetRun] = []
    for run in runs:
        last = found[-1] if found else None
        if last and (last.source + last.length, last.target + last.length) == (run.source, run.target):
            found[-1] = last._replace(length=last.length + run.length)
        else:
            found.append(run)
    return found[-MOST_RUNS:]


def translated(runs: Sequence[OffsetRun], source_offset: int) -> int | None:
    """The offset here at which a reader goes on that would have gone on at an offset there.

    Arguments:
        runs: of the partition, in their order.

    Returns:
        It, or the next one that there is behind a gap; None before the first run that is known.
    """
    at = bisect_right(runs, source_offset, key=lambda run: run.source) - 1
    if at < 0:
        return None
    run = runs[at]
    return run.target + min(source_offset - run.source, run.length)
