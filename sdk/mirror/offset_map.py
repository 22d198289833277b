"""Maps offsets of the source to offsets here: of records, and of committed offsets.

A mirror adds records one after the other, so offsets differ by a number that changes only where the source has a gap
(compaction, transactions) or has removed its oldest records. Between two changes lies a *run*. If there are too many,
the oldest are dropped: a group with an offset there reads some records again, and misses none.

Source: the offset syncs of Kafka's MirrorMaker 2 (KIP-382), which keep single points.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.errors import NonEmptyGroupError
from quorumlog.sdk.types import TopicPartition

#: Limit of runs of one partition. They are stored with every plan.
MOST_RUNS = 200
_log = logging.getLogger(__name__)


class OffsetRun(NamedTuple):
    """Consecutive records in the source and here.

    Arguments:
        source: offset of the first one in the source.
        target: its offset here.
        length: number of records.
    """

    source: int
    target: int
    length: int


def runs_of(
    source_offsets: Sequence[int], target_offsets: Sequence[int], before: Sequence[OffsetRun] = ()
) -> list[OffsetRun]:
    """Returns the runs of records that have been added in this order.

    Arguments:
        source_offsets: increasing.
        target_offsets: of the same records, increasing; -1 for one whose offset is not known. It gets one if what is
            known leaves no other, and is in no run otherwise.
        before: runs of the records that were added earlier.
    """
    end = before[-1].target + before[-1].length if before else 0
    found: list[list[int]] = []
    for source, target in zip(source_offsets, _completed(target_offsets, end), strict=True):
        if target < 0:
            continue
        last = found[-1] if found else None
        if last is not None and last[0] + last[2] == source and last[1] + last[2] == target:
            last[2] += 1
        else:
            found.append([source, target, 1])
    return [OffsetRun(*run) for run in found]


def _completed(targets: Sequence[int], end: int) -> list[int]:
    """Fills offsets in that are not known: of records between two known ones that have just as many places."""
    found = list(targets)
    unknown = 0
    for at, target in enumerate(targets):
        if target < 0:
            unknown += 1
            continue
        if unknown and target - unknown == end:
            found[at - unknown : at] = range(end, target)
        unknown, end = 0, target + 1
    return found


def joined(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Merges consecutive runs, and keeps the newest ``MOST_RUNS``."""
    found: list[OffsetRun] = []
    for run in runs:
        last = found[-1] if found else None
        if last and (last.source + last.length, last.target + last.length) == (run.source, run.target):
            found[-1] = last._replace(length=last.length + run.length)
        else:
            found.append(run)
    return found[-MOST_RUNS:]


def translated(runs: Sequence[OffsetRun], source_offset: int) -> int | None:
    """Returns the offset here that corresponds to a committed offset of the source.

    Arguments:
        runs: of the partition, in order.

    Returns:
        The offset, or the next one after a gap; None before the first known run.
    """
    at = bisect_right(runs, source_offset, key=lambda run: run.source) - 1
    if at < 0:
        return None
    run = runs[at]
    return run.target + min(source_offset - run.source, run.length)


class GroupOffsets:
    """Copies committed offsets of groups, and never moves one back: a group may have read further here.

    Arguments:
        here: returns the place here of an offset in the source; None if it is not known.
    """

    def __init__(self, admin: Admin, here: Callable[[TopicPartition, int], tuple[TopicPartition, int] | None]) -> None:
        self._admin = admin
        self._here = here
        #: The last written offsets, by group.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._skipped: set[str] = set()

    def copy(self, committed: Mapping[str, Mapping[TopicPartition, int]]) -> int:
        """Copies changed offsets; returns the number of groups with offsets here.

        Arguments:
            committed: offsets in the source, by group.
        """
        for group, offsets in committed.items():
            here = dict(place for tp, offset in offsets.items() if (place := self._here(tp, offset)) is not None)
            if here and here != self._written.get(group) and self._write(group, here):
                self._written[group] = here
        return len(self._written)

    def _write(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        there = self._admin.list_group_offsets(group)
        forward = {tp: at for tp, at in offsets.items() if tp not in there or there[tp].offset < at}
        if not forward:
            return True
        try:
            self._admin.alter_group_offsets(group, forward)
        except NonEmptyGroupError:
            if group not in self._skipped:
                self._skipped.add(group)
                _log.warning("group %s has members here: its offsets stay as they are", group)
            return False
        return True
