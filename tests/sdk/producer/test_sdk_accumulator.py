"""Batches gather, linger, fill and stay within the producer's memory; time is the test's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.sdk.producer.accumulator import Accumulator, TopicBuffers
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.records.record_batch import RECORD_OVERHEAD_BYTES, to_log_schema
from quorumlog.wire.entry import Codec, parse_header


class Bench:
    """An accumulator with a clock that only the test moves."""

    def __init__(
        self,
        *,
        batch_size: int = 10_000,
        linger_s: float = 0.005,
        memory: int = 100_000,
        partitions: int = 3,
        cut_by_time: bool = True,
    ) -> None:
        self.now = 100.0
        self.wakes = 0
        #: Whether nothing is under way to the leaders.
        self.idle = False
        self.accumulator = Accumulator(
            batch_size=batch_size,
            linger_s=linger_s,
            buffer_memory=memory,
            clock=lambda: self.now,
            wake=self.wake,
            cut_by_time=cut_by_time,
        )
        self.topic = TopicBuffers("t")
        self.topic.resize(partitions)
        self.topic.available = list(range(partitions))
        self.accumulator.topics["t"] = self.topic

    def wake(self) -> None:
        self.wakes += 1

    def send(self, size: int = 100, partition: int | None = None) -> RecordFuture | None:
        value = b"v" * (size - RECORD_OVERHEAD_BYTES)
        return self.accumulator.append(self.topic, partition, None, value, 1, None, size)

    def drain(self) -> list[ProducerBatch]:
        return self.accumulator.drain(lambda buffer: True, lambda buffer: self.idle)[0]


def test_a_record_that_is_to_be_explained_is_a_batch_of_its_own_and_waits_for_nothing() -> None:
    bench = Bench()
    bench.send(partition=0)
    notes = BatchNotes()
    assert bench.accumulator.append_alone(bench.topic, 0, None, b"v", 1, None, 50, notes) is not None
    bench.send(partition=0)
    (before,), (alone,) = bench.drain(), bench.drain()
    assert (before.record_count, before.notes) == (1, None), "order is kept: what waited goes first"
    assert (alone.record_count, alone.notes, notes.taken_s) == (1, notes, 100.0)
    assert bench.drain() == [], "who came later waits for company"
    bench.now += 1
    assert [batch.notes for batch in bench.drain()] == [None]


def test_without_memory_nothing_is_taken_to_be_explained() -> None:
    bench = Bench(memory=100)
    assert bench.accumulator.append_alone(bench.topic, None, None, b"v", 1, None, 500, BatchNotes()) is None


def test_a_record_waits_for_company_until_it_has_lingered() -> None:
    bench = Bench()
    bench.send()
    batches, deadline = bench.accumulator.drain(lambda buffer: True, lambda buffer: False)
    assert (batches, deadline) == ([], 100.005)
    bench.now = 100.004
    bench.send()
    assert bench.drain() == []
    bench.now = 100.005
    (batch,) = bench.drain()
    assert batch.record_count == 2
    assert bench.drain() == []


def test_a_record_waits_for_nothing_while_nothing_is_under_way_to_its_leader() -> None:
    bench = Bench(linger_s=60)
    bench.send(partition=0)
    bench.send(partition=1)
    batches, deadline = bench.accumulator.drain(lambda buffer: True, lambda buffer: buffer.partition == 1)
    assert [batch.partition for batch in batches] == [1]
    assert deadline == 160.0, "the other one's leader is busy: it waits, for so long at most"
    bench.send(partition=0)
    bench.idle = True
    assert [batch.record_count for batch in bench.drain()] == [2], "records that arrived while it waited share a batch"


def test_what_may_be_sent_again_is_never_cut_because_a_leader_happens_to_be_idle() -> None:
    bench = Bench(cut_by_time=False)
    bench.idle = True
    bench.send(partition=0)
    assert bench.drain() == []


def test_the_sender_is_woken_by_the_first_record_and_by_a_full_batch_not_by_each_record() -> None:
    bench = Bench()
    for _ in range(60):
        bench.send()
    assert bench.wakes == 1
    for _ in range(60):
        bench.send()
    assert bench.wakes == 3
    assert [batch.record_count for batch in bench.drain()] == [89]


def test_records_without_a_key_stick_to_one_partition_until_its_batch_is_sent_and_then_go_on() -> None:
    bench = Bench()
    places = []
    for _ in range(6):
        bench.send()
        bench.send()
        bench.now += 0.005
        (batch,) = bench.drain()
        places.append(batch.partition)
        assert batch.record_count == 2
    assert sorted(places[:3]) == sorted(places[3:]) == [0, 1, 2]


def test_batches_go_to_partitions_that_keep_up_while_another_has_no_leader() -> None:
    bench = Bench(batch_size=1, memory=10_000_000)
    for _ in range(300):
        bench.send()
        bench.accumulator.drain(lambda buffer: buffer.partition != 1, lambda buffer: False)
    assert len(bench.topic.partitions[1].waiting) < 5


def test_memory_is_never_exceeded_and_comes_back_when_batches_are_settled() -> None:
    bench = Bench(memory=40_000)
    sent = 0
    while bench.send() is not None:
        sent += 1
    assert 200 <= sent <= 400
    assert bench.accumulator.free_bytes >= 0
    woken: list[bool] = []
    bench.accumulator.when_room(lambda: woken.append(True))
    batches = []
    while drained := bench.drain():  # A client waits: nothing lingers.
        batches.extend(drained)
    assert sum(batch.record_count for batch in batches) == sent
    for batch in batches:
        batch.delivery.succeed(0, -1)
        bench.accumulator.complete(batch)
    assert woken == [True]
    assert bench.accumulator.free_bytes == 40_000
    assert bench.send() is not None


def test_a_record_larger_than_a_batch_gets_one_of_its_own() -> None:
    bench = Bench()
    bench.send(100, partition=0)
    bench.send(50_000, partition=0)
    bench.send(100, partition=0)
    bench.now += 1
    assert [[b.record_count for b in bench.drain()] for _ in range(3)] == [[1], [1], [1]]


def test_a_flush_ends_lingering_and_one_more_batch_per_partition_comes_at_each_turn() -> None:
    bench = Bench(partitions=2)
    for _ in range(150):
        bench.send(100, partition=0)
    bench.send(100, partition=1)
    begun = bench.accumulator.begin_flush()
    assert len(begun) == 3
    assert sorted((b.partition, b.record_count) for b in bench.drain()) == [(0, 89), (1, 1)]
    assert [(b.partition, b.record_count) for b in bench.drain()] == [(0, 61)]
    bench.accumulator.end_flush()
    bench.send()
    assert bench.drain() == []


def test_arrow_batches_keep_their_place_behind_records_sent_before() -> None:
    bench = Bench()
    bench.send(100, partition=0)
    assert bench.accumulator.append_rows(bench.topic, 0, rows(10)) is not None
    bench.send(100, partition=0)
    bench.now += 1
    assert [[b.record_count for b in bench.drain()] for _ in range(3)] == [[1], [10], [1]]


def rows(count: int, size: int = 10) -> pa.RecordBatch:
    return to_log_schema(pa.table({"value": [b"x" * size] * count}), 1).to_batches()[0]


def test_few_rows_wait_for_more_and_go_together() -> None:
    bench = Bench()
    parts = [bench.accumulator.append_rows(bench.topic, 0, rows(count)) for count in (10, 20, 5)]
    assert [part[1:] for part in parts if part] == [(0, 10), (10, 20), (30, 5)]
    assert bench.drain() == []
    bench.idle = True
    (batch,) = bench.drain()
    assert batch.record_count == 35
    assert {part.delivery for part in parts if part} == {batch.delivery}
    assert parse_header(batch.seal(Codec.NONE, None, -1)).record_count == 35


def test_rows_without_a_partition_stick_to_one_until_its_batch_is_full() -> None:
    bench = Bench(batch_size=5_000)
    sent = [bench.accumulator.append_rows(bench.topic, None, rows(20)) for _ in range(12)]
    placed = [part.delivery.partition for part in sent if part]
    assert len(placed) == 12
    assert placed == sorted(placed, key=placed.index), "one after the other"
    assert len(set(placed)) > 1
    for _ in range(12):
        for batch in bench.drain():
            assert batch.used_bytes <= 5_000 and batch.record_count >= 40


def test_rows_after_which_no_as_many_would_fit_wait_for_nothing() -> None:
    bench = Bench(batch_size=10_000)
    bench.accumulator.append_rows(bench.topic, 0, rows(60, 100))
    (batch,) = bench.drain()
    assert batch.record_count == 60


def test_a_record_behind_rows_is_in_a_batch_of_its_own_and_so_are_rows_behind_a_record() -> None:
    bench = Bench()
    bench.accumulator.append_rows(bench.topic, None, rows(10))
    bench.send(100)
    bench.accumulator.append_rows(bench.topic, 0, rows(3))
    bench.send(100, partition=0)
    bench.accumulator.append_rows(bench.topic, 0, rows(4))
    bench.accumulator.begin_flush()
    counts: dict[int, list[int]] = {}
    for _ in range(5):
        for batch in bench.drain():
            counts.setdefault(batch.partition, []).append(batch.record_count)
    assert counts[0][-3:] == [3, 1, 4], "in the order in which they were sent"


def test_rows_of_a_producer_that_cuts_the_same_way_in_each_run_are_batches_of_their_own() -> None:
    bench = Bench(cut_by_time=False)
    for count in (10, 20):
        bench.accumulator.append_rows(bench.topic, 0, rows(count))
    assert [[batch.record_count for batch in bench.drain()] for _ in range(2)] == [[10], [20]]


@pytest.mark.parametrize("as_rows", [True, False])
def test_batches_stay_within_what_the_topic_takes(as_rows: bool) -> None:
    bench = Bench(batch_size=50_000)
    bench.topic.max_batch_bytes = 5_000
    for _ in range(30):
        taken = bench.accumulator.append_rows(bench.topic, 0, rows(3, 100)) if as_rows else bench.send(300, partition=0)
        assert taken
    bench.idle = True
    batches = [batch for _ in range(30) for batch in bench.drain()]
    assert 3 <= len(batches) <= 10
    assert all(len(batch.seal(Codec.NONE, None, -1)) <= 5_000 for batch in batches)


def test_rows_with_nulls_among_others_stay_within_what_the_topic_takes() -> None:
    """A null in one of them gives all rows of the batch a bitmap."""
    bench = Bench(batch_size=1 << 20, memory=1 << 24)
    bench.topic.max_batch_bytes = limit = (1 << 20) - (1 << 12)
    some = to_log_schema(pa.table({"key": [None, *[b""] * 49], "value": [None, *[b""] * 49]}), 1).to_batches()[0]
    many = to_log_schema(pa.table({"key": [b""] * 400, "value": [b""] * 400}), 1).to_batches()[0]
    for each in (some, *[many] * 300):
        assert bench.accumulator.append_rows(bench.topic, 0, each) is not None
    bench.idle = True
    (batch, *_) = bench.drain()
    assert batch.record_count > 40_000
    assert len(batch.seal(Codec.NONE, None, -1)) <= limit


def test_rows_one_by_one_fill_the_memory_with_what_they_take_of_it() -> None:
    bench = Bench(memory=100_000, batch_size=50_000)
    taken = 0
    while bench.accumulator.append_rows(bench.topic, 0, rows(1)) is not None:
        taken += 1
    assert 20 <= taken < 50


def test_rows_and_records_that_take_turns_keep_a_batch_each() -> None:
    bench = Bench()
    for _ in range(5):
        bench.send(100)
        bench.accumulator.append_rows(bench.topic, None, rows(2))
    bench.idle = True
    assert sorted(batch.record_count for batch in bench.drain()) == [5, 10]


def test_batches_that_are_cut_the_same_way_in_each_run_heed_no_configuration() -> None:
    bench = Bench(batch_size=50_000, cut_by_time=False)
    bench.topic.max_batch_bytes = 5_000
    for _ in range(30):
        bench.send(300, partition=0)
    bench.accumulator.begin_flush()
    assert [batch.record_count for batch in bench.drain()] == [30]


def test_rows_for_a_partition_that_has_gone_are_not_taken() -> None:
    bench = Bench(partitions=1)
    assert bench.accumulator.append_rows(bench.topic, 1, rows(1)) is None


def test_batches_that_are_too_old_are_taken_out_oldest_first() -> None:
    bench = Bench()
    bench.send(100, partition=0)
    bench.now = 200.0
    bench.send(100, partition=1)
    (late,) = bench.accumulator.expire(150.0)
    assert (late.partition, late.record_count, late.closed) == (0, 1, True)
    bench.now = 300.0
    assert [batch.partition for batch in bench.drain()] == [1]


@pytest.mark.parametrize("keyed_first", [True, False])
def test_keys_and_missing_keys_stay_with_their_records(keyed_first: bool) -> None:
    bench = Bench()
    keys = [b"k", None, b"l"] if keyed_first else [None, b"k", None]
    for key in keys:
        bench.accumulator.append(bench.topic, 0, key, b"v", 1, None, 30)
    bench.now += 1
    (batch,) = bench.drain()
    assert batch.keys == keys


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["send", "drain", "settle", "tick"]), st.integers(30, 9_000)), max_size=200
    )
)
@settings(max_examples=60, deadline=None)
def test_memory_adds_up_whatever_happens(steps: list[tuple[str, int]]) -> None:
    bench = Bench(memory=60_000)
    unsettled: list[ProducerBatch] = []
    sent = settled = 0
    for step, number in steps:
        if step == "send":
            sent += bench.send(number, partition=number % 4 if number % 4 < 3 else None) is not None
        elif step == "drain":
            unsettled.extend(bench.drain())
        elif step == "settle" and unsettled:
            batch = unsettled.pop(number % len(unsettled))
            settled += batch.record_count
            bench.accumulator.complete(batch)
        else:
            bench.now += 0.002
        reserved = sum(batch.reserved_bytes for batch in bench.accumulator.begin_flush())
        bench.accumulator.end_flush()
        assert bench.accumulator.free_bytes + reserved == 60_000
        assert bench.accumulator.free_bytes >= 0
    bench.now += 1
    while drained := bench.drain():
        unsettled.extend(drained)
    assert settled + sum(batch.record_count for batch in unsettled) == sent


def test_an_empty_key_first_in_a_batch_is_no_missing_key() -> None:
    bench = Bench()
    for key in (b"", None, b"", b"k"):
        bench.accumulator.append(bench.topic, 0, key, b"v", 1, None, 30)
    bench.now += 1
    (batch,) = bench.drain()
    assert batch.keys == [b"", None, b"", b"k"]
    alone = Bench()
    alone.accumulator.append(alone.topic, 0, b"", b"v", 1, None, 30)
    alone.now += 1
    assert alone.drain()[0].keys == [b""]


def test_keyless_records_go_to_partitions_with_a_leader_while_there_is_one() -> None:
    bench = Bench()
    bench.topic.available = [2]
    for _ in range(4):
        bench.send()
        bench.now += 0.005
        assert [batch.partition for batch in bench.drain()] == [2]
    bench.topic.available = []
    places = set()
    for _ in range(6):
        bench.send()
        bench.now += 0.005
        places |= {batch.partition for batch in bench.drain()}
    assert places == {0, 1, 2}, "with none, all are as good"


def test_partitions_that_a_topic_has_no_more_give_their_batches_back_and_take_none() -> None:
    bench = Bench()
    kept, dropped = bench.send(partition=0), bench.send(partition=2)
    assert kept is not None and dropped is not None
    bench.topic.sticky = bench.topic.partitions[2]
    (batch,) = bench.accumulator.drop_partitions(bench.topic, 2)
    assert (batch.partition, batch.closed, batch.record_count) == (2, True, 1)
    assert (len(bench.topic.partitions), bench.topic.available, bench.topic.sticky) == (2, [0, 1], None)
    bench.accumulator.complete(batch)
    assert bench.send(partition=2) is None
    bench.now += 1
    (left,) = bench.drain()
    assert left.partition == 0 and not bench.accumulator.has_waiting()
    bench.accumulator.complete(left)
    assert bench.accumulator.free_bytes == 100_000


def test_what_expires_leaves_nothing_waiting_and_its_memory_comes_back() -> None:
    bench = Bench()
    bench.send(partition=0)
    bench.send(partition=1)
    assert bench.accumulator.expire(100.0) == [], "it started at that time, not before"
    late = bench.accumulator.expire(100.1)
    assert len(late) == 2 and not bench.accumulator.has_waiting()
    for batch in late:
        bench.accumulator.complete(batch)
    assert bench.accumulator.free_bytes == 100_000
    bench.send(partition=0)
    assert bench.wakes == 3 and bench.accumulator.has_waiting()


def test_whoever_waits_for_room_is_told_once_and_lingering_begins_again() -> None:
    bench = Bench()
    reported: list[bool] = []
    bench.send()
    bench.accumulator.when_room(lambda: reported.append(True))
    (batch,) = bench.drain()
    bench.accumulator.complete(batch)
    assert reported == [True]
    bench.send()
    assert bench.drain() == [], "no caller waits for room"
    bench.now += 1
    bench.accumulator.complete(bench.drain()[0])
    assert reported == [True]


def test_two_flushes_end_one_by_one() -> None:
    bench = Bench()
    bench.accumulator.begin_flush()
    bench.accumulator.begin_flush()
    bench.accumulator.end_flush()
    bench.send()
    assert len(bench.drain()) == 1
    bench.accumulator.end_flush()
    bench.send()
    assert bench.drain() == []


def test_a_batch_that_could_not_be_sent_stays_first() -> None:
    bench = Bench()
    bench.send(9_900, partition=0)
    bench.send(9_900, partition=0)
    bench.now += 1
    assert bench.accumulator.drain(lambda buffer: False, lambda buffer: True)[0] == []
    first, second = bench.drain() + bench.drain()
    assert first.created_s <= second.created_s and not bench.accumulator.has_waiting()


def test_after_the_end_nothing_is_taken_and_all_that_is_unresolved_is_named() -> None:
    bench = Bench()
    bench.send(partition=0)
    bench.now += 1
    (sent,) = bench.drain()
    waiting = bench.send(partition=1)
    assert waiting is not None
    left = list(bench.accumulator.shut())
    assert left[0] is sent and len(left) == 2 and all(batch.closed for batch in left)
    assert bench.send(partition=1) is None and bench.send(partition=0) is None
    assert bench.accumulator.append_rows(bench.topic, 0, rows(1)) is None


def test_who_waits_for_room_hears_of_the_end_also_one_who_begins_to_wait_behind_it() -> None:
    """Otherwise the sender of a record waits for all of ``max_block_ms``, and gets the error that the memory is full,
    where its producer has failed in that moment."""
    bench = Bench()
    reported: list[str] = []
    bench.accumulator.when_room(lambda: reported.append("before"))
    assert reported == []
    list(bench.accumulator.shut())
    bench.accumulator.when_room(lambda: reported.append("behind"))
    assert reported == ["before", "behind"]
