"""Converts ranges to Spark tasks: large ones are cut, small ones share a task; every offset is read exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.options import MAX_TASKS, ReadOptions
from quorumlog.sdk.spark.planning import OffsetRange

#: A task costs Spark about 35 ms, in which it could read some ten thousand small records: fewer do not justify a task.
SHARED_RECORDS = 10_000


def tasks_of(ranges: Iterable[OffsetRange], options: ReadOptions) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each Spark task of a query. Deterministic: the same ranges give the same tasks.

    With ``minPartitions`` no task reads more than one range, so that the user gets as many tasks as requested.
    """
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    if options.min_partitions is not None:
        return [(piece,) for piece in pieces]
    return gather(pieces, min(SHARED_RECORDS, options.max_records_per_partition or SHARED_RECORDS))


def split(ranges: Iterable[OffsetRange], minimum: int | None, max_records: int | None) -> list[OffsetRange]:
    """Cuts ranges until none has more than ``max_records`` and there are at least ``minimum``, records permitting.

    Shares of ``minimum`` are proportional to size, as in Spark's Kafka source.

    Raises:
        OptionError: ``max_records`` results in too many tasks.
    """
    pieces = list(ranges)
    if max_records is not None:
        count = sum(-(-(whole.end - whole.start) // max_records) for whole in pieces)
        if count > max(MAX_TASKS, len(pieces)):
            raise OptionError(
                f"option maxRecordsPerPartition ({max_records}) makes {count} Spark tasks, more than {MAX_TASKS}: raise"
                " it, or read less at a time"
            )
        pieces = [piece for whole in pieces for piece in _cut(whole, -(-(whole.end - whole.start) // max_records))]
    if minimum is None or len(pieces) >= minimum:
        return pieces
    total = sum(piece.end - piece.start for piece in pieces)
    return [
        piece
        for whole in pieces
        for piece in _cut(whole, min(whole.end - whole.start, -(-(whole.end - whole.start) * minimum // total)))
    ]


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    records = whole.end - whole.start
    edges = [whole.start + records * part // parts for part in range(parts + 1)]
    return [
        replace(whole, start=start, end=end, piece=whole.piece * parts + part)
        for part, (start, end) in enumerate(pairwise(edges))
    ]


def gather(ranges: Sequence[OffsetRange], max_records: int) -> list[tuple[OffsetRange, ...]]:
    """Combines neighbouring ranges into one task as long as they have no more than ``max_records`` together."""
    tasks: list[list[OffsetRange]] = []
    records = max_records
    for piece in ranges:
        size = piece.end - piece.start
        if records + size > max_records:
            tasks.append([])
            records = 0
        tasks[-1].append(piece)
        records += size
    return [tuple(task) for task in tasks]
