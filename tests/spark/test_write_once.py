"""Rows that are written under a name are committed once, whatever the runs before have done. No session is needed."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewPartitions, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import InvalidProducerEpochError, QuorumlogError, RequestTimedOutError
from quorumlog.sdk.spark import begun_work, sink
from quorumlog.sdk.spark import transactional_sink as transactions
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import Nodes, nodes_at
from quorumlog.sdk.spark.transaction_calls import end_transaction, init_transaction
from quorumlog.sdk.spark.transactional_sink import TransactionalRows, Work
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.v1 import data_plane_pb2 as pb
from tests.support.pipeline_records import values_in

_numbers = count()
LIMIT_S = 60


@pytest.fixture
def options(quorumlog_cluster: LocalCluster) -> WriteOptions:
    """A write to a new topic of three partitions."""
    topic = f"write-once-{next(_numbers)}"
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 1)])
    return WriteOptions(quorumlog_cluster.bootstrap_servers, topic, None, "zstd", transactional=True)


def work() -> Work:
    return Work(f"work-{time.time_ns()}-{next(_numbers)}", 3)


def batch(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": [value[:1] for value in values], "value": list(values)})


def write(options: WriteOptions, this: Work, run: int, *batches: pa.RecordBatch, task: int = 0) -> TransactionalRows:
    """Writes rows as a task, and returns the task's result as the driver receives it."""
    done = transactions.write_in_transaction(options, this, run, task, batches)
    arrived: TransactionalRows = pickle.loads(pickle.dumps(done))
    return arrived


def whole_run(options: WriteOptions, this: Work, values: list[bytes], tasks: int) -> None:
    run = transactions.new_run()
    shares = enumerate(values[task::tasks] for task in range(tasks))
    transactions.commit(options, [write(options, this, run, batch(*share), task=task) for task, share in shares])


def visible(options: WriteOptions, isolation_level: str = "read_committed") -> Counter[bytes]:
    assert options.topic is not None
    return values_in(options.bootstrap_servers, options.topic, isolation_level)


def numbered(end: int) -> list[bytes]:
    return [b"%d" % number for number in range(end)]


# -- tasks and runs ---------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_only_the_tasks_that_count_are_committed(options: WriteOptions) -> None:
    this, run = work(), transactions.new_run()
    tasks = [write(options, this, run, batch(b"%d" % task), task=task) for task in (0, 1)]
    write(options, this, run, batch(b"1"), task=1)
    tasks.append(write(options, this, run, task=2))
    assert not visible(options)
    transactions.commit(options, [*tasks, None])
    assert visible(options) == Counter([b"0", b"1"])
    transactions.commit(options, tasks)
    again = write(options, this, transactions.new_run(), batch(b"0", b"1"))
    assert again.token is None
    transactions.commit(options, [again])
    assert visible(options) == Counter([b"0", b"1"])


@pytest.mark.cluster
def test_a_later_run_fences_the_one_before_it(options: WriteOptions) -> None:
    this, old = work(), transactions.new_run()
    lost = [write(options, this, old, batch(b"old"), task=task) for task in range(3)]
    done = write(options, this, transactions.new_run(), batch(b"new"))
    # This process has started the run before, so the refusal comes when it writes; the repeated task asks again.
    with pytest.raises(DeliveryError, match="the transaction cannot be committed"):
        write(options, this, old, batch(b"old"), task=4)
    with pytest.raises(InvalidProducerEpochError, match="later instance"):
        write(options, this, old, batch(b"old"), task=4)
    with pytest.raises(DeliveryError, match="is not committed"):
        transactions.commit(options, lost)
    transactions.commit(options, [done])
    transactions.commit(options, lost)
    assert visible(options) == Counter([b"new"])


@pytest.mark.cluster
def test_a_process_begins_a_run_once_for_all_of_its_tasks(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def noted(*given: Any) -> begun_work.BegunWork:
        begun.append(given[3])
        return begun_work.begin_work(*given)

    monkeypatch.setattr(transactions, "begin_work", noted)
    this, runs = work(), []
    for _ in range(2):
        runs.append(transactions.new_run())
        tasks = [write(options, this, runs[-1], batch(b"%d" % task), task=task) for task in range(3)]
    transactions.commit(options, tasks)
    assert begun == runs
    assert visible(options) == Counter([b"0", b"1", b"2"])


@pytest.mark.cluster
def test_what_a_run_has_aborted_is_not_visible_and_holds_nobody_up(options: WriteOptions) -> None:
    this = work()
    transactions.abort(options, [write(options, this, transactions.new_run(), batch(b"1")), None])
    with Producer(bootstrap_servers=options.bootstrap_servers) as producer:
        for partition in range(3):
            producer.send(options.topic or "", b"after", partition=partition)
    assert visible(options) == Counter({b"after": 3})
    transactions.commit(options, [write(options, this, transactions.new_run(), batch(b"2"))])
    assert visible(options) == Counter({b"after": 3, b"2": 1})


@pytest.mark.cluster
def test_a_run_that_takes_longer_than_its_transaction_may_be_open_says_so(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)
    this, run = work(), transactions.new_run()
    short = dataclasses.replace(options, transaction_timeout_ms=1_000)
    done = write(short, this, run, batch(b"0"), task=1)

    def is_open(run: int) -> bool:
        try:
            init_transaction(nodes_at(options.bootstrap_servers), this.name, this.number, run, 1_000)
        except InvalidProducerEpochError:
            return False
        return True

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch(b"1")
        deadline = time.monotonic() + LIMIT_S
        while is_open(run):
            assert time.monotonic() < deadline, "the transaction is not aborted"
            time.sleep(0.1)
        yield batch(b"2")

    line = r"is aborted after 1 s: raise option transactionTimeout \(1h at most\), or write less at once"
    for rows in (slow(), iter([batch(b"1")])):
        with pytest.raises(DeliveryError, match=line):
            transactions.write_in_transaction(short, this, run, 0, rows)
    with pytest.raises(DeliveryError, match=rf"is not committed: .* open for longer than its timeout.*{line}"):
        transactions.commit(short, [done])
    assert not visible(options)
    whole_run(options, this, [b"0", b"1"], 2)
    assert visible(options) == Counter([b"0", b"1"])


@pytest.mark.cluster
def test_a_timeout_that_nodes_refuse_names_the_option(options: WriteOptions) -> None:
    long = dataclasses.replace(options, transaction_timeout_ms=3_600_001)
    line = r"option transactionTimeout is more than the nodes accept \(transaction_max_timeout_ms\): .* 1 to 3600000"
    with pytest.raises(DeliveryError, match=line):
        write(long, work(), transactions.new_run(), batch(b"1"))


@pytest.mark.cluster
def test_a_job_of_which_no_task_is_done_holds_nobody_up(options: WriteOptions) -> None:
    this = work()
    of_job = dataclasses.replace(options, transaction_id=this.name, transaction_epoch=this.number)
    job = transactions.TransactionalWriter(of_job)
    write(options, this, job._run, batch(b"1"))
    job.abort([None])
    with Producer(bootstrap_servers=options.bootstrap_servers) as producer:
        for partition in range(3):
            producer.send(options.topic or "", b"after", partition=partition)
    assert visible(options) == Counter({b"after": 3})
    transactions.commit(options, [write(options, this, transactions.new_run(), batch(b"2"))])
    ahead = this._replace(number=this.number + 2)
    of_ahead = write(options, ahead, transactions.new_run(), batch(b"3"))
    # A job with a lower number that starts later is refused, and aborts nothing.
    behind = transactions.TransactionalWriter(dataclasses.replace(of_job, transaction_epoch=this.number + 1))
    behind.abort([None])
    transactions.commit(options, [of_ahead])
    assert visible(options) == Counter({b"after": 3, b"2": 1, b"3": 1})


@pytest.mark.cluster
def test_a_commit_without_an_answer_is_said_to_be_uncertain(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = work()
    done = write(options, this, transactions.new_run(), batch(b"1"))

    def lose_answer(*given: Any, commit: bool) -> None:
        end_transaction(*given, commit=commit)
        raise RequestTimedOutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "end_transaction", lose_answer)
        with pytest.raises(DeliveryError, match="may be committed or not, which its next run will find out: no answer"):
            transactions.commit(options, [done])
    transactions.abort(options, [done])
    whole_run(options, this, [b"again"], 1)
    assert visible(options) == Counter([b"1"])


@pytest.mark.cluster
@pytest.mark.parametrize("tasks", [1, 2, 9])
@pytest.mark.parametrize("begun", [{0, 3, 4, 5}, {5}, set(range(6))])
def test_a_run_may_have_other_tasks_than_one_that_was_lost(options: WriteOptions, begun: set[int], tasks: int) -> None:
    this, lost, values = work(), transactions.new_run(), [b"%d" % (number // 2) for number in range(60)]
    for task in begun:
        write(options, this, lost, batch(*values[task::6]), task=task)
    for _ in range(2):
        whole_run(options, this, values, tasks)
        assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_a_run_that_fails_while_spark_makes_its_rows_leaves_nothing(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)
    this, values = work(), numbered(300)

    def breaking_off() -> Iterator[pa.RecordBatch]:
        yield batch(*values[:100])
        deadline = time.monotonic() + LIMIT_S
        while visible(options, "read_uncommitted").total() < 100:
            assert time.monotonic() < deadline, "the first rows are not written before the next ones come"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transactions.write_in_transaction(options, this, transactions.new_run(), 0, breaking_off())
    assert not visible(options)
    for _ in range(2):
        whole_run(options, this, values[::-1], 2)
        assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_a_task_that_was_given_up_adds_nothing_while_and_after_a_later_run_writes(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)
    this, values = work(), numbered(60)

    def given_up() -> Iterator[pa.RecordBatch]:
        yield batch(*values[:5])
        deadline = time.monotonic() + LIMIT_S
        while visible(options, "read_uncommitted").total() < 5:
            assert time.monotonic() < deadline, "the first rows are not written before the next ones come"
        whole_run(options, this, values, 2)
        yield batch(*values[5:])

    with pytest.raises(QuorumlogError):
        transactions.write_in_transaction(options, this, transactions.new_run(), 5, given_up())
    assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_of_runs_at_the_same_time_one_is_committed(options: WriteOptions) -> None:
    """As with copies of a checkpoint: the others fail, or learn that the work is committed."""
    this, values, ready = work(), numbered(200), threading.Barrier(3)

    def run(seed: int) -> bool:
        mine = random.Random(seed).sample(values, len(values))
        ready.wait(LIMIT_S)
        try:
            whole_run(options, this, mine, seed + 1)
        except QuorumlogError:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(run, range(3)))
    assert any(outcomes)
    assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_nothing_is_added_to_what_is_committed(options: WriteOptions) -> None:
    """Whatever the rows are, and also if retention has removed those that were written."""
    this = work()
    whole_run(options, this, [b"0", b"1"], 2)
    whole_run(options, this, [b"0", b"more", b"rows"], 1)
    assert visible(options) == Counter([b"0", b"1"])
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(options.topic or "", number): -1 for number in range(3)})
    whole_run(options, this, [b"0", b"1"], 3)
    assert not visible(options)


@pytest.mark.cluster
def test_a_former_instance_of_a_query_is_fenced(options: WriteOptions) -> None:
    this = work()
    open_still = write(options, this, transactions.new_run(), batch(b"new"))
    before = this._replace(number=this.number - 1)
    with pytest.raises(QuorumlogError, match="another instance has taken over"):
        write(options, before, transactions.new_run(), batch(b"old"))
    transactions.commit(options, [open_still])
    assert visible(options) == Counter([b"new"])


@pytest.mark.parametrize(
    "writer", [transactions.TransactionalStreamWriter, transactions.TransactionalWriter], ids=["stream", "job"]
)
def test_all_tasks_of_a_run_know_that_it_is_one_and_another_run_is_another(
    writer: type[transactions.TransactionalStreamWriter | transactions.TransactionalWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark makes one writer for each run, and pickles it for its tasks."""
    given: list[tuple[Work, int, int]] = []

    def written(options: object, this: Work, run: int, task: int, batches: object) -> None:
        given.append((this, run, task))

    monkeypatch.setattr(transactions, "write_in_transaction", written)
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "3"}
    task = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 4)
    monkeypatch.setattr(transactions, "TaskContext", SimpleNamespace(get=lambda: task))
    for made in (writer(WriteOptions("nowhere:1", "t", "job", "none", 3)) for _ in range(2)):
        for _ in range(3):
            pickle.loads(pickle.dumps(made)).write(iter(()))
    expected = "spark-q" if writer is transactions.TransactionalStreamWriter else "job"
    assert {(this, task) for this, _, task in given} == {(Work(expected, 3), 4)}
    runs = [run for _, run, _ in given]
    assert runs[:3] == [runs[0]] * 3 and runs[3:] == [runs[3]] * 3 and runs[0] < runs[3]


def test_numbers_of_runs_are_even_and_rise() -> None:
    """The number after that of a run means that the run is over."""
    runs = [transactions.new_run() for _ in range(1_000)]
    assert all(run % 2 == 0 for run in runs)
    time.sleep(0.001)
    assert transactions.new_run() > max(runs)


# -- work of an earlier version ---------------------------------------------------------------------------------------


#: What version 0.2 stored when it started a piece of work.
STARTED_BY_0_2 = json.dumps({"n": "5a0c", "t": 1_700_000_000_000}).encode()


def begun_before_transactions(options: WriteOptions, this: Work, *, complete: bool) -> None:
    """Stores what a version without transactions has stored of a piece of work."""
    nodes = nodes_at(options.bootstrap_servers)
    begun_work._claim(nodes, f"{this.name}-begun", this.number, STARTED_BY_0_2)
    if complete:
        begun_work._claim(nodes, f"{this.name}-all", this.number, json.dumps({"tasks": 2, "records": 4}).encode())


@pytest.mark.cluster
def test_what_an_earlier_version_has_written_is_not_written_again(options: WriteOptions) -> None:
    this = work()
    begun_before_transactions(options, this, complete=True)
    whole_run(options, this, [b"written before"], 2)
    assert not visible(options)
    whole_run(options, this._replace(number=this.number + 1), [b"next"], 2)
    assert visible(options) == Counter([b"next"])


@pytest.mark.cluster
def test_what_an_earlier_version_has_not_completed_is_told(options: WriteOptions) -> None:
    this = work()
    begun_before_transactions(options, this._replace(number=this.number - 1), complete=True)
    begun_before_transactions(options, this, complete=False)
    with pytest.raises(DeliveryError, match="run it with that version until it is done, then continue with this one"):
        write(options, this, transactions.new_run(), batch(b"perhaps there"))
    begun_before_transactions(options, this, complete=True)
    assert write(options, this, transactions.new_run(), batch(b"there")).token is None
    assert not visible(options)


@pytest.mark.cluster
def test_work_that_may_have_been_committed_and_forgotten_is_not_written(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = work()
    monkeypatch.setattr(transactions, "_FORGOTTEN_MS", -1)
    first = write(options, this, transactions.new_run(), batch(b"1"))
    with pytest.raises(DeliveryError, match="was started more than 360 days ago, and the cluster has forgotten"):
        write(options, this, transactions.new_run(), batch(b"1"))
    with pytest.raises(DeliveryError, match="is not committed"):
        transactions.commit(options, [first])
    following = this._replace(number=this.number + 1)
    transactions.commit(options, [write(options, following, transactions.new_run(), batch(b"2"))])
    assert visible(options) == Counter([b"2"])


@pytest.mark.cluster
def test_work_that_version_0_1_has_started_is_recognized_by_its_tasks(options: WriteOptions) -> None:
    """It stored no start of the work as a whole."""
    nodes, this = nodes_at(options.bootstrap_servers), work()
    for task in (3, 11):
        begun_work._claim(nodes, f"{this.name}-{task}", this.number, b'{"n":"5a0c","t":1700000000000,"h":1,"p":[3]}')
    run = transactions.new_run()
    for task in range(2):
        with pytest.raises(DeliveryError, match=r"was started by quorumlog 0\.2 or earlier"):
            write(options, this, run, batch(b"perhaps there"), task=task)
    begun_work._claim(nodes, f"{this.name}-all", this.number, json.dumps({"tasks": 12, "records": 4}).encode())
    whole_run(options, this, [b"0", b"1"], 2)
    assert not visible(options)
    following = this._replace(number=this.number + 1)
    whole_run(options, following, [b"2", b"3"], 2)
    assert visible(options) == Counter([b"2", b"3"])


@pytest.mark.cluster
def test_version_0_2_fails_on_work_that_is_written_in_a_transaction(options: WriteOptions) -> None:
    """It would find no rows under its names, and write all of them again."""
    nodes, this = nodes_at(options.bootstrap_servers), work()
    whole_run(options, this, [b"0", b"1"], 2)
    kept = json.loads(begun_work._claim(nodes, f"{this.name}-begun", this.number, STARTED_BY_0_2))
    assert not {"n", "t"} & kept.keys(), "version 0.2 reads these fields"


def test_a_cluster_without_transactions_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored, so that an earlier version can do the work."""
    asked: list[bool] = []

    def answer(self: Nodes, request: pb.MetadataRequest) -> pb.MetadataResponse:
        asked.append(request.linearizable)
        return pb.MetadataResponse(feature_level=2)

    monkeypatch.setattr(Nodes, "_first_answer", answer)
    line = (
        "exactly-once writes are transactions, which need feature level 3, and the cluster is at 2: upgrade all nodes,"
        " then the features. Until then, write with quorumlog 0.2, or at least once: a stream with option"
        " transactional=false, a job without transactionId"
    )
    nowhere = WriteOptions("127.0.0.1:1", "t", None, "none")
    with pytest.raises(DeliveryError) as refused:
        write(nowhere, work(), transactions.new_run(), batch(b"1"))
    assert refused.value.message == line
    assert asked == [False, True], "a node that lags behind has an older level than the controller"
    transactions.abandon(nowhere, work(), transactions.new_run())


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_topic_that_is_created_anew_gets_all_rows(options: WriteOptions) -> None:
    this, values = work(), numbered(100)
    write(options, this, transactions.new_run(), batch(*values))
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.delete_topics([options.topic or ""])
        with pytest.raises(DeliveryError, match="does not exist: create it first"):
            write(options, this, transactions.new_run(), batch(*values))
        admin.create_topics([NewTopic(options.topic or "", 2, 1)])
    for _ in range(2):
        whole_run(options, this, values[::-1], 3)
        assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_who_adds_the_partition_that_was_missing_may_go_on(options: WriteOptions) -> None:
    this = work()
    far = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "partition": pa.array([0, 4], pa.int32())})
    with pytest.raises(DeliveryError, match=r"a row names partition 4 of topic .*, which has 3 \(0 to 2\)"):
        write(options, this, transactions.new_run(), far)
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_partitions({options.topic or "": NewPartitions(5)})
    for _ in range(2):
        transactions.commit(options, [write(options, this, transactions.new_run(), far)])
        assert visible(options) == Counter([b"1", b"2"])


@pytest.mark.cluster
def test_topics_of_rows_may_differ_from_batch_to_batch(options: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)
    other = f"{options.topic}-other"
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(other, 2, 1)])
    by_column = dataclasses.replace(options, topic=None)
    rows = [
        pa.RecordBatch.from_pydict({"topic": [topic] * 3, "value": [b"1", b"2", b"3"]})
        for topic in (options.topic, other, options.topic)
    ]
    this = work()
    for _ in range(2):
        transactions.commit(by_column, [write(by_column, this, transactions.new_run(), *rows)])
    assert visible(options) == Counter({b"1": 2, b"2": 2, b"3": 2})
    assert visible(dataclasses.replace(options, topic=other)) == Counter([b"1", b"2", b"3"])


@pytest.mark.cluster
def test_a_task_without_rows_writes_nothing(options: WriteOptions) -> None:
    assert write(options, work(), transactions.new_run()).writer is None
    assert sink.write_through(options, 0, []).records == 0
    assert visible(options) == Counter()


@pytest.mark.cluster
def test_a_write_without_a_name_is_passed_through(options: WriteOptions) -> None:
    for _ in range(2):
        assert sink.write_through(options, 0, [batch(b"a"), batch(b"b")]).records == 2
    assert visible(options) == Counter({b"a": 2, b"b": 2})


@pytest.mark.cluster
def test_rows_without_a_timestamp_have_that_of_the_first_run(
    options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    this, times = work(), list[int]()
    send_rows = sink.send_rows

    def noted(*given: object) -> int:
        times.append(given[-1])  # type: ignore[arg-type]
        return send_rows(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(sink, "send_rows", noted)
    for _ in range(2):
        run = transactions.new_run()
        for task in range(2):
            write(options, this, run, batch(b"1"), task=task)
    assert len(times) == 4 and len(set(times)) == 1


@pytest.mark.cluster
def test_a_row_may_be_as_large_as_its_topic_takes(options: WriteOptions) -> None:
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.alter_configs({options.topic or "": {"max.message.bytes": 4 << 20}})
    values = [random.Random(1).randbytes(3 << 20), b"small"]
    whole_run(options, work(), values, 1)
    assert visible(options) == Counter(values)


@pytest.mark.cluster
def test_batches_are_cut_to_what_the_topic_takes(options: WriteOptions) -> None:
    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        admin.alter_configs({options.topic or "": {"max.message.bytes": 10_000}})
    values = [random.Random(number).randbytes(700) for number in range(300)]
    whole_run(options, work(), values, 1)
    assert sink.write_through(options, 0, [batch(*values)]).records == 300
    assert visible(options) == Counter(values * 2)


@pytest.mark.cluster
def test_what_cannot_be_delivered_names_the_topic_and_the_reason(options: WriteOptions) -> None:
    where = rf"topic {options.topic} partition \d cannot be written to:"
    for size in (2 << 20, 9 << 20):
        large = batch(random.Random(1).randbytes(size))
        line = rf"{where} a row of {size // 1_000}\d\d\d bytes is larger than the topic takes: raise its max.message.by"
        with pytest.raises(DeliveryError, match=line):
            write(options, work(), transactions.new_run(), large)
        with pytest.raises(DeliveryError, match=line):
            sink.write_through(options, 0, [large])
    elsewhere = WriteOptions(options.bootstrap_servers, "nowhere", None, "none")
    with pytest.raises(DeliveryError, match="topic 'nowhere' does not exist"):
        sink.write_through(elsewhere, 0, [batch(b"a")])
