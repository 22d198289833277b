"""Rows that are written under a name are in the log once, whatever the runs before have done. No session is needed."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

from quorumlog.sdk import Admin, Consumer, NewPartitions, NewTopic, Producer
from quorumlog.sdk.spark import outgoing, runs, sink
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import nodes_at
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.server.local import LocalCluster

pytestmark = pytest.mark.cluster

_numbers = count()


@pytest.fixture
def options(quorumlog_cluster: LocalCluster) -> WriteOptions:
    """A write to a new topic of three partitions."""
    topic = f"write-once-{next(_numbers)}"
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 1)])
    return WriteOptions(quorumlog_cluster.bootstrap_servers, topic, None, "zstd")


def name(epoch: int = 0) -> runs.Name:
    return runs.Name(f"test-{next(_numbers)}", epoch, 0)


def batch(values: list[bytes], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": keys or [value[:1] for value in values], "value": values})


def written(options: WriteOptions) -> Counter[bytes | None]:
    """What the topic holds, counted."""
    assert options.topic is not None
    with Consumer(options.topic, bootstrap_servers=options.bootstrap_servers) as consumer:
        partitions = sorted(consumer.partitions_for_topic(options.topic))
        ends = consumer.end_offsets([(options.topic, number) for number in partitions])
        values: Counter[bytes | None] = Counter()
        while values.total() < sum(ends.values()):
            values.update(consumer.poll_arrow(timeout_ms=1_000).column("value").to_pylist())
    return values


def broken_off(options: WriteOptions, who: runs.Name, rows: pa.RecordBatch, partitions: int) -> None:
    """A first run that ends after some partitions."""
    assert options.topic is not None
    table = outgoing.rows_of(rows, options.topic)
    run = runs.begin(
        nodes_at(options.bootstrap_servers),
        who,
        [options.topic],
        lambda: sink.first_look(options, [options.topic or ""]),
    )
    how = outgoing.Spread(run.note.partition_counts, run.note.timestamp_ms, who.task)
    with Producer(
        bootstrap_servers=options.bootstrap_servers, producer_name=who.producer, producer_epoch=who.epoch,
        compression_type=options.compression, batch_size=1 << 20,
    ) as producer:  # fmt: skip
        for target, records in list(outgoing.spread(table, how))[:partitions]:
            for piece in outgoing.cut(records):
                producer.send_arrow(target.topic, piece, partition=target.partition)
        producer.flush()


@pytest.mark.parametrize("partitions", [0, 1, 2, 3])
def test_a_second_run_adds_what_the_first_one_did_not_write_in_any_order(
    options: WriteOptions, partitions: int
) -> None:
    who, values = name(), [b"%d" % number for number in range(500)]
    keys: list[bytes | None] = [None if number % 5 == 0 else b"%d" % (number % 17) for number in range(500)]
    broken_off(options, who, batch(values, keys), partitions)
    order = list(range(500))
    random.Random(partitions).shuffle(order)
    shuffled = batch([values[place] for place in order], [keys[place] for place in order])
    assert sink.write_once(options, who, [shuffled]).records == 500
    assert written(options) == Counter(values)
    assert sink.write_once(options, who, [batch(values, keys)]).records == 500
    assert written(options) == Counter(values)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's batches are sent one by one, however small they are."""
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)


def test_a_run_that_fails_while_spark_makes_its_rows_is_finished_by_the_next(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(monkeypatch)
    who, values = name(), [b"%d" % number for number in range(300)]

    def breaking_off() -> Iterator[pa.RecordBatch]:
        yield batch(values[:100])
        deadline_s = time.monotonic() + 60
        while written(options).total() < 100:
            assert time.monotonic() < deadline_s, "the first rows are not written before the next ones come"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink.write_once(options, who, breaking_off())
    for _ in range(2):
        assert sink.write_once(options, who, [batch(values[200:]), batch(values[:200])]).records == 300
        assert written(options) == Counter(values)


def test_two_runs_of_one_name_at_the_same_time_write_everything_once(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(monkeypatch)
    who, values = name(), [b"%d" % number for number in range(300)]

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch(values[:100])
        assert sink.write_once(options, who, [batch(values[::-1])]).records == 300
        yield batch(values[100:200])
        yield batch(values[200:])

    assert sink.write_once(options, who, overtaken()).records == 300
    assert written(options) == Counter(values)


def test_topics_of_rows_may_differ_from_batch_to_batch(options: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch)
    other = f"{options.topic}-other"
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(other, 2, 1)])
    by_column = dataclasses.replace(options, topic=None)
    rows = [pa.RecordBatch.from_pydict({"topic": [topic] * 3, "value": [b"1", b"2", b"3"]})
            for topic in (options.topic, other, options.topic)]  # fmt: skip
    who = name()
    for _ in range(2):
        assert sink.write_once(by_column, who, rows).records == 9
    assert written(options) == Counter({b"1": 2, b"2": 2, b"3": 2})
    assert written(dataclasses.replace(options, topic=other)) == Counter([b"1", b"2", b"3"])


def test_a_second_run_goes_by_the_partitions_that_the_first_one_saw(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number for number in range(100)]
    broken_off(options, who, batch(values), 1)
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_partitions({options.topic or "": NewPartitions(7)})
    sink.write_once(options, who, [batch(values)])
    assert written(options) == Counter(values)


def test_a_run_with_other_rows_is_refused_and_adds_nothing(options: WriteOptions) -> None:
    who = name()
    sink.write_once(options, who, [batch([b"a", b"b"])])
    with pytest.raises(DeliveryError, match="does not give the same rows each time"):
        sink.write_once(options, who, [batch([b"a", b"c", b"d"])])
    with pytest.raises(DeliveryError, match="does not give the same rows each time"):
        sink.write_once(options, who, [])
    assert written(options) == Counter([b"a", b"b"])


def test_a_former_instance_of_a_query_is_fenced(options: WriteOptions) -> None:
    who = name(epoch=3)
    sink.write_once(options, who, [batch([b"new"])])
    with pytest.raises(Exception, match="another instance has taken over"):
        sink.write_once(options, who._replace(epoch=2), [batch([b"old"])])
    assert written(options) == Counter([b"new"])


def test_a_task_without_rows_writes_nothing(options: WriteOptions) -> None:
    assert sink.write_once(options, name(), []).records == 0
    assert sink.write_through(options, 0, []).records == 0
    assert written(options) == Counter()


def test_a_write_without_a_name_is_passed_through(options: WriteOptions) -> None:
    for _ in range(2):
        assert sink.write_through(options, 0, [batch([b"a"]), batch([b"b"])]).records == 2
    assert written(options) == Counter({b"a": 2, b"b": 2})


def test_a_row_may_be_as_large_as_its_topic_takes(options: WriteOptions) -> None:
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.alter_configs({options.topic or "": {"max.message.bytes": 4 << 20}})
    who, large = name(), batch([random.Random(1).randbytes(3 << 20), b"small"])
    for _ in range(2):
        assert sink.write_once(options, who, [large]).records == 2
    assert written(options) == Counter(large.column("value").to_pylist())


def test_what_cannot_be_delivered_names_the_topic_and_the_reason(options: WriteOptions) -> None:
    large = batch([random.Random(1).randbytes(2 << 20)])
    with pytest.raises(DeliveryError, match=rf"topic {options.topic} partition \d cannot be written to: .*max.message"):
        sink.write_once(options, name(), [large])
    elsewhere = WriteOptions(options.bootstrap_servers, "nowhere", None, "none")
    with pytest.raises(DeliveryError, match="topic 'nowhere' does not exist"):
        sink.write_through(elsewhere, 0, [batch([b"a"])])
