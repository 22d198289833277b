"""End offsets of leader epochs: in the offset index, in entries not yet on disk, and before the start of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from quorumlog.raft.log import RaftLog
from quorumlog.raft.types import Entry, EntryId, EntryKind
from quorumlog.server.partition.epoch_lookup import find_epoch_end
from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import Codec, build_batch, seal_batch


class Log:
    """A leader's partition and its disk, over a log in memory.

    Arguments:
        terms: of the entries behind the anchor; negative for a batch of two records.
        durable: entries that are on the disk.
    """

    def __init__(self, *terms: int, anchor: int = 0, anchor_term: int = 0, start: int = 0, durable: int = 99) -> None:
        self.group = 1
        self.log_start_offset = start
        self.rows: list[BatchRow] = []
        entries, offset = [], start
        for index, term in enumerate(terms, anchor + 1):
            batch = term < 0
            data = b""
            if batch:
                built = build_batch(b"x" * 8, record_count=2, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
                data = seal_batch(built, group=1, term=-term, index=index, previous_hash=0, base_offset=offset)
                if index <= durable:
                    self.rows.append(BatchRow(index, offset, offset + 1, 0, 0))
                offset += 2
            entries.append(Entry(index, abs(term), EntryKind.BATCH if batch else EntryKind.NOOP, index, data))
        self.high_watermark = offset
        self.log = RaftLog(
            store=cast(Any, None),
            anchor=EntryId(anchor, anchor_term, 0),
            last=EntryId(anchor, anchor_term, 0),
            commit=anchor,
            applied=anchor,
        )
        self.log.append(entries)
        self.applied_index = self.log.last.index
        self.durable_index = min(durable, self.applied_index)
        self.term = self.log.last.term
        self.anchor = self.log.anchor
        self.raft = self

    def last_up_to_term(self, term: int, high: int) -> tuple[int, int] | None:
        index = self.log.last_at_most(high, term, self.log.anchor.index)
        return None if index < self.log.anchor.index else (index, self.log.term_at(index))

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        return self.log.slice(first, last, max_bytes)

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        return next((row for row in self.rows if row.last_offset >= first_offset and reached(row)), None)

    def end(self, epoch: int) -> tuple[int, int] | None:
        return find_epoch_end(cast(Partition, self), cast(StorageReader, self), epoch)


@pytest.mark.parametrize("durable", [99, 3, 0])
def test_epochs_end_where_the_next_records_are_also_before_a_disk_has_them(durable: int) -> None:
    log = Log(2, -2, -2, 5, 5, -5, 6, 6, durable=durable)
    assert log.end(2) == (2, 4)
    assert log.end(5) == log.end(5) == (5, 6)
    assert log.end(6) == (6, 6)


def test_an_epoch_in_which_nobody_led_is_that_before_it() -> None:
    log = Log(2, -2, 5, -5, 9)
    assert [log.end(epoch) for epoch in (3, 4)] == [(2, 2), (2, 2)]
    assert log.end(8) == (5, 4)


def test_epochs_that_are_none_or_newer_are_not_known() -> None:
    log = Log(2, -2)
    assert [log.end(epoch) for epoch in (-1, -9, 3, 1 << 40)] == [None] * 4


def test_epochs_from_before_the_log_end_where_it_begins() -> None:
    log = Log(-4, -4, 7, -7, anchor=20, anchor_term=3, start=10)
    assert [log.end(epoch) for epoch in (0, 2)] == [(0, 10), (2, 10)]
    # The anchor's own one ended with it.
    assert log.end(3) == (3, 10)
    assert log.end(4) == (4, 14)


def test_an_epoch_whose_records_have_expired_ends_where_the_log_begins() -> None:
    log = Log(-4, -4, 7, -7)
    log.log_start_offset = 5
    assert log.end(4) == (4, 5)
