"""The part of a partition's log that a reader gets where the log has transactions.

Kafka's clients get every batch, and with read_committed the list of aborted transactions: they leave out themselves
what does not count. For clients of our own the node leaves it out. Offsets between the batches are then missing, which
the answer says like those that compaction has removed; where nothing follows what was left out, a cover has its
offsets, so that the reader continues behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from quorumlog.server.partition.aborted_ranges import AbortedBatches, AbortedRange
from quorumlog.server.partition.open_transactions import OpenTransactions
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.data_plane_pb2 import (
    ISOLATION_LEVEL_READ_COMMITTED,
    ISOLATION_LEVEL_READ_NOT_ABORTED,
    ISOLATION_LEVEL_UNSPECIFIED,
    IsolationLevel,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import BatchHeader, build_cover, is_of_transaction, parse_header

#: A batch has 32 bits for the number of offsets that it covers.
_MOST_COVERED = 1 << 32


@dataclass(slots=True)
class VisibleEntries:
    """The entries that a reader gets.

    Arguments:
        gaps_before: below it offsets may be missing, because some were left out; 0: none were.
        aborted: the aborted transactions that the reader leaves out itself.
        next_offset: where the reader continues.
        problem: the error in place of entries.
    """

    entries: list[bytes]
    next_offset: int
    gaps_before: int = 0
    aborted: list[AbortedRange] = field(default_factory=list)
    problem: errors_pb2.Error | None = None


def stable_end(partition: Partition, level: IsolationLevel.ValueType) -> int:
    """Returns the end of the log for a reader: the last stable offset with read_committed, or the high watermark."""
    return partition.last_stable_offset if level == ISOLATION_LEVEL_READ_COMMITTED else partition.high_watermark


def read_isolated(
    partition: Partition,
    offset: int,
    max_bytes: int,
    level: IsolationLevel.ValueType,
    *,
    takes_control: bool,
) -> VisibleEntries:
    """Reads a partition whose log has transactions.

    Arguments:
        takes_control: the reader gets markers and aborted batches too.

    Raises:
        UnreadableEntryError: the first batch is damaged.
    """
    transactions = partition.transactions
    assert transactions is not None
    is_committed = level == ISOLATION_LEVEL_READ_COMMITTED
    entries = partition.read_stable(offset, max_bytes) if is_committed else partition.read(offset, max_bytes)
    if not entries:
        return VisibleEntries(entries, offset)
    end = parse_header(entries[-1]).last_offset + 1
    if level == ISOLATION_LEVEL_UNSPECIFIED:
        return _before_transactions(partition, entries)
    if takes_control:
        aborted = sorted(_aborted(transactions, offset, end), key=_FIRST_OFFSET) if is_committed else []
        return VisibleEntries(entries, end, aborted=aborted)
    omits_aborted = is_committed or level == ISOLATION_LEVEL_READ_NOT_ABORTED
    aborted_batches = AbortedBatches(_aborted(transactions, offset, end)) if omits_aborted else None
    return _visible(partition.group, entries, end, aborted_batches)


def _aborted(transactions: OpenTransactions, first: int, end: int) -> Iterator[AbortedRange]:
    return transactions.aborted.between(first, end)


def _visible(group: int, entries: Sequence[bytes], end: int, aborted: AbortedBatches | None) -> VisibleEntries:
    """Leaves out markers and aborted batches."""
    kept: list[bytes] = []
    covered = parse_header(entries[0]).base_offset
    omitted = False
    for entry in entries:
        if is_of_transaction(entry) and _is_left_out(parse_header(entry), aborted):
            omitted = True
        else:
            kept.append(entry)
            covered = parse_header(entry).last_offset + 1
    while covered < end:
        last = min(end, covered + _MOST_COVERED)
        kept.append(build_cover(group, covered, last - 1))
        covered = last
    return VisibleEntries(kept, end, end if omitted else 0)


def _is_left_out(header: BatchHeader, aborted: AbortedBatches | None) -> bool:
    return header.is_control or (aborted is not None and aborted.holds(header.producer_id, header.base_offset))


def _before_transactions(partition: Partition, entries: list[bytes]) -> VisibleEntries:
    """Returns the entries before the first of a transaction, for clients that would misread those."""
    before: list[bytes] = []
    for entry in entries:
        if is_of_transaction(entry):
            break
        before.append(entry)
    if not before:
        return VisibleEntries([], 0, problem=refuse_transactions(partition.name))
    return VisibleEntries(before, parse_header(before[-1]).last_offset + 1)


def refuse_transactions(partition: str) -> errors_pb2.Error:
    """Returns the error for a client that cannot read the batch of a transaction that comes next."""
    return error(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{partition} continues with a transaction, and this client cannot read it: upgrade it to the version of the"
        " nodes",
    )


_FIRST_OFFSET = attrgetter("first_offset")
