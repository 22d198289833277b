"""Mirrors in both directions: marks records with their origin, so that they are not sent back, and maps the committed
offsets of groups.

Each record that a mirror of both directions copies gets a header: the id of the source cluster, the offset there, and
the partition. The mirror of the other direction does not copy a record whose header names its own target. It also
learns from the header which record of the target a record of the source is. So both logs are mapped onto each other
without a request to the other mirror.

The header names the partition because programs pass headers on: a record that a stream job derives from a copied one
has the header too, but is in another topic, and must be copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from quorumlog.sdk.mirror.offset_map import OffsetRun
from quorumlog.sdk.mirror.source import SourceRecord
from quorumlog.sdk.types import Headers

#: Name of the header.
HEADER = "quorumlog-mirror"
_MOST_DIGITS = 19


def headers_with_origin(record: SourceRecord, source: str) -> Headers:
    """Returns the headers of the copy of a record.

    Arguments:
        source: id of the cluster that has the record.
    """
    topic, partition = record.partition
    return [*record.headers, (HEADER, f"{source} {record.offset} {topic}-{partition}".encode())]


def origin_of(record: SourceRecord, cluster: str) -> int | None:
    """Returns the offset in ``cluster`` of the record that a mirror copied from there; None if it did not."""
    for name, value in record.headers:
        if name == HEADER and value is not None:
            words = value.split(b" ")
            place = b"%s-%d" % (record.partition.topic.encode(), record.partition.partition)
            if len(words) == 3 and words[0] == cluster.encode() and words[2] == place and _is_offset(words[1]):
                return int(words[1])
    return None


def _is_offset(text: bytes) -> bool:
    """True for a number of 63 bits at most; Python refuses to parse numbers of unlimited length."""
    return text.isdigit() and len(text) <= _MOST_DIGITS and int(text) < 1 << 63


def both_ways(copied: Sequence[OffsetRun], returned: Sequence[OffsetRun], source_offset: int) -> int | None:
    """Returns the offset in the target at which a group continues that has read the source up to an offset.

    The log of the target has copies of the source's records, and records of its own. The group has read one of its own
    only if the copy in the source is before the offset. No record of the target before the result is unread.

    Arguments:
        copied: records of the source, and their offsets in the target.
        returned: offsets in the source of records that came from the target, and their offsets there.
        source_offset: of the next record that the group reads in the source.

    Returns:
        None if too little is known.
    """
    if copied and source_offset < copied[0].source:
        return None  # Older copies may have been dropped from the list, and be unread.
    newest = _before(returned, source_offset)
    bound = _end_of_copies(copied, 0 if newest is None else newest + 1)
    if newest is None and not bound:
        return None
    next_returned = _first_unread(returned, source_offset)
    if newest is not None and next_returned is not None:
        bound = next_returned  # The target has no record of its own in between.
    bounds = (bound, next_returned, _unread_copy(copied, source_offset))
    return min(each for each in bounds if each is not None)


def _unread_copy(copied: Sequence[OffsetRun], source_offset: int) -> int | None:
    """Returns a target offset at or before that of the first copy of an unread record; None without such a copy.

    Between two runs there may be copies whose offsets are not known.
    """
    for one, next_ in pairwise(copied):
        if one.source + one.length <= source_offset < next_.source:
            return one.target + one.length
    return _first_unread(copied, source_offset)


def _first_unread(runs: Sequence[OffsetRun], source_offset: int) -> int | None:
    """Returns the target offset of the first record at or behind a source offset."""
    for run in runs:
        if source_offset < run.source + run.length:
            return run.target + max(source_offset - run.source, 0)
    return None


def _before(runs: Sequence[OffsetRun], source_offset: int) -> int | None:
    """Returns the target offset of the last record before a source offset."""
    for run in reversed(runs):
        if run.source < source_offset:
            return run.target + min(source_offset - run.source, run.length) - 1
    return None


def _end_of_copies(runs: Sequence[OffsetRun], at: int) -> int:
    """Returns the end of the copies that follow a target offset without a gap."""
    first = bisect_left(runs, at, key=lambda run: run.target + run.length)
    for run in runs[first:]:
        if run.target > at:
            break
        at = max(at, run.target + run.length)
    return at
