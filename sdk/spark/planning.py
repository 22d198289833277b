"""From options to exact offsets: topics and offsets are resolved once, on the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from quorumlog.sdk.cluster.metadata import DEFAULT_MAX_MESSAGE_BYTES
from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.spark.errors import DataLossError, OptionError
from quorumlog.sdk.spark.options import BatchOptions, OffsetSpec, TopicSelection

#: A partition, as (topic, number).
Partition = tuple[str, int]


class Bounds(NamedTuple):
    """Log start and end of a partition. For readers of committed records, it ends at the last stable offset."""

    log_start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic's identity, which differs for a recreated topic, its partition count, and its limit of a batch."""

    topic_id: bytes
    partition_count: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


class Catalog(Protocol):
    """The requests of planning to a cluster."""

    def topic_names(self) -> Sequence[str]:
        """Returns all topics of the cluster except internal ones."""

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicShape]:
        """Returns the existing topics of these names."""

    def bounds(self, shapes: Mapping[str, TopicShape], partitions: Sequence[Partition]) -> Mapping[Partition, Bounds]:
        """Returns log start and end of each partition."""

    def offsets_at(
        self, shapes: Mapping[str, TopicShape], times_ms: Mapping[Partition, int]
    ) -> Mapping[Partition, int | None]:
        """Returns the first offset at or after each partition's timestamp; otherwise None."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The partitions of a selection at one moment.

    Attributes:
        missing: named topics that do not exist.
    """

    shapes: Mapping[str, TopicShape]
    partitions: Sequence[Partition]
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets [start, end) of one partition: a Spark task reads one or several such ranges.

    Arguments:
        piece: its number among the ranges that were cut from one.
    """

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    piece: int = 0

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.partition} offsets [{self.start}, {self.end})"


def _any(held: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Bounds of a read, beside those of its options: records beyond them are not needed.

    Arguments:
        topics, partitions: whether a topic, and a partition by its number, has records that are needed.
        first, end: so do offsets in [first, end); ``end`` None: no bound.
        since_ms: so do records from the first one on that is not older, in milliseconds since the epoch.
    """

    topics: Callable[[str], bool] = _any
    partitions: Callable[[int], bool] = _any
    first: int = 0
    end: int | None = None
    since_ms: int = 0

    def within(self, other: ReadBounds) -> ReadBounds:
        """Returns the bounds of what both need."""
        return ReadBounds(
            topics=lambda name: self.topics(name) and other.topics(name),
            partitions=lambda number: self.partitions(number) and other.partitions(number),
            first=max(self.first, other.first),
            end=min((end for end in (self.end, other.end) if end is not None), default=None),
            since_ms=max(self.since_ms, other.since_ms),
        )

    def select(self, selected: Selected) -> Selected:
        """Returns the partitions that are needed."""
        needed = [each for each in selected.partitions if self.topics(each[0]) and self.partitions(each[1])]
        return replace(selected, partitions=needed)

    def starts(self, catalog: Catalog, selected: Selected) -> Mapping[Partition, int | None]:
        """Returns the first offset that is needed in each partition; None: none is."""
        if self.since_ms <= 0 or not selected.partitions:
            return dict.fromkeys(selected.partitions, self.first)
        found = catalog.offsets_at(selected.shapes, dict.fromkeys(selected.partitions, self.since_ms))
        return {each: None if offset is None else max(offset, self.first) for each, offset in found.items()}


EVERYTHING = ReadBounds()


def plan(catalog: Catalog, options: BatchOptions, needed: ReadBounds = EVERYTHING) -> list[OffsetRange]:
    """Resolves a batch read to non-empty ranges, by topic and partition.

    Arguments:
        needed: what is read of the records that the options select.

    Raises:
        OptionError: a topic or partition does not exist, or offsets name the wrong partitions or contradict each other.
        DataLossError: requested offsets do not exist and failOnDataLoss is on.
    """
    read = options.read
    selected = select(catalog, read.selection)
    require_topics(selected.missing, read.selection)
    specs = (read.starting, options.ending)
    for spec in specs:
        check_coverage(spec, selected.partitions, read.selection)
    selected = needed.select(selected)
    # Before the bounds: offsets found by time must not be beyond the ends.
    starts = needed.starts(catalog, selected)
    times = [times_of(catalog, spec, selected) for spec in specs]
    bounds = catalog.bounds(selected.shapes, selected.partitions) if selected.partitions else {}
    ranges = []
    for partition in selected.partitions:
        start, end = (
            resolve(spec, partition, bounds[partition], found, read.fail_on_data_loss)
            for spec, found in zip(specs, times, strict=True)
        )
        if start > end:
            if read.fail_on_data_loss:
                raise _inverted(options, partition, start, end)
            start = end
        first, topic, number = starts[partition], *partition
        start, end = (end if first is None else max(start, first)), min(end, end if needed.end is None else needed.end)
        if start < end:
            ranges.append(OffsetRange(topic, selected.shapes[topic].topic_id, number, start, end))
    return ranges


def select(catalog: Catalog, selection: TopicSelection) -> Selected:
    """Resolves a selection, by topic and partition.

    Raises:
        OptionError: option assign names a partition that its topic does not have.
    """
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        wanted = sorted(name for name in catalog.topic_names() if pattern.fullmatch(name))
    else:
        wanted = sorted(selection.subscribe or selection.assign or ())
    shapes = catalog.describe(wanted) if wanted else {}
    missing = [topic for topic in wanted if topic not in shapes] if selection.pattern is None else []
    if selection.assign is None:
        every = [(topic, number) for topic in sorted(shapes) for number in range(shapes[topic].partition_count)]
        return Selected(shapes, every, missing)
    for topic, shape in shapes.items():
        beyond = [number for number in selection.assign[topic] if number >= shape.partition_count]
        if beyond:
            raise OptionError(
                f"option assign names partition {beyond[0]} of topic {topic}, which has {shape.partition_count}"
                f" (0 to {shape.partition_count - 1})"
            )
    assigned = [(topic, number) for topic in sorted(shapes) for number in selection.assign[topic]]
    return Selected(shapes, assigned, missing)


def require_topics(missing: Sequence[str], selection: TopicSelection) -> None:
    """Raises an error for named topics that do not exist.

    Raises:
        OptionError: at least one does not exist.
    """
    if missing:
        raise OptionError(
            f"option {selection.option} names {', '.join(map(repr, missing))}, which the cluster does not have:"
            " create the topic first, or correct the name"
        )


def check_coverage(spec: OffsetSpec, partitions: Sequence[Partition], selection: TopicSelection) -> None:
    """Verifies that JSON offsets name exactly the partitions that are read: a missing one would have no start.

    Raises:
        OptionError: the message names missing or surplus partitions.
    """
    if spec.everywhere is not None:
        return
    missing = sorted(set(partitions) - set(spec.by_partition))
    surplus = sorted(set(spec.by_partition) - set(partitions))
    if missing:
        what = "timestamp" if spec.by_time else "offset"
        advice = "" if spec.by_time else ", with -2 for earliest or -1 for latest"
        raise OptionError(
            f"option {spec.option} has no {what} for {listed(missing)}, which option {selection.option} selects:"
            f" name every partition{advice}"
        )
    if surplus:
        raise OptionError(
            f"option {spec.option} names {listed(surplus)}, which option {selection.option} does not select: remove it"
        )


def listed(partitions: Sequence[Partition]) -> str:
    """Returns the first few partitions, for a message."""
    shown = ", ".join(f"{topic} partition {number}" for topic, number in partitions[:5])
    return shown + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")


def times_of(catalog: Catalog, spec: OffsetSpec, selected: Selected) -> Mapping[Partition, int | None]:
    """Returns the offsets at the timestamps of a spec; empty without timestamps."""
    if not spec.by_time or not selected.partitions:
        return {}
    return catalog.offsets_at(
        selected.shapes, {partition: _asked(spec, partition) for partition in selected.partitions}
    )


def resolve(
    spec: OffsetSpec, partition: Partition, bounds: Bounds, found: Mapping[Partition, int | None], strict: bool
) -> int:
    """Returns the offset of a spec for a partition.

    Arguments:
        found: the result of ``times_of`` for it.
        strict: raise for an offset that does not exist; otherwise the nearest one is used.

    Raises:
        OptionError: no record is as late as the timestamp.
        DataLossError: the offset does not exist, and ``strict``.
    """
    wanted = found.get(partition, LATEST) if spec.by_time else _asked(spec, partition)
    if wanted is None:
        if not spec.late_is_latest:
            raise _too_late(spec, partition)
        wanted = LATEST
    if wanted < 0:
        return bounds.log_start if wanted == EARLIEST else bounds.end
    nearest = min(max(wanted, bounds.log_start), bounds.end)
    if nearest == wanted or spec.by_time or not strict:
        return nearest
    topic, number = partition
    raise DataLossError(
        f"option {spec.option} asks for offset {wanted} of topic {topic} partition {number}, which holds"
        f" [{bounds.log_start}, {bounds.end}): correct it, or set failOnDataLoss to false to read what is"
        " there"
    )


def _asked(spec: OffsetSpec, partition: Partition) -> int:
    return spec.by_partition[partition] if spec.everywhere is None else spec.everywhere


def _too_late(spec: OffsetSpec, partition: Partition) -> OptionError:
    topic, number = partition
    return OptionError(
        f"option {spec.option} asks for {_asked(spec, partition)} ms, and topic {topic} partition {number} has no"
        " record at or after that: take an earlier time, or set startingOffsetsByTimestampStrategy to latest"
    )


def _inverted(options: BatchOptions, partition: Partition, start: int, end: int) -> OptionError:
    topic, number = partition
    return OptionError(
        f"option {options.read.starting.option} (offset {start}) lies beyond option {options.ending.option}"
        f" (offset {end}) for topic {topic} partition {number}"
    )
