"""The fetcher beside nodes that the test answers for: what is asked of whom and when, and which answers are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hand_driven_cluster import TOPIC_ID, Code, HandDrivenCluster, Question, turn
from scripted_cluster import error as refusal
from stored_batches import stored_batch

from quorumlog.sdk.cluster.cluster import IDLE_S
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState, Start
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.consumer.fetcher import Fetcher
from quorumlog.sdk.errors import (
    CorruptRecordError,
    NetworkError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.sdk.records.fetch_answer import FetchAnswer, read_fetch_answer
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import Codec

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
KIB = 1024


def arrived(response: data_plane_pb2.FetchResponse) -> FetchAnswer:
    """Returns what a client makes of an answer."""
    return read_fetch_answer(response.SerializeToString())


class Bench:
    """A fetcher of ``t``, whose partitions node 1 leads, each at offset 0."""

    def __init__(self, leaders: Sequence[int] = (1,), **options: Any) -> None:
        self.cluster = HandDrivenCluster()
        self.config = ConsumerConfig(**options)
        self.assignment = Assignment(self.config.max_partition_fetch_bytes, self.cluster.clock)
        self.fetcher = Fetcher(
            self.config, self.cluster, self.assignment, self.cluster.clock, ConsumerMetrics(self.cluster.clock())
        )
        self.cluster.show(*leaders)
        for number in range(len(leaders)):
            tp = TopicPartition("t", number)
            self.assignment.add([tp], self.config.auto_offset_reset)
            self[tp].position = self[tp].fetch_offset = 0
            self[tp].topic_id = TOPIC_ID
        self.fetcher.wake()

    def __getitem__(self, tp: TopicPartition) -> PartitionState:
        return self.assignment.states[tp]

    def under_way(self, node: int = 1) -> list[Question[data_plane_pb2.FetchRequest]]:
        """The fetches that a node has not answered."""
        return self.cluster.nodes[node].fetch.unanswered

    def asked(self, node: int = 1) -> list[data_plane_pb2.FetchRequest]:
        return self.cluster.nodes[node].fetch.requests

    async def answer(
        self,
        *results: data_plane_pb2.FetchResult,
        node: int = 1,
        number: int = 0,
        error: Any = None,
        turns: int = 12,
    ) -> None:
        """A node answers one of its fetches."""
        question = self.under_way(node)[number]
        question.answer.set_result(arrived(data_plane_pb2.FetchResponse(results=results, error=error)))
        await turn(turns)

    async def after(self, seconds: float) -> None:
        """Time passes."""
        self.cluster.clock.now_s += seconds
        self.fetcher.wake()
        await turn()

    def take(self, most: int = 10_000) -> list[tuple[int, int]]:
        rows, _ = self.assignment.take_fetched(most)
        return [(part.tp.partition, offset) for part in rows for offset in part.offsets().to_pylist()]


def holds(
    partition: int = 0, *entries: bytes, end: int = 100, start: int = 0, epoch: int = 1, compacted: int = 0
) -> data_plane_pb2.FetchResult:
    """A result with entries."""
    return data_plane_pb2.FetchResult(
        topic_id=TOPIC_ID,
        partition=partition,
        entries=entries,
        high_watermark=end,
        log_start_offset=start,
        leader_epoch=epoch,
        compacted_offset=compacted,
    )


def fails(
    code: Any, partition: int = 0, *, end: int = 100, start: int = 0, epoch: int = 1, **more: Any
) -> data_plane_pb2.FetchResult:
    """A result with an error."""
    result = holds(partition, end=end, start=start, epoch=epoch)
    result.error.CopyFrom(refusal(code, **more))
    return result


def numbers(partition: int, offsets: Iterable[int]) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in offsets]


# --- which answers are taken ------------------------------------------------------------------------------------------


async def test_an_answer_moves_on_and_the_next_fetch_goes_on_without_naming_it() -> None:
    bench = Bench()
    assert [(one.partition, one.fetch_offset) for one in bench.asked()[0].partitions] == [(0, 0)]
    await bench.answer(holds(0, stored_batch(0, 5), stored_batch(5, 5)))
    assert bench.take() == numbers(0, range(10))
    assert bench[P0].fetch_offset == 10 and bench[P0].high_watermark == 100
    assert len(bench.under_way()) == 1 and not bench.asked()[1].partitions


async def test_who_is_behind_asks_on_before_the_answer_has_come_and_who_is_not_waits_for_it() -> None:
    bench = Bench(max_partition_fetch_bytes=max(1024, len(stored_batch(0, 50)) * 3 // 2))
    await bench.answer(holds(0, stored_batch(0, 50), end=150))
    assert len(bench.under_way()) == 2, "more than another answer's worth lies behind the first"
    assert not any(request.partitions for request in bench.asked()[1:])
    bench.take()
    await bench.answer(holds(0, stored_batch(50, 50), end=150))
    assert len(bench.under_way()) == 1, "what is left comes with the request that is under way"
    bench.take()
    await bench.answer(holds(0, stored_batch(100, 50), end=150))
    bench.take()
    await bench.after(0.01)
    assert bench[P0].fetch_offset == 150 and len(bench.under_way()) == 1, "and then one waits, not two in turn"


async def test_small_answers_are_no_reason_to_ask_twice() -> None:
    bench = Bench()
    await bench.answer(holds(0, stored_batch(0, 5), end=1_000))
    assert len(bench.under_way()) == 1


@pytest.mark.parametrize("compacted", [0, 100])
@pytest.mark.parametrize("elsewhere", [50, 3])
async def test_an_answer_that_arrives_after_a_seek_is_not_taken(compacted: int, elsewhere: int) -> None:
    """On a compacted topic the gap up to it would look like what compaction has left."""
    bench = Bench()
    with bench.assignment.lock:
        bench[P0].move(elsewhere, "earliest")
    await bench.answer(holds(0, stored_batch(0, 60), compacted=compacted))
    assert bench.take() == []
    assert (bench[P0].position, bench[P0].fetch_offset, bench[P0].queued_bytes) == (elsewhere, elsewhere, 0)
    assert [one.fetch_offset for one in bench.asked()[-1].partitions] == [elsewhere]


async def test_an_answer_that_arrived_before_a_seek_and_was_not_decoded_is_dropped_with_its_bytes() -> None:
    bench = Bench()
    await bench.answer(holds(0, stored_batch(0, 5)), turns=1)
    assert bench[P0].queued_bytes > 0
    with bench.assignment.lock:
        bench[P0].move(50, "earliest")
    await turn()
    assert (bench.take(), bench[P0].queued_bytes, bench[P0].fetch_offset) == ([], 0, 50)


async def test_an_answer_for_what_was_revoked_is_not_taken_and_given_back_it_is_asked_for_anew() -> None:
    bench = Bench()
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench.take(2) == numbers(0, [0, 1])
    with bench.assignment.lock:
        bench[P0].revoke()
    await bench.answer(holds(0, stored_batch(5, 5)))
    assert bench[P0].queued_bytes == 0 and bench.under_way() == []
    with bench.assignment.lock:
        bench[P0].revoked = False
    bench.fetcher.wake()
    await turn()
    assert [(one.partition, one.fetch_offset) for one in bench.asked()[-1].partitions] == [(0, 2)]
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench.take() == numbers(0, [2, 3, 4])


async def test_what_was_paused_and_gave_its_room_away_is_fetched_again_from_where_it_was_handed_out() -> None:
    bench = Bench((1, 1), max_partition_fetch_bytes=1024, fetch_max_bytes=1024)
    await bench.answer(holds(0, stored_batch(0, 20, size=60)))
    assert bench.take(3) == numbers(0, range(3))
    with bench.assignment.lock:
        bench[P0].paused = True
    bench.fetcher.wake()
    await turn()
    assert bench[P0].queued_bytes == 0, "the other would starve"
    assert bench.under_way()
    with bench.assignment.lock:
        bench[P0].paused = False
    await bench.answer()
    await bench.after(0)
    named = [one.fetch_offset for request in bench.asked() for one in request.partitions if one.partition == 0]
    assert named == [0, 3]


async def test_lag_counts_from_the_log_start() -> None:
    bench = Bench()
    assert bench[P0].lag() is None, "nothing is known yet"
    await bench.answer(holds(0, stored_batch(0, 5), end=100, start=0))
    assert bench[P0].lag() == 100
    await bench.answer(holds(0, end=100, start=60))
    assert bench[P0].lag() == 100, "what was fetched ahead is handed out nevertheless"
    bench.take(3)
    assert bench[P0].lag() == 97
    bench.take()
    assert (bench[P0].position, bench[P0].lag()) == (5, 40)
    await bench.answer(holds(0, end=100, start=100))
    assert bench[P0].lag() == 0


async def test_an_answer_of_a_session_that_was_given_up_is_not_taken() -> None:
    bench = Bench(request_timeout_ms=1000, fetch_max_wait_ms=100)
    late = bench.under_way()[0]
    await bench.after(1.2)
    late.answer.set_result(arrived(data_plane_pb2.FetchResponse(results=[holds(0, stored_batch(0, 5))])))
    await turn()
    assert bench.take() == [] and bench[P0].fetch_offset == 0


async def test_damage_gives_back_the_bytes_of_all_that_came_behind_it() -> None:
    bench = Bench()
    sound, damaged = stored_batch(0, 5), bytearray(stored_batch(5, 5))
    damaged[-3] ^= 1
    await bench.answer(holds(0, sound, bytes(damaged), stored_batch(10, 5)))
    assert bench.take() == numbers(0, range(5))
    assert (bench[P0].queued_bytes, bench[P0].fetch_offset, bench[P0].failures) == (0, 5, 1)


async def test_damage_is_fetched_twice_more_before_it_is_said() -> None:
    bench = Bench()
    damaged = bytearray(stored_batch(0, 5))
    damaged[-3] ^= 1
    for failures in (1, 2):
        await bench.answer(holds(0, bytes(damaged)), number=-1)
        assert bench[P0].failures == failures and bench[P0].error is None
        await bench.after(2)
    await bench.answer(holds(0, bytes(damaged)), number=-1)
    with pytest.raises(CorruptRecordError, match="checksum"):
        bench.take()


async def test_a_sound_batch_ends_a_row_of_failures() -> None:
    bench = Bench()
    bench[P0].failures = 2
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench[P0].failures == 0


async def test_an_empty_answer_ends_a_row_of_failures_and_entries_do_not_before_they_are_decoded() -> None:
    bench = Bench((1, 1))
    bench[P0].failures = bench[P1].failures = 2
    await bench.answer(holds(0), holds(1, stored_batch(0, 5)), turns=1)
    assert (bench[P0].failures, bench[P1].failures) == (0, 2)


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["paused", "revoked", "resetting"])
async def test_what_is_not_to_be_read_is_not_asked_for(why: str) -> None:
    bench = Bench((1, 1))
    setattr(bench[P0], why, True)
    await bench.answer(holds(0), holds(1))
    assert [gone.partition for gone in bench.asked()[-1].forgotten] == [0]


async def test_what_has_failed_is_left_alone_until_it_was_heard_of_and_full_partitions_until_there_is_room() -> None:
    bench = Bench((1, 1, 1), max_partition_fetch_bytes=1024)
    bench[P0].error = CorruptRecordError("damaged")
    await bench.answer(holds(0), holds(1, stored_batch(0, 50, size=60)), holds(2))
    assert sorted(gone.partition for gone in bench.asked()[-1].forgotten) == [0, 1]


async def test_a_request_says_how_long_it_may_wait_and_for_how_much() -> None:
    bench = Bench((1, 1), fetch_max_wait_ms=321, fetch_min_bytes=77, max_partition_fetch_bytes=10 * KIB)
    (request,) = bench.asked()
    assert (request.max_wait_ms, request.min_bytes) == (321, 77)
    assert [one.max_bytes for one in request.partitions] == [10 * KIB, 10 * KIB]
    assert request.max_bytes == 20 * KIB, "no more than its partitions may bring"


async def test_where_less_may_be_fetched_ahead_than_a_partition_may_bring_no_more_is_asked_for() -> None:
    bench = Bench((1,), fetch_max_bytes=64 * KIB)
    [request] = bench.asked()
    assert request.max_bytes == 32 * KIB, "one of two that may be under way"


async def test_a_silent_node_does_not_hold_the_whole_budget() -> None:
    bench = Bench((1, 2), fetch_max_bytes=64 * KIB, max_partition_fetch_bytes=64 * KIB)
    assert [bench.asked(node)[0].max_bytes for node in (1, 2)] == [16 * KIB, 16 * KIB]
    for _ in range(3):  # Node 1 says nothing.
        await bench.answer(holds(1), node=2)
    assert len(bench.asked(2)) == 4 and bench.asked(2)[-1].max_bytes == 16 * KIB


async def test_what_is_fetched_ahead_and_what_is_under_way_stay_within_the_budget_together() -> None:
    bench = Bench((1, 2), fetch_max_bytes=32 * KIB, max_partition_fetch_bytes=32 * KIB)
    await bench.answer(holds(0, stored_batch(0, 120, size=200)))
    queued = bench.assignment.queued_bytes()
    assert 24 * KIB < queued < 32 * KIB
    await bench.answer(holds(1), node=2)
    count = sum(question.request.max_bytes for node in (1, 2) for question in bench.under_way(node))
    assert 0 < count <= 32 * KIB - queued


async def test_without_room_nothing_is_asked_until_the_application_has_taken_some() -> None:
    bench = Bench(fetch_max_bytes=16 * KIB, max_partition_fetch_bytes=16 * KIB)
    await bench.answer(holds(0, stored_batch(0, 100, size=170)))
    assert bench.under_way() == []
    assert bench.take() != []
    bench.fetcher.wake()
    assert len(bench.under_way()) == 1


async def test_with_little_room_it_waits_for_more_and_does_not_ask_for_scraps() -> None:
    bench = Bench(fetch_max_bytes=32 * KIB, max_partition_fetch_bytes=32 * KIB)
    await bench.answer(holds(0, *(stored_batch(10 * n, 10, size=200) for n in range(10))))
    count = len(bench.asked())
    assert bench.under_way() == [], "of 16 KiB that one request may bring, there is room for a quarter"
    assert len(bench.take(10)) == 10
    assert not bench.fetcher.wants_a_look(all_taken=False), "no poll wakes it for so little"
    bench.fetcher.wake()
    assert len(bench.asked()) == count
    bench.take(40)
    assert bench.fetcher.wants_a_look(all_taken=False)
    bench.fetcher.wake()
    assert len(bench.asked()) == count + 1
    assert bench.asked()[-1].max_bytes >= 8 * KIB


async def test_who_has_taken_all_that_there_was_has_it_look_whatever_room_it_waits_for() -> None:
    """The buffered rest may be of paused partitions, which make room only then."""
    bench = Bench((1, 1), fetch_max_bytes=32 * KIB, max_partition_fetch_bytes=32 * KIB)
    await bench.answer(holds(0, stored_batch(0, 120, size=200)), holds(1, stored_batch(0, 10, size=200)))
    bench[P0].paused = True
    count = len(bench.asked())
    assert bench.take() == numbers(1, range(10))
    assert bench.fetcher.wants_a_look(all_taken=True)
    bench.fetcher.wake()
    await turn()
    assert len(bench.asked()) > count, "what is paused has made room"


async def test_what_grows_when_it_is_decoded_waits_as_it_came() -> None:
    bench = Bench((1, 1), fetch_max_bytes=2 * KIB, max_partition_fetch_bytes=2 * KIB)
    await bench.answer(holds(0, *(stored_batch(10 * n, 10, size=100) for n in range(4))))
    held = [rows.offset for rows in bench[P0].queued]
    assert held == [0, 10], "what is over the budget is not decoded"
    assert not bench.fetcher.wants_a_look(all_taken=False)
    assert bench.take(20) == numbers(0, range(20))
    assert bench.fetcher.wants_a_look(all_taken=False)
    bench.fetcher.wake()
    await turn()
    assert bench.take() == numbers(0, range(20, 40))
    assert bench.assignment.queued_bytes() == 0


# --- leaders, failures, time ------------------------------------------------------------------------------------------


async def test_an_idle_long_poll_asks_nobody_for_news() -> None:
    bench = Bench(fetch_max_wait_ms=5000)
    for _ in range(50):
        await bench.after(0.1)
    assert bench.cluster.refreshes == 0
    await bench.after(0.26)
    assert bench.cluster.refreshes > 0, "now it is late"
    assert bench[P0].failures == 0


async def test_a_fetch_that_is_not_answered_in_time_is_asked_again_in_a_new_session() -> None:
    bench = Bench(fetch_max_wait_ms=500, request_timeout_ms=2000)
    await bench.after(2.4)
    assert len(bench.asked()) == 1
    await bench.after(0.2)
    assert bench[P0].session is None and bench[P0].failures == 1
    await bench.after(0.2)
    assert [request.session_epoch for request in bench.asked()] == [1, 1]
    assert bench.asked()[1].partitions[0].fetch_offset == 0


async def test_a_lost_stream_gives_its_budget_back_and_all_its_partitions_are_named_again() -> None:
    bench = Bench((1, 1), fetch_max_bytes=32 * KIB, max_partition_fetch_bytes=16 * KIB)
    await bench.answer(holds(0, stored_batch(0, 5)))
    for _ in range(3):
        bench.cluster.nodes[1].fetch.lose()
        await turn()
        assert {bench[P0].failures, bench[P1].failures} != {0}
        await bench.after(2)
        (question,) = bench.under_way()
        assert question.request.max_bytes == 16 * KIB and question.request.session_epoch == 1
        assert [(one.partition, one.fetch_offset) for one in question.request.partitions] == [(0, 5), (1, 0)]
    assert bench.cluster.refreshes >= 3


async def test_a_new_leader_is_asked_at_once_and_the_old_ones_answer_is_not_taken() -> None:
    bench = Bench()
    bench[P0].retry_at_s = bench.cluster.clock.now_s + 60
    bench.cluster.show(2, epoch=2)
    assert [(one.fetch_offset, one.leader_epoch) for one in bench.asked(2)[0].partitions] == [(0, 2)]
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench.take() == []
    await bench.answer(holds(0, stored_batch(0, 5)), node=2)
    assert bench.take() == numbers(0, range(5))


async def test_a_leader_of_the_same_epoch_does_not_cut_a_pause_short() -> None:
    bench = Bench()
    await bench.answer(fails(Code.STORAGE_ERROR))
    pause_until = bench[P0].retry_at_s
    assert pause_until > bench.cluster.clock.now_s
    bench.cluster.show(1)
    assert bench[P0].retry_at_s == pause_until and bench.under_way() == []


async def test_a_leader_that_is_named_is_asked_at_once() -> None:
    bench = Bench()
    await bench.answer(fails(Code.NOT_LEADER_OR_FOLLOWER, leader=(3, 2)))
    assert len(bench.asked(3)) == 1 and bench.cluster.refreshes == 0


async def test_a_node_that_does_not_lead_and_knows_nobody_has_news_asked_for() -> None:
    bench = Bench()
    await bench.answer(fails(Code.NOT_LEADER_OR_FOLLOWER))
    assert bench.under_way() == [] and bench.cluster.refreshes == 1
    assert bench[P0].retry_at_s > bench.cluster.clock.now_s


async def test_pauses_between_failures_grow_and_are_kept() -> None:
    bench = Bench()
    pauses = []
    for _ in range(6):
        await bench.answer(fails(Code.STORAGE_ERROR))
        pauses.append(bench[P0].retry_at_s - bench.cluster.clock.now_s)
        await bench.after(pauses[-1] - 0.001)
        assert bench.under_way() == []
        await bench.after(0.002)
    assert pauses[0] < 0.05 < pauses[-1] < 0.6


async def test_a_partition_without_a_leader_is_asked_about_and_tried_again_later() -> None:
    bench = Bench((-1, 1))
    assert bench.cluster.refreshes == 1 and "t" in bench.cluster._wanted
    assert bench[P0].retry_at_s > bench.cluster.clock.now_s
    assert [one.partition for one in bench.asked()[0].partitions] == [1]
    await bench.after(0.1)
    assert bench.cluster.refreshes == 2


async def test_a_topic_that_is_unknown_for_long_is_said_to_be_so_and_not_before() -> None:
    bench = Bench()
    await bench.answer(fails(Code.UNKNOWN_TOPIC_OR_PARTITION))
    await bench.after(4.9)
    await bench.answer(fails(Code.UNKNOWN_TOPIC_OR_PARTITION))
    assert bench[P0].error is None
    await bench.after(0.6)
    await bench.answer(fails(Code.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(UnknownTopicOrPartitionError, match="t"):
        bench.take()


async def test_what_no_wait_will_help_is_said_at_once() -> None:
    bench = Bench()
    await bench.answer(fails(Code.INVALID_REQUEST, retriable=False))
    assert bench[P0].error is not None and bench.under_way() == []


# --- where a partition starts again -----------------------------------------------------------------------------------


async def test_an_end_that_was_seen_further_on_is_no_reason_to_begin_anew() -> None:
    bench = Bench()
    await bench.answer(holds(0, stored_batch(0, 20), end=20))
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, end=10, retriable=False))
    assert (bench[P0].fetch_offset, bench[P0].error) == (20, None)
    assert bench[P0].high_watermark == 20


async def test_an_end_that_goes_back_is_not_believed_over_one_that_was_seen() -> None:
    bench = Bench()
    await bench.answer(holds(0, end=30))
    await bench.answer(holds(0, end=10))
    assert bench[P0].high_watermark == 30


@pytest.mark.parametrize(("reset", "asked"), [("earliest", -2), ("latest", -1)])
async def test_an_offset_that_the_log_does_not_have_is_looked_up_as_the_policy_says(reset: Any, asked: int) -> None:
    bench = Bench(auto_offset_reset=reset)
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, retriable=False))
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    assert question.request.partitions[0].timestamp_ms == asked
    assert bench[P0].resetting and bench.under_way() == []
    found = data_plane_pb2.ListOffsetsResult(offset=40)
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[found]))
    await turn(20)
    assert (bench[P0].position, bench[P0].fetch_offset, bench[P0].resetting) == (40, 40, False)
    assert bench.asked()[-1].partitions[0].fetch_offset == 40


async def test_without_a_policy_the_range_is_said_and_nothing_moves() -> None:
    bench = Bench(auto_offset_reset="none")
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, end=90, retriable=False))
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 0 of t-0 .* the log has 40 to 89, and 90 comes next;"):
        bench.take()
    assert bench[P0].position == 0


async def test_a_position_that_was_sought_while_it_was_looked_up_stays() -> None:
    bench = Bench()
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, retriable=False))
    with bench.assignment.lock:
        bench[P0].move(77, "earliest")
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    found = data_plane_pb2.ListOffsetsResult(offset=40)
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[found]))
    await turn(20)
    assert (bench[P0].position, bench[P0].fetch_offset) == (77, 77)


def committed_at(bench: Bench, offset: int) -> PartitionState:
    """P0 starts where the group has committed."""
    bench.assignment.remove([P0])
    state = PartitionState.at(P0, TOPIC_ID, Start("earliest", offset))
    bench.assignment.place({P0: state})
    bench.fetcher.wake()
    return state


@pytest.mark.parametrize(("end", "stays"), [(50, True), (49, False)])
async def test_a_committed_offset_beyond_what_a_node_shows_is_proven_before_it_is_given_up(
    end: int, stays: bool
) -> None:
    bench = Bench()
    await bench.answer(holds(0))
    state = committed_at(bench, 50)
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, end=30, retriable=False), number=-1)
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    assert question.request.partitions[0].timestamp_ms == -1 and state.position == 50
    found = data_plane_pb2.ListOffsetsResult(offset=end)
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[found]))
    await turn(20)
    assert (state.unproven, state.resetting, state.high_watermark) == (False, False, end)
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, end=30, retriable=False), number=-1)
    assert (state.position == 50) is stays


async def test_a_committed_offset_below_the_beginning_of_the_log_needs_no_proof() -> None:
    bench = Bench()
    await bench.answer(holds(0))
    committed_at(bench, 5)
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, retriable=False), number=-1)
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    assert question.request.partitions[0].timestamp_ms == -2


async def test_a_look_up_that_fails_is_said_and_tried_again_when_it_was_heard_of() -> None:
    bench = Bench()
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, retriable=False))
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    refused = data_plane_pb2.ListOffsetsResult(error=refusal(Code.INVALID_REQUEST, retriable=False))
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[refused]))
    await turn(20)
    assert bench[P0].error is not None and not bench[P0].resetting
    with pytest.raises(type(bench[P0].error)):
        bench.take()
    bench.fetcher.wake()
    await turn()
    assert bench.cluster.nodes[1].data_plane.asked("ListOffsets")


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_node_without_room_for_sessions_is_asked_alone_for_a_while_and_then_for_one_again() -> None:
    bench = Bench((1, 1))
    await bench.answer(error=refusal(Code.TOO_MANY_FETCH_SESSIONS))
    assert bench[P0].failures == 0, "nothing delays the next request"
    assert [request.session_epoch for request in bench.asked()] == [1, 0]
    await bench.answer(holds(0, stored_batch(0, 5)), holds(1))
    assert [one.partition for one in bench.asked()[-1].partitions] == [1, 0], "who has waited longest comes first"
    assert bench.asked()[-1].session_epoch == 0
    bench.cluster.nodes[1].fetch.lose()
    await bench.after(29)
    assert bench.asked()[-1].session_epoch == 0
    bench.cluster.nodes[1].fetch.lose()
    await bench.after(2)
    assert bench.asked()[-1].session_epoch == 1


async def test_a_session_that_is_not_known_begins_anew_at_once_but_not_for_ever() -> None:
    bench = Bench()
    await bench.answer(holds(0))
    await bench.answer(error=refusal(Code.INVALID_FETCH_SESSION_EPOCH))
    assert [request.session_epoch for request in bench.asked()] == [1, 2, 1]
    assert bench[P0].failures == 0
    await bench.answer(error=refusal(Code.INVALID_FETCH_SESSION_EPOCH))
    assert bench[P0].failures == 1 and bench.under_way() == [], "a node that refuses a first request is left alone"


async def test_a_defect_is_told_to_who_polls_and_ends_the_fetching(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench((1, 1))
    reported: list[bool] = []
    bench.assignment.listen(lambda: reported.append(True))
    bench.under_way()[0].answer.set_result(None)
    await turn()
    assert reported and bench[P0].error is not None and "the consumer has failed" in bench[P0].error.message
    count = len(bench.asked())
    bench.fetcher.wake()
    assert len(bench.asked()) == count
    assert "the consumer has failed" in caplog.text


async def test_what_arrives_after_a_close_is_left_alone() -> None:
    bench = Bench()
    question = bench.under_way()[0]
    bench.fetcher.close()
    question.answer.set_exception(NetworkError("closed"))
    await turn()
    bench.cluster.show(2, epoch=2)
    bench.fetcher.wake()
    assert bench[P0].failures == 0 and bench.asked(2) == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- a topic that is another one --------------------------------------------------------------------------------------

ANOTHER_ID = b"another-topic-id"


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning_whatever_the_policy_is() -> None:
    bench = Bench(auto_offset_reset="latest")
    await bench.answer(holds(0, stored_batch(0, 5)))
    bench.cluster.show(1, topic_id=ANOTHER_ID)
    await turn()
    (question,) = bench.cluster.nodes[1].data_plane.asked("ListOffsets")
    assert question.request.partitions[0].timestamp_ms == -2
    assert bench[P0].topic_id == ANOTHER_ID and bench.take() == []


async def test_how_far_the_former_topic_went_says_nothing_of_the_next_one() -> None:
    bench = Bench()
    await bench.answer(holds(0, stored_batch(0, 20), end=20))
    bench.cluster.show(1, topic_id=ANOTHER_ID)
    await turn()
    bench[P0].move(15, "earliest")  # As a seek does.
    bench.fetcher.wake()
    await turn()
    refused = fails(Code.OFFSET_OUT_OF_RANGE, end=10, retriable=False)
    refused.topic_id = ANOTHER_ID
    await bench.answer(refused, number=-1)
    assert bench[P0].resetting, "the place that was sought is not one of this topic: it is looked up"


async def test_without_a_policy_a_topic_that_was_made_anew_is_said_to_be_so() -> None:
    bench = Bench(auto_offset_reset="none")
    bench.cluster.show(1, topic_id=ANOTHER_ID)
    await turn()
    with pytest.raises(OffsetOutOfRangeError, match="was deleted and created again"):
        bench.take()
    bench.fetcher.wake()
    await turn()
    with pytest.raises(NoOffsetForPartitionError, match="call seek"):
        bench.take()


async def test_who_waits_in_a_poll_is_woken_when_a_topic_was_made_anew() -> None:
    bench = Bench(auto_offset_reset="none")
    reported: list[bool] = []
    # The notified caller looks for records, which takes the lock.
    bench.assignment.listen(lambda: reported.append(bench[P0].error is not None and not bench.assignment.is_entered()))
    bench.cluster.show(1, topic_id=ANOTHER_ID)
    assert reported == [True]
    await bench.after(1)
    assert reported == [True], "it is said once"


async def test_a_topic_of_which_a_partition_is_assigned_is_not_forgotten() -> None:
    bench = Bench()
    bench.cluster.show(1, topic="other")
    bench.assignment.state(P0).paused = True
    for _ in range(3):
        bench.cluster.clock.now_s += IDLE_S
        bench.cluster._forget_idle()
    assert bench.cluster.metadata.topics.keys() == {"t"}
    bench.assignment.remove([P0])
    for _ in range(2):
        bench.cluster.clock.now_s += IDLE_S
        bench.cluster._forget_idle()
    assert not bench.cluster.metadata.topics


async def test_a_topic_that_is_heard_of_for_the_first_time_leaves_the_position_alone() -> None:
    bench = Bench()
    bench[P0].topic_id = None
    with bench.assignment.lock:
        bench[P0].move(30, "earliest")
    await bench.after(0)
    assert bench[P0].topic_id == TOPIC_ID and bench[P0].position == 30


@pytest.mark.parametrize("what", ["another topic", "no such partition", "unknown"])
async def test_what_a_group_has_given_is_not_read_where_it_is_not_known_to_be_that(what: str) -> None:
    bench = Bench()
    await bench.answer(holds(0))
    bench.assignment.remove([P0])
    if what == "unknown":
        bench.cluster.metadata.topics.clear()
    place = P1 if what == "no such partition" else P0
    state = PartitionState.at(place, ANOTHER_ID if what == "another topic" else TOPIC_ID, Start("earliest", 3))
    state.pinned = True
    bench.assignment.place({place: state})
    refreshes = bench.cluster.refreshes
    await bench.answer()
    assert not any(request.partitions for request in bench.asked()[1:])
    assert state.position == 3 and state.error is None and bench.cluster.refreshes > refreshes
    if what == "another topic":
        bench.cluster.show(1, topic_id=ANOTHER_ID)
    else:
        bench.cluster.show(1, 1)
    await bench.after(1)
    (named,) = bench.asked()[-1].partitions
    assert (named.partition, named.fetch_offset, named.topic_id) == (place.partition, 3, state.topic_id)


# --- accounts ---------------------------------------------------------------------------------------------------------


async def test_bytes_that_are_queued_are_those_of_the_rows_once_they_are_decoded() -> None:
    bench = Bench()
    entries = [stored_batch(first, 5, size=2000, codec=Codec.ZSTD) for first in (0, 5)]
    await bench.answer(holds(0, *entries))
    assert bench[P0].queued_bytes == sum(rows.size_bytes for rows in bench[P0].queued) > 5 * sum(map(len, entries))
    bench.take()
    assert bench[P0].queued_bytes == 0


async def test_what_a_lost_session_had_under_way_is_not_taken_when_it_comes_after_all() -> None:
    bench = Bench(fetch_max_wait_ms=100, request_timeout_ms=500)
    bench[P0].retry_at_s = 0.0
    first = bench.under_way()[0]
    await bench.after(0.7)
    await bench.after(0.1)
    assert len(bench.asked()) == 2
    first.answer.set_result(
        arrived(data_plane_pb2.FetchResponse(results=[fails(Code.OFFSET_OUT_OF_RANGE, retriable=False)]))
    )
    await turn()
    assert not bench[P0].resetting and bench[P0].failures == 1


async def test_an_answer_proves_where_a_committed_position_is() -> None:
    bench = Bench()
    await bench.answer(holds(0))
    state = committed_at(bench, 50)
    await bench.answer(holds(0), number=-1)
    assert not state.unproven


async def test_a_newer_epoch_of_the_same_leader_is_learned_from_an_answer() -> None:
    bench = Bench()
    await bench.answer(fails(Code.FENCED_LEADER_EPOCH, epoch=4, leader=(1, 4)))
    assert [one.leader_epoch for one in bench.asked()[-1].partitions] == [4]
    assert len(bench.under_way()) == 1, "at once"


async def test_the_term_of_a_node_that_does_not_lead_is_no_leadership() -> None:
    """It campaigned without success, in a term that no disk kept. The leader, of a lower one, must still be
    believed."""
    bench = Bench()
    await bench.answer(fails(Code.NOT_LEADER_OR_FOLLOWER, epoch=3))
    bench.cluster.show(2, epoch=2)
    assert [one.leader_epoch for one in bench.asked(2)[-1].partitions] == [2]


async def test_who_waits_in_a_poll_is_woken_by_what_comes_and_by_what_fails() -> None:
    bench = Bench()
    reported: list[bool] = []
    bench.assignment.listen(lambda: reported.append(True))
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert reported
    reported.clear()
    bench.cluster.nodes[1].fetch.lose()
    await turn()
    assert reported


async def test_a_resume_that_finds_no_room_waits_for_what_the_application_takes() -> None:
    bench = Bench((1, 1), fetch_max_bytes=2 * KIB, max_partition_fetch_bytes=2 * KIB)
    await bench.answer(holds(0, stored_batch(0, 30, size=60)))
    bench.take()
    assert bench.fetcher.wants_a_look(all_taken=False), "so that a poll wakes it"
    bench.fetcher.wake()
    await turn()
    assert not bench.fetcher.wants_a_look(all_taken=True)


async def test_the_fetcher_comes_back_by_itself_to_what_has_failed_or_is_late() -> None:
    bench = Bench(fetch_max_wait_ms=50, request_timeout_ms=200)
    bench.cluster.clock.follow_the_machine()
    async with asyncio.timeout(30):
        for _ in range(3):
            await bench.answer(fails(Code.STORAGE_ERROR))
            assert bench.under_way() == [] or bench.cluster.clock() >= bench[P0].retry_at_s
            while not bench.under_way():  # noqa: ASYNC110 - the fetcher cannot signal the test
                await asyncio.sleep(0.002)
        count = len(bench.asked())
        while len(bench.asked()) == count:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    assert bench.asked()[-1].session_epoch == 1
    bench.fetcher.close()
    count = len(bench.asked())
    await asyncio.sleep(0.05)
    assert len(bench.asked()) == count


async def test_look_ups_end_with_the_fetcher() -> None:
    bench = Bench()
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=40, retriable=False))
    assert len(asyncio.all_tasks()) > 1
    bench.fetcher.close()
    await turn()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("compacted", [0, 1_000])
async def test_older_responses_answer_no_newer_request(compacted: int) -> None:
    """Request 1 is unanswered, and request 2 names the partition again after a seek: the response to request 1 is
    about an offset that no one reads from now. On a compacted topic nothing else would detect it."""
    bench = Bench(leaders=(1, 1))
    with bench.assignment.lock:
        bench[P0].move(100, "earliest")
    bench.fetcher.wake()
    await turn()
    await bench.answer(holds(0, end=1_000), holds(1))
    first = bench.under_way()[0]
    with bench.assignment.lock:
        bench[P0].move(0, "earliest")
    bench.fetcher.wake()
    await turn()
    assert len(bench.under_way()) == 2
    assert [(one.partition, one.fetch_offset) for one in bench.asked()[-1].partitions] == [(0, 0)]
    assert first is bench.under_way()[0]
    await bench.answer(holds(0, stored_batch(100, 50), end=1_000, compacted=compacted))
    assert bench.take() == []
    assert (bench[P0].position, bench[P0].fetch_offset, bench[P0].queued_bytes, bench[P0].failures) == (0, 0, 0, 0)
    await bench.answer(holds(0, stored_batch(0, 5), end=1_000, compacted=compacted))
    assert bench.take() == numbers(0, range(5))
    assert bench[P0].fetch_offset == 5
