"""Streams without Spark: offsets as a checkpoint keeps them, what a micro-batch covers, and what has gone since."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import pytest

from quorumlog.sdk.spark.errors import CheckpointError, DataLossError, OptionError, SparkSourceError
from quorumlog.sdk.spark.options import ReadOptions, parse_stream_options
from quorumlog.sdk.spark.planning import Bounds, Partition, Selected, TopicShape
from quorumlog.sdk.spark.rate_limits import TriggerDelay, shares
from quorumlog.sdk.spark.stream_offsets import StreamOffset, ranges_between
from quorumlog.sdk.spark.stream_planning import LogView, Standing, seems_changed, standing

ID = b"\x01" * 16
OTHER = b"\x02" * 16


def offset(
    positions: Mapping[Partition, int], topic_id: bytes = ID, begins: Mapping[Partition, int] | None = None
) -> StreamOffset:
    return StreamOffset(positions, {topic: topic_id for topic, _ in positions}, begins or {})


def view(bounds: Mapping[Partition, tuple[int, int]], topic_id: bytes = ID, missing: tuple[str, ...] = ()) -> LogView:
    topics = sorted({topic for topic, _ in bounds})
    shapes = {topic: TopicShape(topic_id, sum(name == topic for name, _ in bounds)) for topic in topics}
    each = {partition: Bounds(*ends) for partition, ends in bounds.items()}
    return LogView(Selected(shapes, sorted(bounds), missing), each)


def options(**changes: str) -> ReadOptions:
    return parse_stream_options({"quorumlog.bootstrap.servers": "h:1", "subscribe": "t,u"} | changes).read


LOOSE = {"failOnDataLoss": "false"}


def ranges(start: StreamOffset, end: StreamOffset) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.start, each.end) for each in ranges_between(start, end)]


# --- offsets in the checkpoint ---------------------------------------------------------------------------------------


def test_an_offset_is_the_json_of_spark_s_kafka_source_and_what_a_restart_needs() -> None:
    place = StreamOffset({("t", 10): 5, ("t", 9): 0}, {"t": ID}, {("t", 9): 0}, initial=True)
    text = json.dumps(place.to_json())
    assert text == (
        '{"t": {"9": 0, "10": 5}, "$quorumlog": {"version": 1, "ids": {"t": "' + ID.hex() + '"},'
        ' "from": {"t": {"9": 0}}, "initial": true}}'
    )
    assert StreamOffset.from_json(json.loads(text)) == place
    plain = offset({("t", 0): 7, ("u", 0): 1})
    assert StreamOffset.from_json(plain.to_json()) == plain
    assert StreamOffset.from_json(StreamOffset({}, {}).to_json()) == StreamOffset({}, {})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"$quorumlog": None}, "not written by this source"),
        ({"$quorumlog": {"version": 2, "ids": {"t": ID.hex()}}}, "format 2, this version reads 1"),
        ({"$quorumlog": {"version": 1}}, "damaged"),
        ({"$quorumlog": {"version": 1, "ids": {"t": "zz"}}}, "damaged"),
        ({"t": 3}, "damaged"),
        ({"t": {"0": -5}}, "damaged .*-5 of t partition 0 is not an offset"),
        ({"t": {"0": 7.5}}, "7.5 of t partition 0 is not an offset"),
        ({"t": {"0": 1 << 63}}, "is not an offset"),
        ({"t": {"0": float("inf")}}, "inf of t partition 0 is not an offset"),
        ({"t": {"-1": 7}}, "t has no partition '-1'"),
        ({"$quorumlog": {"version": 1, "ids": {"t": "abcd"}}}, "'abcd' is not a topic's id"),
        ({"u": {"0": 3}}, "contradicts itself"),
        ({"$quorumlog": {"version": 1, "ids": {"t": ID.hex()}, "from": {"t": {"5": 1}}}}, "contradicts itself"),
    ],
)
def test_an_offset_that_cannot_be_used_says_so(damage: dict[str, object], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        StreamOffset.from_json(offset({("t", 0): 7}).to_json() | damage)


@pytest.mark.parametrize("other", [{"t": {"0": 3}}, {"logOffset": 5}, 5, None, [3], "text"])
def test_an_offset_of_another_source_is_told_from_a_damaged_one(other: object) -> None:
    with pytest.raises(CheckpointError, match=r"not written by this source.*a checkpoint of its own"):
        StreamOffset.from_json(other)


def test_a_micro_batch_is_a_matter_of_its_two_ends() -> None:
    start, end = offset({("t", 0): 3, ("t", 1): 4}), offset({("t", 0): 9, ("t", 1): 4, ("u", 0): 5})
    assert ranges(start, end) == [("t", 0, 3, 9), ("u", 0, 0, 5)]
    assert ranges(end, end) == []
    assert ranges(start, offset({("t", 0): 9}, OTHER)) == [("t", 0, 0, 9)]


def test_the_first_micro_batch_repeats_itself_though_latest_is_elsewhere_by_then() -> None:
    first = StreamOffset({("t", 0): 3}, {"t": ID}, initial=True)
    end = standing(first, view({("t", 0): (0, 10)}), options()).after(None)
    later = StreamOffset({("t", 0): 10}, {"t": ID}, initial=True)
    assert ranges(first, end) == ranges(later, end) == [("t", 0, 3, 10)]
    following = standing(end, view({("t", 0): (0, 12)}), options()).after(None)
    assert following.begins == {}
    assert ranges(end, following) == [("t", 0, 10, 12)]


def test_a_first_micro_batch_that_had_nothing_to_read_repeats_that_wherever_the_query_would_begin_now() -> None:
    empty = StreamOffset({("t", 0): 100}, {"t": ID}, initial=True)
    earlier = StreamOffset({("t", 0): 0}, {"t": ID}, initial=True)
    assert ranges(earlier, empty) == ranges(StreamOffset({}, {}, initial=True), empty) == []


# --- what has changed since ------------------------------------------------------------------------------------------


def test_new_partitions_and_topics_are_read_from_their_start() -> None:
    start = offset({("t", 0): 3})
    stand = standing(start, view({("t", 0): (0, 5), ("t", 1): (0, 2), ("u", 0): (0, 0)}), options())
    assert stand.backlog == {("t", 0): 2, ("t", 1): 2, ("u", 0): 0}
    end = stand.after(None)
    assert end.begins == {("t", 1): 0, ("u", 0): 0}
    assert ranges(start, end) == [("t", 0, 3, 5), ("t", 1, 0, 2)]


@pytest.mark.parametrize(
    ("now", "words", "rest"),
    [
        (view({("t", 0): (5, 9)}), ["topic t partition 0", "[3, 5)", "come to 3"], {("t", 0): (5, 9)}),
        (view({("t", 0): (0, 2)}), ["topic t partition 0", "ends at offset 2", "come to 3"], {("t", 0): (2, 2)}),
        (view({("t", 0): (0, 9)}, OTHER), ["topic t,", "created again"], {("t", 0): (0, 9)}),
        (view({("t", 1): (0, 9)}), ["t partition 0", "not selected"], {("t", 1): (0, 9)}),
        (view({("u", 0): (0, 9)}, missing=("t",)), ["topic t,", "no longer exists"], {("u", 0): (0, 9)}),
        (
            view({("t", 0): (0, 3), ("u", 0): (4, 9)}),
            ["topic u partition 0", "[0, 4)", "new"],
            {("t", 0): (3, 3), ("u", 0): (4, 9)},
        ),
    ],
)
def test_what_is_lost_is_an_error_that_names_it_unless_allowed(
    now: LogView, words: list[str], rest: dict[Partition, tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    start = offset({("t", 0): 3})
    with pytest.raises(DataLossError) as raised:
        standing(start, now, options())
    for word in [*words, "failOnDataLoss"]:
        assert word in str(raised.value)
    with caplog.at_level(logging.WARNING, "quorumlog.sdk.spark"):
        stand = standing(start, now, options(**LOOSE))
    assert words[0] in caplog.text and stand.lost
    end = stand.after(None)
    assert {partition: (stand.floor[partition], end.positions[partition]) for partition in end.positions} == rest


def test_a_topic_that_was_never_there_is_a_wrong_option_while_loss_is_an_error() -> None:
    now = view({("t", 0): (0, 3)}, missing=("u",))
    with pytest.raises(OptionError, match="names 'u', which the cluster does not have"):
        standing(offset({("t", 0): 3}), now, options())
    assert standing(offset({("t", 0): 3}), now, options(**LOOSE)).backlog == {("t", 0): 0}


def test_only_what_seems_gone_or_another_is_looked_at_twice() -> None:
    start = offset({("t", 0): 3})
    assert not seems_changed(start, view({("t", 0): (0, 3), ("t", 1): (0, 0), ("u", 0): (0, 0)}))
    assert seems_changed(start, view({("u", 0): (0, 3)}))
    assert seems_changed(start, view({("t", 1): (0, 3)}))
    assert seems_changed(start, view({("t", 0): (0, 3)}, OTHER))


# --- limits ----------------------------------------------------------------------------------------------------------


def test_shares_go_by_backlog_and_starve_nobody() -> None:
    backlog = {("t", 0): 700, ("t", 1): 200, ("t", 2): 100, ("t", 3): 0}
    assert shares(100, backlog) == {("t", 0): 70, ("t", 1): 20, ("t", 2): 10, ("t", 3): 0}
    assert shares(1_000, backlog) == backlog
    assert shares(2, backlog) == {("t", 0): 1, ("t", 1): 1, ("t", 2): 1, ("t", 3): 0}
    assert shares(1 << 62, {("t", 0): 1 << 62, ("t", 1): 1 << 62}) == {("t", 0): 1 << 61, ("t", 1): 1 << 61}


def test_a_limited_query_comes_to_the_end_in_steps_that_leave_nothing_out() -> None:
    now = view({("t", 0): (0, 1000), ("t", 1): (0, 7), ("u", 0): (0, 1)})
    place = StreamOffset({("t", 0): 0, ("t", 1): 0, ("u", 0): 0}, {"t": ID, "u": ID}, initial=True)
    read: list[tuple[str, int, int]] = []
    for _ in range(12):
        end = standing(place, now, options()).after(100)
        batch = [(t, number, at) for t, number, start, until in ranges(place, end) for at in range(start, until)]
        assert len(batch) <= 102
        read += batch
        place = end
    everything = [(t, number, at) for (t, number), ends in now.bounds.items() for at in range(*ends)]
    assert sorted(read) == sorted(everything)


def test_limits_count_what_is_left_where_retention_was_faster() -> None:
    stand: Standing = standing(offset({("t", 0): 0}), view({("t", 0): (900, 1000)}), options(**LOOSE))
    assert stand.after(10).positions == {("t", 0): 910}


def test_few_records_wait_for_more_but_not_for_ever() -> None:
    base = {"quorumlog.bootstrap.servers": "h:1", "subscribe": "t", "minOffsetsPerTrigger": "10"}
    delay = TriggerDelay(parse_stream_options(base | {"maxTriggerDelay": "60s"}))
    assert delay.due_in_s(1, 10, now_s=5.0) == 0, "the first micro-batch of a run does not wait"
    delay.triggered(5.0)
    assert delay.due_in_s(9, 10, now_s=6.0) == 59
    assert delay.due_in_s(10, 10, now_s=6.0) == 0
    assert delay.due_in_s(9, None, now_s=6.0) == 0
    assert delay.due_in_s(9, 10, now_s=65.0) == 0


def test_all_errors_of_streams_are_one_family() -> None:
    assert issubclass(CheckpointError, SparkSourceError)
