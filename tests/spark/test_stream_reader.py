"""The streaming reader as Spark calls it, against a data plane in memory: no session is needed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

from quorumlog.sdk.spark import stream_source
from quorumlog.sdk.spark.errors import DataLossError, OptionError, SchemaError
from quorumlog.sdk.spark.stream_source import Json, LogStreamReader
from tests.support.stand_in import NOW_MS, StandIn, StoredPartition

VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture
def node() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


def reader(node: StandIn, **options: str) -> LogStreamReader:
    given = {"quorumlog.bootstrap.servers": node.address, "startingOffsets": "earliest"} | options
    return LogStreamReader(given if "assign" in given else {"subscribe": "t"} | given, VALUE)


def ends(offset: Json) -> dict[str, int]:
    places: dict[str, int] = offset["t"]
    return places


def values(source: LogStreamReader, start: Json, end: Json) -> list[bytes]:
    batches = [batch for task in source.partitions(start, end) for batch in source.read(task)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_query_reads_batch_after_batch_and_nothing_in_between(node: StandIn) -> None:
    log, other = node.create("t", partitions=2)
    log.append([b"a", b"b"])
    source = reader(node)
    assert source.getDefaultReadLimit() == ReadAllAvailable()
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert values(source, start, end) == [b"a", b"b"]
    assert source.latestOffset(end, ReadAllAvailable()) == end
    other.append([b"c"])
    log.append([b"d"])
    following = source.latestOffset(end, ReadAllAvailable())
    assert values(source, end, following) == [b"d", b"c"]
    assert source.reportLatestOffset() is not None
    assert values(source, end, following) == [b"d", b"c"], "a batch that is repeated is the same"
    assert source.partitions(following, following) == []


def test_latest_stays_where_it_was_first_asked_for(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"old"])
    source = reader(node, startingOffsets="latest")
    start = source.initialOffset()
    log.append([b"new"])
    assert source.initialOffset() == start
    end = source.latestOffset(start, ReadAllAvailable())
    assert values(source, start, end) == [b"new"]
    log.append([b"newer"])
    again = reader(node, startingOffsets="latest")
    assert values(again, again.initialOffset(), end) == [b"new"], "the first batch, repeated after a restart"


def test_a_first_batch_is_repeated_though_the_options_of_a_new_query_do_not_fit_any_more(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"a", b"b"])
    requests = {"startingOffsets": '{"t": {"0": 1}}'}
    first = reader(node, **requests)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    node.partitions["t", 1] = StoredPartition()  # What startingOffsets do not name.
    node.partitions["t", 1].append([b"new"])
    again = reader(node, **requests)
    assert values(again, again.initialOffset(), end) == [b"b"]
    following = again.latestOffset(end, ReadAllAvailable())
    assert values(again, end, following) == [b"new"]
    new = reader(node, **requests)
    with pytest.raises(OptionError, match="startingOffsets has no offset for t partition 1"):
        new.latestOffset(new.initialOffset(), ReadAllAvailable())


def test_a_node_that_has_not_heard_of_new_partitions_is_no_wrong_option(node: StandIn) -> None:
    logs = node.create("t", partitions=2)
    logs[1].append([b"a"])
    source = reader(node, assign='{"t": [1]}')
    start = source.initialOffset()
    node.lagging = {("t", 1)}
    end = source.latestOffset(start, ReadAllAvailable())
    assert values(source, start, end) == [b"a"]


def test_what_was_lost_is_told_once_while_few_records_wait_for_more(
    node: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream_source, "LONG_POLL_S", 0.3)
    (log,) = node.create("t")
    log.append([b"a"])
    source = reader(node, minOffsetsPerTrigger="100", maxTriggerDelay="1h", failOnDataLoss="false")
    limit = source.getDefaultReadLimit()
    place = source.latestOffset(source.initialOffset(), limit)
    for value in (b"b", b"c", b"d"):
        log.append([value])
    log.log_start = 3
    for _ in range(3):
        place = source.latestOffset(place, limit)
    assert ends(place) == {"0": 4}
    assert caplog.text.count("offsets [1, 3) are gone") == 1


def test_streams_begin_at_timestamps(node: StandIn) -> None:
    (log,) = node.create("t")
    for number in range(4):
        log.append([b"%d" % number], time_ms=NOW_MS + number * 1000)
    assert ends(reader(node, startingTimestamp=str(NOW_MS + 1500)).initialOffset()) == {"0": 2}
    by_partition = json.dumps({"t": {"0": NOW_MS + 3000}})
    assert ends(reader(node, startingOffsetsByTimestamp=by_partition).initialOffset()) == {"0": 3}
    late = reader(node, startingTimestamp=str(NOW_MS + 9000), startingOffsetsByTimestampStrategy="latest")
    assert ends(late.initialOffset()) == {"0": 4}


def test_an_upper_limit_is_shared_out_and_may_be_overruled_by_the_trigger(node: StandIn) -> None:
    logs = node.create("t", partitions=2)
    logs[0].append([b"x"] * 90)
    logs[1].append([b"x"] * 30)
    source = reader(node, maxOffsetsPerTrigger="40")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = source.initialOffset()
    assert ends(source.latestOffset(start, limit)) == {"0": 30, "1": 10}
    assert ends(source.latestOffset(start, ReadAllAvailable())) == {"0": 90, "1": 30}


def test_available_now_takes_the_ends_once_and_ends(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"x"] * 10)
    source = reader(node, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4", startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    log.append([b"late"] * 10)
    place, steps = source.initialOffset(), []
    while (end := source.latestOffset(place, source.getDefaultReadLimit())) != place:
        steps.append(ends(end)["0"])
        place = end
    assert steps == [4, 8, 10]
    latest = reader(node, startingOffsets="latest")
    latest.prepareForTriggerAvailableNow()
    log.append([b"later"])
    start = latest.initialOffset()
    assert latest.latestOffset(start, ReadAllAvailable()) == start


def test_a_lower_limit_waits_for_more(node: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "LONG_POLL_S", 0.3)
    (log,) = node.create("t")
    log.append([b"x"])
    source = reader(node, minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    place = source.latestOffset(source.initialOffset(), limit)
    assert ends(place) == {"0": 1}, "the first micro-batch of a run does not wait"
    log.append([b"x"] * 2)
    assert source.latestOffset(place, limit) == place
    assert source.latestOffset(place, limit) == place, "not even when there is nothing else to do"
    log.append([b"x"])
    assert ends(source.latestOffset(place, limit)) == {"0": 4}
    quick = reader(node, minOffsetsPerTrigger="100", maxTriggerDelay="1ms")
    assert ends(quick.latestOffset(quick.initialOffset(), ReadMinRows(100))) == {"0": 4}


def test_a_query_with_nothing_to_do_waits_at_the_leader_and_is_told(
    node: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "LONG_POLL_S", 30.0)
    (log,) = node.create("t")
    source = reader(node)
    start = source.initialOffset()
    place = source.latestOffset(start, ReadAllAvailable())
    lookups = node.lookups

    def append() -> None:
        while node.fetches == 0:  # The query waits by then.
            time.sleep(0.01)
        log.append([b"x"])
        with node.appended:
            node.appended.notify_all()

    writer = threading.Thread(target=append)
    writer.start()
    end = source.latestOffset(place, ReadAllAvailable())
    writer.join()
    assert ends(end) == {"0": 1}
    assert node.lookups == lookups + 2, "once before the wait, once after it"
    source.partitions(place, end)
    fetches = node.fetches
    assert source.latestOffset(end, ReadAllAvailable()) == end, "after a micro-batch Spark may have more to do: no wait"
    assert node.fetches == fetches


def test_a_wait_ends_in_time_and_a_leader_that_fails_is_no_failure(
    node: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "LONG_POLL_S", 0.2)
    node.create("t")
    source = reader(node)
    place = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert source.latestOffset(place, ReadAllAvailable()) == place
    node.leader, node.leader_epoch = -1, 2

    def elect() -> None:
        node.leader, node.leader_epoch = 1, 3

    timer = threading.Timer(0.3, elect)
    timer.start()
    assert source.latestOffset(place, ReadAllAvailable()) == place
    timer.join()


def test_a_topic_that_is_gone_or_another_stops_the_query_unless_allowed(node: StandIn) -> None:
    (log,) = node.create("t")
    log.append([b"old"])
    strict, loose = reader(node), reader(node, failOnDataLoss="false")
    start = strict.initialOffset()
    place = strict.latestOffset(start, ReadAllAvailable())
    del node.topic_ids["t"]
    with pytest.raises(DataLossError, match="topic t, which the query has read so far, no longer exists"):
        strict.latestOffset(place, ReadAllAvailable())
    nothing = loose.latestOffset(place, ReadAllAvailable())
    assert "t" not in nothing
    (log,) = node.create("t")
    log.append([b"new", b"newer"])
    with pytest.raises(DataLossError, match="created again"):
        strict.latestOffset(place, ReadAllAvailable())
    for before in (place, nothing):
        end = loose.latestOffset(before, ReadAllAvailable())
        assert values(loose, before, end) == [b"new", b"newer"]


def test_progress_that_cannot_be_shown_is_logged_once_and_stops_nothing(
    node: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = node.create("t")
    source = reader(node, groupId="g")
    source.prepareForTriggerAvailableNow()
    log.append([b"x"])
    place = source.initialOffset()
    for _ in range(3):
        source = reader(node, groupId="g")
        source.prepareForTriggerAvailableNow()
        end = source.latestOffset(place, ReadAllAvailable())
        assert source.latestOffset(end, ReadAllAvailable()) == end, "and its progress has been tried to show"
        source.commit(end)
        assert source._mirror is not None
        assert source._mirror.flush(60), "else it is still trying, and says so, when another test runs"
    assert caplog.text.count("progress is not shown in group 'g': ") == 3, "once in each run"
    assert "does not offer this call" in caplog.text


def test_what_is_wrong_is_said_by_the_first_call_and_not_before(node: StandIn) -> None:
    wrong = reader(node, endingOffsets="latest")
    start = wrong.initialOffset()
    for call in (wrong.getDefaultReadLimit, wrong.prepareForTriggerAvailableNow):
        with pytest.raises(OptionError, match="endingOffsets"):
            call()
    with pytest.raises(OptionError, match="endingOffsets"):
        wrong.latestOffset(start, ReadAllAvailable())
    given = {"quorumlog.bootstrap.servers": node.address, "subscribe": "t"}
    with pytest.raises(SchemaError, match="'valu'"):
        LogStreamReader(given, StructType([StructField("valu", BinaryType())])).getDefaultReadLimit()
