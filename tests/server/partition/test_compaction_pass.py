"""A pass keeps the last value of each key, and several points in one pass leave what they leave one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.server.partition.compaction_pass import CleanSection, CompactionPass
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.wire.entry import Codec, Flags, build_batch, parse_envelope, parse_header, seal_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.compaction_samples import (
    Compacted,
    Model,
    Placed,
    Sample,
    records_in,
    stored_batch,
    stored_by_kafka,
)
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry
from tests.support.unreadable_batches import UNREADABLE, unreadable_entry

#: Larger than any test's log.
WHOLE = 1 << 30

records = st.builds(
    Sample,
    key=st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"dd"]),
    value=st.none() | st.binary(max_size=3),
    timestamp_ms=st.integers(0, 50),
    headers=st.lists(st.tuples(st.sampled_from(["", "h"]), st.none() | st.binary(max_size=2)), max_size=2).map(tuple),
)


@st.composite
def logs_with_points(draw: st.DrawFn) -> tuple[list[bytes], list[CompactionPoint]]:
    """Draws a log, and points at ends of its batches. Clocks of different leaders may go back."""
    batches, ends, offset = [], [], 0
    for content in draw(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=12)):
        append_time_ms = draw(st.none() | st.integers(0, 50))
        if draw(st.booleans()):
            batches.append(stored_by_kafka(offset, content, draw(st.sampled_from(list(KafkaCodec))), append_time_ms))
        else:
            batches.append(stored_batch(offset, content, draw(st.sampled_from(list(Codec))), append_time_ms))
        offset += len(content)
        ends.append(offset)
    points, start, step = [], 0, 0
    for end in sorted(draw(st.sets(st.sampled_from(ends), min_size=1, max_size=6))):
        start = draw(st.integers(start, min(end, start + 4)))
        # The cluster's feature level rises at some point; the policies of the topic may change before each.
        step = draw(st.sampled_from([1, 7, 20] if step else [0, 1, 7, 20]))
        retention = draw(st.none() | st.integers(0, 30)) if step else None
        times = draw(st.integers(0, 90)), draw(st.integers(0, 15))
        points.append(CompactionPoint(end, *times, start, retention, step))
    return batches, points


@pytest.mark.thorough
@given(
    sample=logs_with_points(),
    cuts=st.lists(st.booleans(), min_size=6, max_size=6),
    batch_bytes=st.sampled_from([1, 200, WHOLE]),
    chunk_bytes=st.sampled_from([1, 900, WHOLE]),
)
@settings(max_examples=150, deadline=None)
def test_points_leave_the_same_whether_carried_out_one_by_one_or_together(
    sample: tuple[list[bytes], list[CompactionPoint]], cuts: list[bool], batch_bytes: int, chunk_bytes: int
) -> None:
    log, points = sample
    headers = [parse_header(entry) for entry in log]
    appended = {
        offset: header.append_time_ms
        for header in headers
        for offset in range(header.base_offset, header.last_offset + 1)
    }
    model, one_by_one, grouped = Model(appended), Compacted(WHOLE), Compacted(batch_bytes, chunk_bytes)
    placed = list(records_in(log))
    waiting: list[CompactionPoint] = []
    for point, cut in zip(points, cuts, strict=False):
        model.compact(placed, point)
        one_by_one.compact(log, [point])
        assert list(records_in(one_by_one.batches)) == model.content
        waiting.append(point)
        if cut or point is points[-1]:
            grouped.compact(log, waiting)
            waiting = []
            assert list(records_in(grouped.batches)) == model.content
            assert grouped.hash == one_by_one.hash
    assert all(
        parse_header(before).last_offset < parse_header(after).base_offset
        for before, after in pairwise(grouped.batches)
    )


def compacted(*batches: list[Sample], points: list[tuple[int, int, int]]) -> list[Placed]:
    log, offset = [], 0
    for content in batches:
        log.append(stored_batch(offset, content))
        offset += len(content)
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(end, time, retention, 0) for end, time, retention in points])
    return list(records_in(state.batches))


def kept_after(points: list[CompactionPoint], *records: tuple[bytes, int, int], before: int = 0) -> list[int]:
    """Returns the offsets that some points leave of records with these keys, timestamps and append times.

    Arguments:
        before: so many of the points are carried out in a pass of their own.
    """
    log = [
        stored_batch(place, [Sample(key, b"v", at)], append_time_ms=appended, stamps_records=False)
        for place, (key, at, appended) in enumerate(records)
    ]
    state = Compacted(WHOLE)
    for group in (points[:before], points[before:]):
        if group:
            state.compact(log, group)
    return [placed.offset for placed in records_in(state.batches)]


@pytest.mark.parametrize("before", [0, 1])
def test_old_records_are_dropped(before: int) -> None:
    """With a retention, a record is dropped once a point's own timestamp exceeds its age by that, in either section."""
    points = [CompactionPoint(2, 1_000, 0, 0, 500, 1), CompactionPoint(3, 1_101, 0, 0, 500, 1)]
    assert kept_after(points, (b"a", 600, 600), (b"b", 601, 601), (b"c", 1_050, 1_050), before=before) == [1, 2]


@pytest.mark.parametrize(("timestamp_ms", "appended_ms"), [(100, 600), (600, 100), (-1, 600)])
def test_age_counts_from_the_later_time(timestamp_ms: int, appended_ms: int) -> None:
    """A record is as old as its timestamp or its append, whichever is later; one without a timestamp as its append."""
    for clock_ms, kept in ((1_100, [0]), (1_101, [])):
        points = [CompactionPoint(1, clock_ms, 0, 0, 500, 1)]
        assert kept_after(points, (b"a", timestamp_ms, appended_ms)) == kept


def test_superseded_values_stay_dropped() -> None:
    """A newer value supersedes an older one even if it is dropped for its age in the same pass."""
    points = [CompactionPoint(2, 1_000, 0, 0, 100, 1)]
    assert kept_after(points, (b"a", 950, 100), (b"a", 100, 200)) == []


def test_append_times_are_rounded_up() -> None:
    """A compacted batch has one append time, no earlier than that of any of its records, and at most a step later."""
    state = Compacted(WHOLE)
    log = [stored_batch(n, [Sample(b"%d" % n, b"v", 0)], append_time_ms=n, stamps_records=False) for n in range(30)]
    state.compact(log, [CompactionPoint(30, 30, 0, 0, None, 10)])
    assert [(parse_header(batch).append_time_ms, parse_header(batch).last_offset) for batch in state.batches] == [
        (0, 0), (10, 10), (20, 20), (30, 29)
    ]  # fmt: skip


def test_older_points_leave_ages_unknown() -> None:
    """Records first covered by a point without append times count as appended at the first point that keeps them,
    whether they had been compacted by then or not."""
    points = [
        CompactionPoint(1, 1_000, 0, 0),
        CompactionPoint(2, 2_000, 0, 0, 100, 1),
        CompactionPoint(3, 2_100, 0, 0, 100, 1),
        CompactionPoint(4, 2_101, 0, 0, 100, 1),
    ]
    records = [(b"%d" % n, 0, 10) for n in range(4)]
    for before in range(4):
        assert kept_after(points[:3], *records, before=min(before, 2)) == [0]
        assert kept_after(points, *records, before=before) == []


def test_far_clocks_keep_nothing_forever() -> None:
    """An append time more than an hour ahead of the point counts as that of the point."""
    year_ms = 365 * 86_400_000
    points = [CompactionPoint(1, 1_000, 0, 0, 500, 1), CompactionPoint(2, 1_501, 0, 0, 500, 1)]
    assert kept_after(points[:1], (b"a", 0, year_ms), (b"b", 0, 1_500)) == [0]
    assert kept_after(points, (b"a", 0, year_ms), (b"b", 0, 1_500)) == [1]


@pytest.mark.parametrize("kind", UNREADABLE)
def test_unreadable_batches_age_too(kind: str) -> None:
    """A batch whose keys are unknown is kept for its retention, not longer, in either section."""
    entry = unreadable_entry(kind, 0)
    header = parse_header(entry)
    end, since_ms = header.last_offset + 1, max(header.append_time_ms, header.max_timestamp_ms)
    log = [entry, stored_batch(end, [Sample(b"b", b"1", since_ms + 500)])]
    for clock_ms, kept in ((since_ms + 500, True), (since_ms + 501, False)):
        whole, parts = Compacted(WHOLE), Compacted(WHOLE)
        last = CompactionPoint(end + 1, clock_ms, 0, 0, 500, 1)
        whole.compact(log, [last])
        parts.compact(log, [CompactionPoint(end, 0, 0, 0, None, 1)])
        parts.compact(log, [last])
        assert (entry in whole.batches) is (entry in parts.batches) is kept


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    kept = compacted([Sample(b"a", b"1"), Sample(b"b", b"2")], [Sample(b"a", b"3")], points=[(3, 0, 10)])
    assert [(placed.offset, placed.record.value) for placed in kept] == [(1, b"2"), (2, b"3")]


def test_records_without_a_key_stay() -> None:
    kept = compacted([Sample(None, b"1"), Sample(None, None), Sample(b"a", b"2")], points=[(3, 100, 0)])
    assert [placed.offset for placed in kept] == [0, 1, 2]


@pytest.mark.parametrize(("second_ms", "stays"), [(109, True), (110, False), (111, False)])
def test_a_tombstone_stays_until_its_horizon_and_its_key_never_comes_back(second_ms: int, stays: bool) -> None:
    log = [
        stored_batch(0, [Sample(b"a", b"1")]),
        stored_batch(1, [Sample(b"a", None)]),
        stored_batch(2, [Sample(b"z", b"")]),
    ]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(2, 100, 10, 0)])
    assert [placed.record for placed in records_in(state.batches)] == [Sample(b"a", None)]
    state.compact(log, [CompactionPoint(3, second_ms, 10, 0)])
    assert [placed.offset for placed in records_in(state.batches)] == ([1, 2] if stays else [2])


def test_what_was_compacted_before_goes_when_its_key_gets_a_new_value() -> None:
    log = [stored_batch(0, [Sample(b"a", b"1"), Sample(b"b", b"2")]), stored_batch(2, [Sample(b"a", b"3")])]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(2, 0, 0, 0)])
    state.compact(log, [CompactionPoint(3, 0, 0, 0)])
    assert [placed.offset for placed in records_in(state.batches)] == [1, 2]


def test_tombstones_that_stay_for_ever_have_a_horizon_that_fits_into_64_bits() -> None:
    log = [stored_batch(0, [Sample(b"a", None)]), stored_batch(1, [Sample(b"b", b"2")])]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(1, 1_700_000_000_000, (1 << 63) - 1, 0)])
    state.compact(log, [CompactionPoint(2, 1_800_000_000_000, (1 << 63) - 1, 0)])
    assert [placed.offset for placed in records_in(state.batches)] == [0, 1]


def test_a_batch_that_is_not_arrow_stays_as_it_is() -> None:
    foreign = build_batch(b"nonsense", record_count=3, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    entry = seal_batch(foreign, group=7, term=1, index=2, previous_hash=0, base_offset=1)
    log = [stored_batch(0, [Sample(b"a", b"1")]), entry, stored_batch(4, [Sample(b"a", b"2")])]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(5, 0, 0, 0)])
    assert state.batches[0] == entry
    assert [parse_envelope(batch).flags for batch in state.batches] == [Flags.NONE, Flags.GAPS]
    before = state.hash
    again = [*log, stored_batch(5, [Sample(b"b", b"3")])]
    state.compact(again, [CompactionPoint(6, 0, 0, 2)])
    assert [placed.offset for placed in records_in(state.batches[1:])] == [4, 5] and state.hash != before


@given(
    content=st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=6),
    codec=st.sampled_from(list(KafkaCodec)),
    append_time_ms=st.none() | st.integers(0, 50),
)
@settings(max_examples=40, deadline=None)
def test_a_compacted_log_hashes_the_same_whoever_wrote_it(
    content: list[list[Sample]], codec: KafkaCodec, append_time_ms: int | None
) -> None:
    ours, theirs, offset = [], [], 0
    for batch in content:
        ours.append(stored_batch(offset, batch, append_time_ms=append_time_ms))
        theirs.append(stored_by_kafka(offset, batch, codec, append_time_ms))
        offset += len(batch)
    hashes = set()
    for log in (ours, theirs, [*ours[::2], *theirs[1::2]]):
        state = Compacted(WHOLE)
        state.compact(
            sorted(log, key=lambda entry: parse_header(entry).base_offset), [CompactionPoint(offset, 0, 9, 0)]
        )
        assert not any(parse_header(entry).is_kafka for entry in state.batches), "what is left is Arrow"
        hashes.add(state.hash)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (KafkaCodec.NONE, Codec.NONE),
        (KafkaCodec.GZIP, Codec.ZSTD),
        (KafkaCodec.SNAPPY, Codec.LZ4),
        (KafkaCodec.LZ4, Codec.LZ4),
        (KafkaCodec.ZSTD, Codec.ZSTD),
    ],
)
def test_what_a_kafka_client_compressed_stays_compressed(written: KafkaCodec, left: Codec) -> None:
    log = [stored_by_kafka(0, [Sample(b"%d" % number, b"v" * 100) for number in range(50)], written)]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(50, 0, 0, 0)])
    assert [parse_header(entry).codec for entry in state.batches] == [left]
    assert len(list(records_in(state.batches))) == 50


def test_a_kafka_batch_whose_records_cannot_be_read_stays_as_it_is() -> None:
    damaged = bytearray(kafka_batch([(b"b", b"1", 0, [])]))
    damaged[61] ^= 2
    poisonous = stored_kafka_entry(bytes(damaged), 1)
    log = [stored_by_kafka(0, [Sample(b"a", b"1")]), poisonous, stored_by_kafka(2, [Sample(b"a", b"2")])]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(3, 0, 0, 0)])
    assert state.batches[0] == poisonous
    assert [placed.offset for placed in records_in(state.batches[1:])] == [2]


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_batch_is_kept_and_named_once(kind: str) -> None:
    poisonous = unreadable_entry(kind, 1)
    log = [stored_batch(0, [Sample(b"a", b"1")]), poisonous, stored_batch(4, [Sample(b"a", b"2")])]
    state = Compacted(WHOLE)
    state.compact(log, [CompactionPoint(5, 0, 0, 0)])
    assert poisonous in state.batches
    assert [placed.offset for placed in records_in([each for each in state.batches if each != poisonous])] == [4]
    points = [CompactionPoint(5, 0, 0, 0)]
    named = [work.unreadable for work in CompactionPass(7, points, CleanSection(tuple), lambda: log, WHOLE).run()]
    assert [header.base_offset for header in named if header is not None] == [1]
    again = CompactionPass(7, points, CleanSection(lambda: [poisonous]), lambda: log[2:], WHOLE)
    assert not any(work.unreadable for work in again.run()), "an earlier pass has named it"


def test_batches_come_out_near_the_size_asked_for_and_a_pass_in_small_pieces() -> None:
    log = [stored_batch(100 * n, [Sample(b"%d" % (100 * n + i), b"v" * 100) for i in range(100)]) for n in range(50)]
    state = Compacted(64 << 10, 32 << 10)
    state.compact(log, [CompactionPoint(5_000, 0, 0, 0)])
    assert [placed.offset for placed in records_in(state.batches)] == list(range(5_000))
    assert 10 < len(state.batches) < 40
    assert max(map(len, state.batches)) < 80 << 10
