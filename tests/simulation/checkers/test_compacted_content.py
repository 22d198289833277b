"""The simulator's model of compaction names what a replica has dropped, kept too long or brought back."""

from __future__ import annotations

import re

import pytest

from quorumlog.simulator.models.compacted_content import CompactedContent
from quorumlog.simulator.models.records import TOMBSTONE, arrow_payload, records_of
from quorumlog.v1.partition_log_pb2 import CompactLog
from quorumlog.wire.entry import Codec, build_batch, seal_batch


def batch(base_offset: int, **records: str) -> bytes:
    """A sealed batch of records by key."""
    payload = arrow_payload(list(records), list(records.values()), at_ms=1)
    unsealed = build_batch(
        payload, record_count=len(records), codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1
    )
    return seal_batch(unsealed, group=7, term=1, index=1, previous_hash=0, base_offset=base_offset)


#: Key a is superseded, b is deleted, c is as it was.
LOG = [batch(0, a="1", b="2"), batch(2, b=TOMBSTONE, c="3"), batch(4, a="5"), batch(5, a="6")]


def content(*times_ms: int) -> CompactedContent:
    """Points at 4 and 5, as many as there are times; tombstones may go after 10 ms."""
    model = CompactedContent()
    for end, at_ms in zip((4, 5), times_ms, strict=False):
        model.apply(CompactLog(end_offset=end, timestamp_ms=at_ms, delete_retention_ms=10), 6)
    return model


def test_what_is_left_are_last_records_and_tombstones_until_their_time_is_over() -> None:
    assert list(content(100).left(4, LOG)) == [0, 2, 3]
    assert list(content(100, 109).left(5, LOG)) == [2, 3, 4]
    assert list(content(100, 110).left(5, LOG)) == [3, 4]


def test_a_point_counts_only_where_it_moves_on_and_leaves_the_last_batch_alone() -> None:
    model = content(100, 101)
    model.apply(CompactLog(end_offset=5), 6)
    model.apply(CompactLog(end_offset=6), 6)
    assert [point.end_offset for point in model.points] == [4, 5]


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([batch(2, b=TOMBSTONE, c="3"), batch(4, a="5")], ""),
        ([batch(2, b=TOMBSTONE, c="3")], "offset=4.* is missing"),
        ([batch(3, c="3"), batch(4, a="5")], "offset=2.* is missing"),
        ([batch(0, a="1"), batch(2, b=TOMBSTONE, c="3"), batch(4, a="5")], "offset=0.* is superseded"),
        ([batch(2, b=TOMBSTONE, c="x"), batch(4, a="5")], "value='x'.* never written"),
        ([batch(4, a="5"), batch(2, b=TOMBSTONE, c="3")], "do not rise"),
    ],
)
def test_compacted_batches_are_judged(slices: list[bytes], reason: str) -> None:
    found = content(100, 101).wrong_in(5, 0, slices, LOG)
    assert re.search(reason, found) if reason else not found, found


def test_records_below_the_log_start_may_be_gone() -> None:
    model = content(100, 101)
    assert not model.wrong_in(5, 4, [batch(4, a="5")], LOG)
    assert "there is no point at 3" in model.wrong_in(3, 0, [], LOG)


def test_an_answer_to_a_fetch_leaves_nothing_out_that_is_left() -> None:
    model = content(100, 101)
    assert not model.wrong_in_answer(5, 0, 0, [batch(2, b=TOMBSTONE, c="3"), *LOG[2:]], LOG)
    assert not model.wrong_in_answer(5, 0, 3, [batch(3, c="3")], LOG)
    assert "offset=2" in model.wrong_in_answer(5, 0, 0, [batch(3, c="3")], LOG)
    assert "offset=4" in model.wrong_in_answer(5, 0, 0, [batch(2, b=TOMBSTONE, c="3"), LOG[3]], LOG)


def test_records_are_read_as_they_were_written() -> None:
    assert [(record.offset, record.key, record.value) for record in records_of(LOG[1])] == [
        (2, "b", TOMBSTONE),
        (3, "c", "3"),
    ]
