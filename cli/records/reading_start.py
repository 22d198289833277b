"""Start position of ``quorumlog consume``: an offset, a number of records before the end, a time, or the beginning."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.times import parse_time_ms

if TYPE_CHECKING:
    from quorumlog.sdk import Consumer, TopicPartition


class ReadingStart(NamedTuple):
    """The start position in each partition; the end by default.

    Arguments:
        offset: this offset, which must exist.
        last: this number of records before the end, or as many as exist.
        time_ms: the first record at or after this time, in milliseconds since 1970.
        beginning: the first available record.
    """

    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None
    beginning: bool = False

    @property
    def is_for_groups(self) -> bool:
        """True if a group can have this position, which it uses only for partitions without a committed offset."""
        return self.offset is None and self.last is None and self.time_ms is None


def parse_start(*, from_beginning: bool, offset: str | None, tail: int | None, from_time: str | None) -> ReadingStart:
    """Parses the options of a command line.

    Raises:
        CommandError: two of them contradict each other, or one is not an offset or time.
    """
    if sum((from_beginning, offset is not None, tail is not None, from_time is not None)) > 1:
        raise CommandError("give only one of --offset, --tail, --from-time, --from-beginning", WRONG_USAGE)
    if from_time is not None:
        return ReadingStart(time_ms=parse_time_ms(from_time, "--from-time"))
    if tail is not None:
        return ReadingStart(last=tail)
    if offset is None or offset in ("earliest", "latest"):
        return ReadingStart(beginning=from_beginning or offset == "earliest")
    digits = offset.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or int(digits) >= 1 << 63:
        raise CommandError(
            f"--offset '{offset}' is not an offset: give 0 or more, -N for the last N records, earliest or latest",
            WRONG_USAGE,
        )
    return ReadingStart(last=int(digits)) if digits != offset else ReadingStart(offset=int(offset))


def seek_start(consumer: Consumer, partitions: list[TopicPartition], start: ReadingStart) -> None:
    """Moves a consumer to the start position.

    Raises:
        CommandError: the offset does not exist.
    """
    if start.beginning:
        consumer.seek_to_beginning(*partitions)
    elif start.offset is not None:
        _check_offset(consumer, partitions[0], start.offset)
        consumer.seek(partitions[0], start.offset)
    elif start.last is not None:
        _seek_each(consumer, _last_records(consumer, partitions, start.last))
    elif start.time_ms is not None:
        # Looked up first: records written between the two lookups must not be missed where no record is that late yet.
        ends = consumer.end_offsets(partitions)
        found = consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
        _seek_each(consumer, {where: ends[where] if at is None else at.offset for where, at in found.items()})
    else:
        consumer.seek_to_end(*partitions)


def _last_records(consumer: Consumer, partitions: list[TopicPartition], count: int) -> dict[TopicPartition, int]:
    """Returns where the last ``count`` records of each partition start.

    Offsets do not count them: those of markers, of aborted records and of compacted ones hold no record. So the end of
    each partition is read, and more of it where that was not enough.
    """
    first, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    starts = {where: ends[where] if count == 0 else first[where] for where in partitions}
    searched = [where for where in partitions if count and ends[where] - first[where] > count]
    span = count
    while searched:
        consumer.assign(searched)
        begins = {where: max(first[where], ends[where] - span) for where in searched}
        _seek_each(consumer, begins)
        found = _newest_offsets(consumer, {where: ends[where] for where in searched}, count)
        for where, offsets in found.items():
            starts[where] = offsets[0] if len(offsets) == count else first[where]
        searched = [where for where in searched if len(found[where]) < count and begins[where] > first[where]]
        span *= 4
    consumer.assign(partitions)
    return starts


def _newest_offsets(
    consumer: Consumer, ends: Mapping[TopicPartition, int], count: int
) -> dict[TopicPartition, deque[int]]:
    """Reads each partition up to an end; returns the offsets of the last records before that, at most ``count``."""
    found: dict[TopicPartition, deque[int]] = {where: deque(maxlen=count) for where in ends}
    while any(consumer.position(where) < end for where, end in ends.items()):
        for where, records in consumer.poll(timeout_ms=500, max_records=5_000).items():
            found[where].extend(record.offset for record in records if record.offset < ends[where])
    return found


def _seek_each(consumer: Consumer, offsets: Mapping[TopicPartition, int]) -> None:
    for where, offset in offsets.items():
        consumer.seek(where, offset)


def _check_offset(consumer: Consumer, where: TopicPartition, offset: int) -> None:
    """Raises CommandError if the offset does not exist: silently reading from another one would be wrong."""
    from quorumlog.sdk.cluster.offset_search import extent

    [first], [end] = consumer.beginning_offsets([where]).values(), consumer.end_offsets([where]).values()
    if not first <= offset <= end:
        raise CommandError(
            f"--offset {offset} is not in {where.topic}-{where.partition}: {extent(first, end)}; give one of those,"
            " -N for the last N records, earliest or latest"
        )
