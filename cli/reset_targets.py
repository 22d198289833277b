"""Targets of an offset reset: parses the options, and computes the new offset of a partition."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, os_problem
from quorumlog.cli.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from quorumlog.sdk import TopicPartition

FILE_FORM = "lines of TOPIC,PARTITION,OFFSET, such as orders,0,42"


class PartitionBeforeReset(NamedTuple):
    """One partition before a reset: its committed offset (None without one), its start and end, and its first offset at
    or after the requested time (None past the last record).
    """

    tp: TopicPartition
    committed: int | None
    start: int
    end: int
    at_time: int | None = None


class ResetTarget(NamedTuple):
    """The new offset of each partition, not yet limited to the log.

    Attributes:
        time_ms: the time to look up beforehand, for ``PartitionBeforeReset.at_time``.
        offsets: the offsets of a file; its partitions are the ones to reset.
    """

    offset: Callable[[PartitionBeforeReset], int]
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None


class Wish(NamedTuple):
    """The options of the command line that name a target; exactly one is given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    to_datetime: str | None = None
    to_timestamp: int | None = None
    shift_by: int | None = None
    by_duration: str | None = None
    from_file: Path | None = None


def target(wish: Wish) -> ResetTarget:
    """Returns the target that the command line names.

    Raises:
        CommandError: no target is named, more than one, or an invalid one.
    """
    chosen = {name: value for name, value in wish._asdict().items() if value is not None and value is not False}
    if len(chosen) != 1:
        options = ", ".join("--" + name.replace("_", "-") for name in chosen or Wish._fields)
        raise CommandError(f"give one of {options}", WRONG_USAGE)
    if wish.from_file is not None:
        offsets = read_offsets(wish.from_file)
        return ResetTarget(lambda place: offsets[place.tp], offsets=offsets)
    if wish.to_earliest:
        return ResetTarget(lambda place: place.start)
    if wish.to_latest:
        return ResetTarget(lambda place: place.end)
    if wish.to_current:
        return ResetTarget(_committed)
    if wish.to_offset is not None:
        wanted = wish.to_offset
        return ResetTarget(lambda place: wanted)
    if wish.shift_by is not None:
        distance = wish.shift_by
        return ResetTarget(lambda place: _committed(place) + distance)
    return ResetTarget(lambda place: place.end if place.at_time is None else place.at_time, time_ms=_time_ms(wish))


def _time_ms(wish: Wish) -> int:
    if wish.to_datetime is not None:
        return parse_time_ms(wish.to_datetime, "--to-datetime")
    if wish.by_duration is not None:
        return max(0, time.time_ns() // 1_000_000 - parse_duration_ms(wish.by_duration, "--by-duration"))
    assert wish.to_timestamp is not None
    return wish.to_timestamp


def _committed(place: PartitionBeforeReset) -> int:
    if place.committed is None:
        topic, number = place.tp
        raise CommandError(f"no offset is committed for {topic}-{number}: choose the target with another option")
    return place.committed


def within_log(place: PartitionBeforeReset, wanted: int) -> tuple[int, str | None]:
    """Returns the offset of the log that is nearest to the requested one, and a warning if it is another one."""
    name = f"{place.tp.topic}-{place.tp.partition}"
    if wanted < place.start:
        return place.start, f"offset {wanted} lies before the start of {name}: using the start, {place.start}"
    if wanted > place.end:
        return place.end, f"offset {wanted} lies beyond the end of {name}: using the end, {place.end}"
    return wanted, None


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    """Returns the offsets in a file of ``--export``.

    Raises:
        CommandError: the file cannot be read, or has a wrong format.
    """
    from quorumlog.sdk import TopicPartition

    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.reader(lines, strict=True) if row]
    except OSError as error:
        raise CommandError(f"cannot read {file}: {os_problem(error)}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise CommandError(f"{file} is not CSV: {error}; expected {FILE_FORM}", WRONG_USAGE) from None
    offsets: dict[TopicPartition, int] = {}
    for row in rows:
        if len(row) != 3 or not row[0] or not _is_number(row[1], 2**31) or not _is_number(row[2], 2**63):
            raise CommandError(f"{file} has an invalid row {','.join(row)!r}; expected {FILE_FORM}", WRONG_USAGE)
        where = TopicPartition(row[0], int(row[1]))
        if offsets.setdefault(where, int(row[2])) != int(row[2]):
            raise CommandError(f"{file} names {row[0]}-{row[1]} twice, with different offsets", WRONG_USAGE)
    if not offsets:
        raise CommandError(f"{file} names no partition; expected {FILE_FORM}", WRONG_USAGE)
    return offsets


def _is_number(text: str, beyond: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < beyond
