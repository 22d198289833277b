"""Streams of a real cluster in a real Spark: every record once, whatever ends, moves or dies in between."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition
from tests.support.command_line import leader_of
from tests.support.stream_queries import MOST_STARTS, Place, StreamedTopic, is_slow_start

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]

START_MS = 1_700_000_000_000
TIMES = pa.timestamp("ms", "UTC")
_numbers = itertools.count(1)

Stream = Callable[..., StreamedTopic]


class Written:
    """Topics and what was acknowledged of each."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.places: dict[str, list[Place]] = {}
        self.admin = Admin(bootstrap_servers=cluster.bootstrap_servers)

    def create(self, name: str, partitions: int = 1) -> str:
        """Makes a topic whose records, with times made up, retention leaves alone."""
        self.admin.create_topics([NewTopic(name, partitions, 3, {"retention.ms": "-1"})])
        self.places[name] = []
        return name

    def write(self, topic: str, counts: list[int]) -> None:
        """Writes so many records to each partition, a second of their made-up time after the other. Those of one
        arrive together, as long as one batch holds them: a query that looks in between would see the first of them."""
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            sent = [
                producer.send_arrow(
                    topic,
                    pa.table(
                        {
                            "value": [b"%d" % number for number in range(count)],
                            "timestamp": pa.array([START_MS + 1000 * number for number in range(count)], TIMES),
                        }
                    ),
                    partition=partition,
                )
                for partition, count in enumerate(counts)
                if count
            ]
            done = [batch for future in sent for batch in future.result(timeout=60)]
        self.places[topic] += [
            (topic, at.partition, at.base_offset + number) for at in done for number in range(at.record_count)
        ]


@pytest.fixture(scope="module")
def written(quorumlog_cluster: LocalCluster) -> Iterator[Written]:
    topics = Written(quorumlog_cluster)
    yield topics
    topics.admin.close()


@pytest.fixture
def stream(spark: SparkSession, written: Written, tmp_path: Path) -> Stream:
    """A query with a checkpoint of its own that starts with the first record."""

    def make(**options: str) -> StreamedTopic:
        chosen = {"startingOffsets": "earliest"} | options
        folder = tmp_path / f"checkpoint-{next(_numbers)}"
        return StreamedTopic(spark, written.cluster.bootstrap_servers, folder, **chosen)

    return make


def refusal(query: StreamedTopic, **options: str) -> str:
    """The message of a query that must fail, with nothing of our own stack in it."""
    with pytest.raises(StreamingQueryException) as raised:
        query.drain(**options)
    assert "Traceback" not in str(raised.value)
    return str(raised.value)


def test_available_now_reads_what_is_there_goes_on_at_the_checkpoint_and_keeps_to_its_limit(
    stream: Stream, written: Written
) -> None:
    written.create("steps", 2)
    written.write("steps", [60, 20])
    whole, limited = stream(subscribe="steps"), stream(subscribe="steps")
    whole.drain()
    assert (whole.sizes(), whole.tasks) == ([80], [1]), "small partitions share a task"
    assert sorted(whole.places) == sorted(written.places["steps"])
    limited.drain(maxOffsetsPerTrigger="20")
    assert limited.sizes() == [20, 20, 20, 20]
    first = Counter(row["partition"] for row in limited.batches[0])
    assert first == {0: 15, 1: 5}, "shares go by backlog"
    written.write("steps", [5, 5])
    for query in (whole, limited):
        query.drain(groupId="lag of steps")
        assert sorted(query.places) == sorted(written.places["steps"])
        assert query.sizes()[-1] == 10
        assert query.checkpoint()["steps"] == {"0": 65, "1": 25}
        query.drain()
        assert sorted(query.places) == sorted(written.places["steps"]), "nothing new, nothing read"
    committed = written.admin.list_group_offsets("lag of steps")
    assert {tp.partition: each.offset for tp, each in committed.items()} == {0: 65, 1: 25}


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"continuous": "1 second"}, "does not support continuous processing"),
        ({"realTime": "5 minutes"}, "INPUT_STREAM_NOT_SUPPORTED"),
    ],
    ids=["continuous", "real-time"],
)
def test_only_micro_batches_are_read(
    spark: SparkSession, written: Written, tmp_path: Path, trigger: dict[str, str], words: str
) -> None:
    """Spark has no other interface for sources in Python."""
    topic = written.create(f"triggers-{next(_numbers)}")
    reader = spark.readStream.format("quorumlog").option("subscribe", topic)
    rows = reader.option("quorumlog.bootstrap.servers", written.cluster.bootstrap_servers).load()
    writer = rows.writeStream.format("console").outputMode("update").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match=words):
        writer.trigger(**trigger).start().awaitTermination(60)


def test_columns_times_and_tasks_are_as_asked_for(stream: Stream, written: Written) -> None:
    written.create("times", 4)
    written.write("times", [50] * 4)
    since = stream(
        subscribe="times", startingTimestamp=str(START_MS + 40_500), minPartitions="8", includeHeaders="true"
    )
    headers = "headers array<struct<key:string,value:binary>>"
    since.drain(f"{headers}, topic string, offset bigint, partition int, timestamp timestamp")
    rows = [row for batch in since.batches.values() for row in batch]
    assert list(rows[0]) == ["headers", "topic", "offset", "partition", "timestamp"]
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (p, o) for p in range(4) for o in range(41, 50)
    ]
    assert min(row["timestamp"] for row in rows) == dt.datetime.fromtimestamp(START_MS / 1000 + 41, dt.UTC)
    assert since.tasks == [8]
    places = json.dumps({"times": {"0": 48, "1": -1, "2": -2, "3": 50}})
    some = stream(subscribe="times", startingOffsets=places, maxRecordsPerPartition="10")
    some.drain()
    assert sorted(some.places) == [("times", 0, 48), ("times", 0, 49), *(("times", 2, offset) for offset in range(50))]
    assert some.tasks == [6], "two, and five times ten"


def reach(query: StreamedTopic, running: StreamingQuery, sizes: list[int]) -> None:
    """Waits until micro-batches of these sizes are done, or the query has failed."""
    wait_for(lambda: query.sizes() == sizes or not running.isActive)


def started(query: StreamedTopic, sizes: list[int], **options: str) -> StreamingQuery:
    """A query that has started: its micro-batches are of these sizes."""
    for _ in range(MOST_STARTS):
        running = query.start(**options)
        reach(query, running, sizes)
        if running.isActive:
            return running
        failure = running.exception()
        assert failure is not None and is_slow_start(failure), failure
    raise AssertionError


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s, never = time.monotonic() + 120, threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s
        never.wait(0.02)


def test_few_records_wait_for_more_up_to_a_delay(stream: Stream, written: Written) -> None:
    written.create("few")
    written.write("few", [5])
    query = stream(subscribe="few", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20", maxTriggerDelay="1h")
    running = started(query, [5])
    written.write("few", [3])
    other = stream(subscribe="few")
    other.drain()
    assert (other.sizes(), query.sizes()) == ([8], [5]), "three are too few; who does not ask for more has read them"
    written.write("few", [32])
    reach(query, running, [5, 20, 15])
    assert running.isActive, running.exception()
    running.stop()
    written.write("few", [1])
    running = started(query, [5, 20, 15, 1], maxTriggerDelay="100ms")
    written.write("few", [2])
    reach(query, running, [5, 20, 15, 1, 2])
    running.stop()
    assert query.places == written.places["few"]


def test_progress_is_shown_in_a_group_whose_coordinator_dies(stream: Stream, written: Written) -> None:
    written.create("watched", 2)
    written.write("watched", [4, 6])
    group, admin = "watchers", written.admin

    def committed() -> dict[int, int]:
        return {tp.partition: each.offset for tp, each in admin.list_group_offsets(group).items()}

    query = stream(subscribe="watched", groupId=group)
    running = started(query, [10])
    wait_for(lambda: committed() == {0: 4, 1: 6})
    coordinator = admin.describe_groups([group])[0].coordinator
    written.cluster.kill(coordinator)
    try:
        written.write("watched", [1, 2])
        wait_for(lambda: committed() == {0: 5, 1: 8})
        assert admin.describe_groups([group])[0].coordinator != coordinator
        assert running.isActive, running.exception()
    finally:
        running.stop()
        written.cluster.start(coordinator)
        written.cluster.wait_ready()
    assert sorted(query.places) == sorted(written.places["watched"])


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_start(stream: Stream, written: Written) -> None:
    written.create("grow-a")
    written.write("grow-a", [3])
    query = stream(subscribePattern="grow-.*", startingOffsets="latest")
    query.drain()
    assert query.places == []
    written.admin.create_partitions({"grow-a": 3})
    written.create("grow-b")
    written.write("grow-a", [1, 2, 3])
    written.write("grow-b", [4])
    query.drain()
    new = [*written.places["grow-a"][3:], *written.places["grow-b"]]
    assert sorted(query.places) == sorted(new)


def test_data_that_is_gone_stops_a_query_or_is_passed_over(stream: Stream, written: Written) -> None:
    for topic in ("kept", "gone"):
        written.create(topic)
        written.write(topic, [10])
    query = stream(subscribe="kept,gone")
    query.drain()
    written.write("kept", [10])
    written.admin.delete_records({TopicPartition("kept", 0): 15})
    message = refusal(query)
    for words in ("topic kept partition 0", "offsets [10, 15) are gone", "failOnDataLoss"):
        assert words in message
    query.drain(failOnDataLoss="false")
    assert query.places[20:] == [("kept", 0, offset) for offset in range(15, 20)]
    written.admin.delete_topics(["gone"])
    message = refusal(query)
    assert "topic gone, which the query has read so far, no longer exists" in message
    query.drain(failOnDataLoss="false")
    written.create("gone")
    written.write("gone", [3])
    query.drain()
    assert query.places[25:] == [("gone", 0, offset) for offset in range(3)], "a new topic, from its start"
    written.admin.delete_topics(["gone"])
    written.create("gone")
    written.write("gone", [20])
    assert "topic gone, which the query has read so far, was deleted and created again" in refusal(query)
    query.drain(failOnDataLoss="false")
    assert query.places[28:] == [("gone", 0, offset) for offset in range(20)]


@contextmanager
def producing(written: Written, topic: str, partitions: int) -> Iterator[None]:
    """A producer that writes without pause in the background; what it was acknowledged is in ``written`` afterwards."""
    enough = threading.Event()

    def run() -> None:
        with Producer(bootstrap_servers=written.cluster.bootstrap_servers) as producer:
            futures = []
            for number in itertools.count():
                if enough.wait(0.002):
                    break
                futures += [producer.send(topic, b"%d" % number, partition=each) for each in range(partitions)]
            places = [future.result(timeout=60) for future in futures]
        written.places[topic] += [(topic, at.partition, at.offset) for at in places]

    writer = threading.Thread(target=run)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join(120)


#: Of a query that reads; one that writes too is restarted ten times (test_stream_write.py).
RESTARTS = 5


def test_restarts_while_a_node_dies_and_comes_back_lose_and_double_nothing(
    stream: Stream, written: Written, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 30)
    record_property("seed", seed)
    print("seed", seed)
    choose = random.Random(seed)
    written.create("stormy", 4)
    query = stream(subscribe="stormy", maxOffsetsPerTrigger="400")
    victim = leader_of(written.cluster, "stormy")
    with producing(written, "stormy", 4):
        for restart in range(RESTARTS):
            batches = len(query.batches)
            crash = choose.random() < 0.5
            if crash:
                query.failing = {batches + choose.randrange(2)}
            running = query.start()
            if restart == 1:
                written.cluster.kill(victim)
            if restart == 3:
                written.cluster.start(victim)
            if crash:
                with pytest.raises(StreamingQueryException) as raised:
                    running.awaitTermination(120)
                assert "fails after its work is done" in str(raised.value) or is_slow_start(raised.value)
            else:
                reached = threading.Event()
                while len(query.batches) <= batches + 1 and running.isActive:
                    assert not reached.wait(0.02)
                running.stop()
                failure = running.exception()
                assert failure is None or is_slow_start(failure), failure
    query.drain(maxOffsetsPerTrigger="100000")
    assert len(query.places) == len(set(query.places))
    assert sorted(query.places) == sorted(written.places["stormy"])
    by_partition = [[offset for _, number, offset in query.places if number == each] for each in range(4)]
    assert all(offsets == sorted(offsets) for offsets in by_partition), "in order"
