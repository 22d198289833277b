"""Rows that are written under a name are in the log once, whatever the runs before have done. No session is needed."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewPartitions, NewTopic, Producer, TopicPartition
from quorumlog.sdk.spark import rows_to_records, sink
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import nodes_at
from quorumlog.sdk.spark.write_options import WriteOptions

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
    """Returns the records of the topic, counted."""
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
    shapes = sink.shapes_of(options, [options.topic])
    work = runs.begin_work(nodes_at(options.bootstrap_servers), who, "first run", time.time_ns() // 1_000_000)
    note = sink.first_look(options, shapes, work.timestamp_ms)
    run = runs.begin(nodes_at(options.bootstrap_servers), who, [options.topic], note)
    how = rows_to_records.Spread(shapes, run.note.timestamp_ms, who.turn)
    with Producer(
        bootstrap_servers=options.bootstrap_servers,
        producer_name=who.producer,
        producer_epoch=who.epoch,
        compression_type=options.compression,
        batch_size=1 << 20,
    ) as producer:
        for target, records in list(rows_to_records.spread(rows_to_records.rows_of(rows, options.topic), how))[
            :partitions
        ]:
            for piece in rows_to_records.cut(records, 1 << 20):
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


def test_two_runs_at_the_same_time_agree_where_rows_without_a_key_go(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with spark.speculation, of a plan that shuffles: neither sees what the other has under way."""
    one_by_one(monkeypatch)
    monkeypatch.setattr(rows_to_records, "KEYLESS_RUN", 100)
    who, values = name(), [b"%d" % number for number in range(200)]

    def keyless(numbers: list[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": numbers})

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield keyless(values[:100])
        assert sink.write_once(options, who, [keyless(values[100:]), keyless(values[:100])]).records == 200
        yield keyless(values[100:])

    assert sink.write_once(options, who, overtaken()).records == 200
    assert written(options) == Counter(values)


def test_runs_that_stumble_over_each_other_come_to_an_end(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(monkeypatch)
    monkeypatch.setattr(rows_to_records, "BATCH_BYTES", 1 << 10)
    who, values = name(), [b"%05d" % number for number in range(4_000)]

    def run(seed: int) -> int:
        mine = random.Random(seed).sample(values, len(values))
        return sink.write_once(options, who, [batch(mine[first : first + 50]) for first in range(0, 4_000, 50)]).records

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [4_000] * 3
    assert written(options) == Counter(values)


def test_what_retention_has_taken_is_not_written_again(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number for number in range(300)]
    broken_off(options, who, batch(values), 2)
    partitions = [TopicPartition(options.topic or "", number) for number in range(3)]
    with (
        Admin(bootstrap_servers=options.bootstrap_servers) as admin,
        Consumer(bootstrap_servers=options.bootstrap_servers) as consumer,
    ):
        before = consumer.end_offsets(partitions)
        admin.delete_records(dict.fromkeys(partitions[:2], -1))
        with pytest.raises(DeliveryError, match="retention or compaction has removed some of it"):
            sink.write_once(options, who, [batch(values[::-1])])
        assert consumer.end_offsets(partitions[:2]) == {place: before[place] for place in partitions[:2]}
        # The same rows in the same order are the same batches, and the log recognises those that are gone.
        if not consumer.end_offsets(partitions[2:])[partitions[2]]:
            sink.write_once(options, who, [batch(values)])
        assert sum(consumer.end_offsets(partitions).values()) == 300


def test_what_is_there_counts_whatever_codec_and_limits_it_was_written_under(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number * 1_000 for number in range(100)]
    broken_off(options, who, batch(values), 2)
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.alter_configs({options.topic or "": {"max.message.bytes": 20_000}})
    assert sink.write_once(dataclasses.replace(options, compression="none"), who, [batch(values)]).records == 100
    assert written(options) == Counter(values)


def test_a_topic_that_is_created_anew_gets_all_rows_again(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number for number in range(100)]
    broken_off(options, who, batch(values), 3)
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.delete_topics([options.topic or ""])
        with pytest.raises(DeliveryError, match="does not exist: create it first"):
            sink.write_once(options, who, [batch(values)])
        admin.create_topics([NewTopic(options.topic or "", 2, 1)])
    for _ in range(2):
        sink.write_once(options, who, [batch(values[::-1])])
        assert written(options) == Counter(values)


def test_who_adds_the_partition_that_was_missing_may_go_on(options: WriteOptions) -> None:
    who = name()
    far = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "partition": pa.array([0, 4], pa.int32())})
    with pytest.raises(DeliveryError, match=r"a row names partition 4 of topic .*, which has 3 \(0 to 2\)"):
        sink.write_once(options, who, [far])
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_partitions({options.topic or "": NewPartitions(5)})
    for _ in range(2):
        sink.write_once(options, who, [far])
        assert written(options) == Counter([b"1", b"2"])


def test_nothing_is_added_to_what_was_complete(options: WriteOptions) -> None:
    """A job that is run again on fewer cores has fewer tasks: the rows of the others would be written twice."""
    first = [name(), name()._replace(task=1)]
    tasks = [first[0], first[1]._replace(work=first[0].work)]
    done = [sink.write_once(options, who, [batch([b"%d" % who.task])]) for who in tasks]
    sink.end(options, done)
    again = [sink.write_once(options, who, [batch([b"%d" % who.task])]) for who in tasks]
    sink.end(options, again)
    for rows in ([b"0", b"1"], [b"0", b"more"]):
        everything = sink.write_once(options, tasks[0], [batch(rows)])
        with pytest.raises(DeliveryError, match="has 2 records in 1 tasks, one that was complete before had 2 records"):
            sink.end(options, [everything])
    with pytest.raises(DeliveryError, match="not among its task's rows now"):
        sink.write_once(options, tasks[1], [batch([b"other"])])
    assert written(options) == Counter([b"0", b"1"])


def divided(values: list[bytes], tasks: int) -> list[pa.RecordBatch]:
    return [batch(values[task::tasks]) for task in range(tasks)]


@pytest.mark.parametrize("begun", [{0, 3, 4, 5}, {1}, {5}, set(range(6))])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_run_with_fewer_tasks_finds_what_the_lost_ones_have_written(
    options: WriteOptions, begun: set[int], tasks: int
) -> None:
    who, values = name(), [b"%d" % (number // 2) for number in range(60)]
    first = divided(values, 6)
    for task in begun:
        broken_off(options, who._replace(task=task), first[task], 2)
    for _ in range(2):
        shares = divided(values, tasks)
        sink.end(options, [sink.write_once(options, who._replace(task=n), [share]) for n, share in enumerate(shares)])
        assert written(options) == Counter(values)


def whole_run(options: WriteOptions, who: runs.Name, values: list[bytes], tasks: int, run: str) -> None:
    shares = enumerate(divided(values, tasks))
    sink.end(options, [sink.write_once(options, who._replace(task=n), [share], run) for n, share in shares])


def test_a_task_that_was_given_up_adds_nothing_after_a_run_with_fewer_tasks(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(monkeypatch)
    who, values = name(), [b"%d" % number for number in range(60)]
    mine = values[5::6]

    def given_up() -> Iterator[pa.RecordBatch]:
        yield batch(mine[:5])
        deadline_s = time.monotonic() + 60
        while written(options).total() < 5:
            assert time.monotonic() < deadline_s, "the first rows are not written before the next ones come"
        whole_run(options, who, values, 2, "second run")
        yield batch(mine[5:])

    with pytest.raises(DeliveryError, match="was deleted: its earlier holders can no longer write"):
        sink.write_once(options, who._replace(task=5), given_up(), "first run")
    assert written(options) == Counter(values)
    whole_run(options, who, values, 2, "third run")
    assert written(options) == Counter(values)


def test_a_task_that_was_given_up_before_its_first_batch_writes_nothing(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sure to be new, and no longer looks what exists."""
    who, values = name(), [b"%d" % number for number in range(60)]
    write_first, begun = sink._write_first, []

    def stopped(to: WriteOptions, task: runs.Name, *rest: Any) -> bool:
        if task.task == 5 and not begun:
            begun.append(task)
            whole_run(options, who, values, 2, "second run")
        return write_first(to, task, *rest)

    monkeypatch.setattr(sink, "_write_first", stopped)
    with pytest.raises(DeliveryError, match="was deleted: its earlier holders can no longer write"):
        sink.write_once(options, who._replace(task=5), [batch(values[5::6])], "first run")
    assert begun
    assert written(options) == Counter(values)


def test_a_task_that_was_given_up_and_begins_while_the_run_ends_writes_nothing(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No producer has its name when the run lists the names."""
    who, values = name(), [b"%d" % number for number in range(60)]
    sink.write_once(options, who, [batch(values[0::6])], "first run")
    complete = runs.complete

    def late(*given: Any) -> None:
        sink.write_once(options, who._replace(task=5), [batch(values[5::6])], "first run")
        complete(*given)

    monkeypatch.setattr(runs, "complete", late)
    whole_run(options, who, values, 2, "second run")
    assert written(options) == Counter(values)


def test_what_a_lost_task_wrote_to_a_topic_that_was_created_anew_counts(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number for number in range(60)]
    topic, lost = options.topic or "", who._replace(task=5)
    sink.write_once(options, lost, [batch(values[5::6])], "first run")
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 2, 1)])
    sink.write_once(options, lost, [batch(values[5::6])], "second run")
    whole_run(options, who, values, 2, "third run")
    assert written(options) == Counter(values)


def test_a_run_with_more_tasks_writes_nothing_twice(options: WriteOptions) -> None:
    who, values = name(), [b"%d" % number for number in range(60)]
    sink.write_once(options, who, [batch(values)])
    shares = divided(values, 6)
    for task in range(1, 6):
        sink.write_once(options, who._replace(task=task), [shares[task]])
    with pytest.raises(DeliveryError, match="or its tasks are divided otherwise"):
        sink.write_once(options, who, [shares[0]])
    assert written(options) == Counter(values)


def test_other_rows_of_a_lost_task_are_noticed(options: WriteOptions) -> None:
    who = name()
    sink.write_once(options, who._replace(task=7), [batch([b"other"])])
    alone = sink.write_once(options, who, [batch([b"found"])])
    with pytest.raises(DeliveryError, match="an earlier run of this batch was divided into more than 1 tasks"):
        sink.end(options, [alone])


def test_topics_of_rows_may_differ_from_batch_to_batch(options: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch)
    other = f"{options.topic}-other"
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(other, 2, 1)])
    by_column = dataclasses.replace(options, topic=None)
    rows = [
        pa.RecordBatch.from_pydict({"topic": [topic] * 3, "value": [b"1", b"2", b"3"]})
        for topic in (options.topic, other, options.topic)
    ]
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


def test_batches_are_cut_to_what_the_topic_takes(options: WriteOptions) -> None:
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.alter_configs({options.topic or "": {"max.message.bytes": 10_000}})
    who, values = name(), [random.Random(number).randbytes(700) for number in range(300)]
    for _ in range(2):
        assert sink.write_once(options, who, [batch(values)]).records == 300
    assert sink.write_through(options, 0, [batch(values)]).records == 300
    assert written(options) == Counter(values * 2)


def test_what_cannot_be_delivered_names_the_topic_and_the_reason(options: WriteOptions) -> None:
    where = rf"topic {options.topic} partition \d cannot be written to:"
    for size in (2 << 20, 9 << 20):
        large = batch([random.Random(1).randbytes(size)])
        line = rf"{where} a row of {size // 1_000}\d\d\d bytes is larger than the topic takes: raise its max.message.by"
        with pytest.raises(DeliveryError, match=line):
            sink.write_once(options, name(), [large])
        with pytest.raises(DeliveryError, match=line):
            sink.write_through(options, 0, [large])
    elsewhere = WriteOptions(options.bootstrap_servers, "nowhere", None, "none")
    with pytest.raises(DeliveryError, match="topic 'nowhere' does not exist"):
        sink.write_through(elsewhere, 0, [batch([b"a"])])
