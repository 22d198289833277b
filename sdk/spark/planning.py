"""From options to exact offset ranges: topics and offsets are resolved once, on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from quorumlog.sdk.spark.errors import DataLossError, OptionError
from quorumlog.sdk.spark.options import EARLIEST, OffsetSpec, ReadOptions, TopicSelection

#: A partition, as (topic, number).
Partition = tuple[str, int]


class Catalog(Protocol):
    """What planning asks of a cluster."""

    def topic_names(self) -> Sequence[str]:
        """Every topic of the cluster."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicShape]:
        """The topics of these names that exist."""

    def offsets(
        self, shapes: Mapping[str, TopicShape], partitions: Sequence[Partition]
    ) -> Mapping[Partition, tuple[int, int]]:
        """Log start and high watermark of each partition."""


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic's identity, which a topic created anew under the same name does not share, and its partition count."""

    topic_id: bytes
    partition_count: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one Spark task reads: the offsets [start, end) of one partition."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} offsets [{self.start}, {self.end})"


def plan(catalog: Catalog, options: ReadOptions) -> list[OffsetRange]:
    """Resolves a read to ranges, none of them empty, by topic and partition.

    Raises:
        OptionError: a topic or partition does not exist, or offsets name the wrong partitions or contradict each other.
        DataLossError: offsets that were asked for are not there and failOnDataLoss is on.
    """
    shapes, partitions = _select(catalog, options.selection)
    for spec in (options.starting, options.ending):
        _check_coverage(spec, partitions, options.selection)
    bounds = catalog.offsets(shapes, partitions) if partitions else {}
    ranges = []
    for partition in partitions:
        log_start, high_watermark = bounds[partition]
        start = _resolve(options.starting, partition, log_start, high_watermark, options.fail_on_data_loss)
        end = _resolve(options.ending, partition, log_start, high_watermark, options.fail_on_data_loss)
        if start > end:
            if options.fail_on_data_loss:
                raise _inverted(options, partition, start, end)
            start = end
        topic, number = partition
        if start < end:
            ranges.append(OffsetRange(topic, shapes[topic].topic_id, number, start, end))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


def split(ranges: Iterable[OffsetRange], minimum: int | None, max_records: int | None) -> list[OffsetRange]:
    """Cuts ranges until none holds more than ``max_records`` and there are at least ``minimum``, records permitting.

    Shares of ``minimum`` go by size, as in Spark's Kafka source.
    """
    pieces = list(ranges)
    if max_records is not None:
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
    return [OffsetRange(whole.topic, whole.topic_id, whole.partition, start, end) for start, end in pairwise(edges)]


def _select(catalog: Catalog, selection: TopicSelection) -> tuple[Mapping[str, TopicShape], list[Partition]]:
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        wanted = sorted(name for name in catalog.topic_names() if pattern.fullmatch(name))
    else:
        wanted = sorted(selection.subscribe or selection.assign or ())
    shapes = catalog.describe(wanted) if wanted else {}
    missing = [topic for topic in wanted if topic not in shapes]
    if missing and selection.pattern is None:
        raise OptionError(
            f"option {selection.option} names {', '.join(map(repr, missing))}, which the cluster does not have:"
            " create the topic first, or correct the name"
        )
    if selection.assign is None:
        return shapes, [(topic, number) for topic in sorted(shapes) for number in range(shapes[topic].partition_count)]
    for topic, numbers in selection.assign.items():
        count = shapes[topic].partition_count
        beyond = [number for number in numbers if number >= count]
        if beyond:
            raise OptionError(
                f"option assign names partition {beyond[0]} of topic {topic}, which has {count} (0 to {count - 1})"
            )
    return shapes, [(topic, number) for topic in sorted(selection.assign) for number in selection.assign[topic]]


def _check_coverage(spec: OffsetSpec, partitions: Sequence[Partition], selection: TopicSelection) -> None:
    """JSON offsets must name the partitions that are read, all and only: a forgotten one would be read from nowhere."""
    if spec.everywhere is not None:
        return
    missing = sorted(set(partitions) - set(spec.by_partition))
    surplus = sorted(set(spec.by_partition) - set(partitions))
    if missing:
        raise OptionError(
            f"option {spec.option} has no offset for {_listed(missing)}, which option {selection.option} selects:"
            " name every partition, with -2 for earliest or -1 for latest"
        )
    if surplus:
        raise OptionError(
            f"option {spec.option} names {_listed(surplus)}, which option {selection.option} does not select: remove it"
        )


def _listed(partitions: Sequence[Partition]) -> str:
    shown = ", ".join(f"{topic} partition {number}" for topic, number in partitions[:5])
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")


def _resolve(spec: OffsetSpec, partition: Partition, log_start: int, high_watermark: int, strict: bool) -> int:
    wanted = spec.by_partition[partition] if spec.everywhere is None else spec.everywhere
    if wanted < 0:
        return log_start if wanted == EARLIEST else high_watermark
    if log_start <= wanted <= high_watermark:
        return wanted
    if not strict:
        return min(max(wanted, log_start), high_watermark)
    topic, number = partition
    raise DataLossError(
        f"option {spec.option} asks for offset {wanted} of topic {topic} partition {number}, which holds"
        f" [{log_start}, {high_watermark}): correct it, or set failOnDataLoss to false to read what is there"
    )


def _inverted(options: ReadOptions, partition: Partition, start: int, end: int) -> OptionError:
    topic, number = partition
    return OptionError(
        f"option {options.starting.option} ({start}) lies beyond option {options.ending.option} ({end})"
        f" for topic {topic} partition {number}"
    )
