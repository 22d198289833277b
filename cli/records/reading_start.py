"""Where ``quorumlog consume`` begins: at an offset, so many records before the end, at a time, at the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.times import parse_time_ms

if TYPE_CHECKING:
    from quorumlog.sdk import Consumer, TopicPartition


class ReadingStart(NamedTuple):
    """Where to begin in each partition; at the end if it says nothing.

    Arguments:
        offset: this one, which must be there.
        last: so many records before the end, or as many as there are.
        time_ms: the first record at or after it, in milliseconds since 1970.
        beginning: the first record that is kept.
    """

    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None
    beginning: bool = False

    @property
    def is_for_groups(self) -> bool:
        """Whether a group, which knows by itself where to go on, can be told so too: for what it has never read."""
        return self.offset is None and self.last is None and self.time_ms is None


def parse_start(*, from_beginning: bool, offset: str | None, tail: int | None, from_time: str | None) -> ReadingStart:
    """What the options of a command line say.

    Raises:
        CommandError: two of them contradict each other, or one is no offset or time.
    """
    if sum((from_beginning, offset is not None, tail is not None, from_time is not None)) > 1:
        raise CommandError("give one of --offset, --tail, --from-time, --from-beginning, not both", WRONG_USAGE)
    if from_time is not None:
        return ReadingStart(time_ms=parse_time_ms(from_time, "--from-time"))
    if tail is not None:
        return ReadingStart(last=tail)
    if offset is None or offset in ("earliest", "latest"):
        return ReadingStart(beginning=from_beginning or offset == "earliest")
    digits = offset.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or int(digits) >= 1 << 63:
        raise CommandError(
            f"--offset '{offset}' is no offset: give a number from 0 on, -N for the last N records, earliest or latest",
            WRONG_USAGE,
        )
    return ReadingStart(last=int(digits)) if digits != offset else ReadingStart(offset=int(offset))


def seek_start(consumer: Consumer, partitions: list[TopicPartition], start: ReadingStart) -> None:
    """Brings a consumer to where it is to begin.

    Raises:
        CommandError: the offset is not there.
    """
    if start.beginning:
        consumer.seek_to_beginning(*partitions)
    elif start.offset is not None:
        _check_offset(consumer, partitions[0], start.offset)
        consumer.seek(partitions[0], start.offset)
    elif start.last is not None:
        first, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        _seek_each(consumer, {where: max(first[where], ends[where] - start.last) for where in partitions})
    elif start.time_ms is not None:
        # Looked up first: what is written between the two is not to be missed where no record is as late yet.
        ends = consumer.end_offsets(partitions)
        found = consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
        _seek_each(consumer, {where: ends[where] if at is None else at.offset for where, at in found.items()})
    else:
        consumer.seek_to_end(*partitions)


def _seek_each(consumer: Consumer, offsets: Mapping[TopicPartition, int]) -> None:
    for where, offset in offsets.items():
        consumer.seek(where, offset)


def _check_offset(consumer: Consumer, where: TopicPartition, offset: int) -> None:
    """A user who names an offset wants that one: another, or none without a word, would be wrong."""
    from quorumlog.sdk.cluster.offset_search import extent

    [first], [end] = consumer.beginning_offsets([where]).values(), consumer.end_offsets([where]).values()
    if not first <= offset <= end:
        raise CommandError(
            f"--offset {offset} is not in {where.topic}-{where.partition}: {extent(first, end)}; give one of those,"
            " -N for the last N records, earliest or latest"
        )
