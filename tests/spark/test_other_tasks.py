"""A piece of work that is run again with other tasks: rows are in the log once. Log and names are in memory."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.sdk.spark import duplicate_rows as shared_rows
from quorumlog.sdk.spark import sink
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import TargetPartition
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.wire.payload import LOG_SCHEMA
from tests.support.sink_world import SinkWorld

OPTIONS = WriteOptions("nowhere:1", "t", None, "none")
VALUES = [b"%d" % number for number in range(60)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
    return SinkWorld(monkeypatch)


def name(task: int, epoch: int = 7, work: str = "q") -> runs.Name:
    return runs.Name(work, epoch, task)


def rows(values: list[bytes], **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **more})


def write(run: str, task: int, values: list[bytes]) -> sink.Written:
    """Writes values as a task, and returns the task's result as the driver receives it."""
    written = sink.write_once(OPTIONS, name(task), [rows(values)], run)
    arrived: sink.Written = pickle.loads(pickle.dumps(written))
    return arrived


def whole_run(run: str, tasks: int, values: list[bytes] = VALUES) -> None:
    sink.end(OPTIONS, [write(run, task, values[task::tasks]) for task in range(tasks)])


@pytest.mark.parametrize("begun", [{0, 3, 4, 5}, {5}, {2, 3}, set(range(6))])
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_fewer_tasks_write_each_row_once(world: SinkWorld, begun: set[int], tasks: int) -> None:
    for task in begun:
        write("first", task, VALUES[task::6])
    whole_run("second", tasks)
    assert world.values() == Counter(VALUES)


def test_a_run_is_complete_after_it_had_fewer_tasks_and_may_be_repeated(world: SinkWorld) -> None:
    write("first", 3, VALUES[3::6])
    for run in ("second", "third"):
        whole_run(run, 2)
    assert world.values() == Counter(VALUES)


def test_rows_that_are_merely_equal_are_all_written(world: SinkWorld) -> None:
    """A task cannot tell that the other one does not replace a lost one, but the end of the run shows it."""
    equal = [b"click"] * 12
    write("first", 1, equal[1::3])
    whole_run("second", 3, equal)
    assert world.values() == Counter(equal)


def test_what_was_set_aside_comes_behind_what_was_there_and_what_was_added(world: SinkWorld) -> None:
    write("first", 0, [b"there"])
    write("first", 1, [b"click"])
    sink.end(OPTIONS, [write("second", 0, [b"there", b"click", b"added"]), write("second", 1, [b"click"])])
    (log,) = [log for log in world.logs.values() if log[0].columns.column("value").to_pylist() == [b"there"]]
    assert [each.columns.column("value").to_pylist() for each in log] == [[b"there"], [b"added"], [b"click"]]
    assert world.values() == Counter([b"there", b"added", b"click", b"click"])


def test_equal_rows_of_lost_tasks_and_of_others_are_counted(world: SinkWorld) -> None:
    equal = [b"click", b"view", b"click"] * 4
    for task in (0, 2, 3):
        write("first", task, equal[task::4])
    whole_run("second", 2, equal)
    assert world.values() == Counter(equal)


def test_a_run_that_breaks_off_at_its_end_is_finished_by_the_next(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal = [b"click"] * 6 + VALUES
    for task in (4, 5):
        write("first", task, equal[task::6])
    for run in ("second", "third"):
        with monkeypatch.context() as patched:
            patched.setattr(runs, "complete", lambda *told: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                whole_run(run, 2, equal)
    whole_run("fourth", 2, equal)
    assert world.values() == Counter(equal)


def test_more_tasks_write_nothing_twice_and_the_run_fails(world: SinkWorld) -> None:
    write("first", 0, VALUES[:40])
    for task in range(1, 6):
        write("second", task, VALUES[task::6])
    with pytest.raises(DeliveryError, match="or its tasks are divided otherwise"):
        write("second", 0, VALUES[0::6])
    assert max(world.values().values()) == 1


def test_tasks_of_one_run_do_not_read_what_the_others_write(world: SinkWorld) -> None:
    whole_run("first", 6)
    assert world.read_rows == 0


def test_what_a_lost_task_wrote_beyond_the_rows_of_this_run_is_noticed(world: SinkWorld) -> None:
    write("first", 6, [b"other"])
    with pytest.raises(DeliveryError, match="an earlier run of this batch was divided into more than 2 tasks, and 1 "):
        whole_run("second", 2)


def test_lost_tasks_that_wrote_nothing_stop_nobody(world: SinkWorld) -> None:
    write("first", 5, [])
    whole_run("second", 2)
    assert world.values() == Counter(VALUES)


def test_what_retention_has_taken_of_a_lost_task_is_told(world: SinkWorld) -> None:
    write("first", 4, [b"gone"])
    world.logs["t", 1].clear()
    world.logs["t", 0].clear()
    write("first", 4, [b"gone"])
    (place,) = [place for place, log in world.logs.items() if log]
    world.logs[place] = [each._replace(sequence=1) for each in world.logs[place]]
    with pytest.raises(DeliveryError, match="cannot be read back as a whole: retention or compaction has removed"):
        whole_run("second", 2)


def test_rows_of_another_batch_are_no_lost_rows(world: SinkWorld) -> None:
    sink.end(OPTIONS, [sink.write_once(OPTIONS, name(n, 6), [rows(VALUES[n::6])], "before") for n in range(6)])
    write("first", 0, VALUES[0::2])
    whole_run("second", 2)
    assert world.values() == Counter(VALUES * 2)


def test_names_are_read_page_by_page_and_those_of_other_works_are_not_taken(world: SinkWorld) -> None:
    for work in ("q", "q-1", "q-x", "other"):
        for task in (0, 11, 2):
            runs.begin(None, name(task, 7, work), ["t"], sink.first_look(OPTIONS, world.shapes, 5))  # type: ignore[arg-type]
    runs.begin(None, name(3, 6), ["t"], sink.first_look(OPTIONS, world.shapes, 5))  # type: ignore[arg-type]
    runs.begin_work(None, name(0), "run", 5)  # type: ignore[arg-type]
    for world.page_size in (1, 2, 1_000):
        claims = runs.claims_of(None, "q", 7)  # type: ignore[arg-type]
        assert sorted(claim.task for claim in claims) == [0, 2, 11]
        assert all(json.loads(claim.note)["t"] == 5 for claim in claims)


def test_rows_without_a_timestamp_have_one_in_all_tasks_of_all_runs(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(1_000_000, 1 << 62, 1_000_000_000))
    monkeypatch.setattr(sink.time, "time_ns", lambda: next(now))
    write("first", 5, VALUES[5::6])
    whole_run("second", 2)
    times = {
        time for log in world.logs.values() for each in log for time in each.columns.column("timestamp").to_pylist()
    }
    assert len(times) == 1
    assert world.values() == Counter(VALUES)


def test_a_run_that_was_overtaken_adds_nothing_of_what_was_set_aside(world: SinkWorld) -> None:
    write("first", 1, [b"click", b"view"])
    overtaken = [write("second", task, [b"click", b"view"]) for task in range(2)]
    sink.end(OPTIONS, [write("third", task, [b"view", b"click"]) for task in range(2)])
    with pytest.raises(DeliveryError, match="another run has written under q-0 since this one's task was done"):
        sink._settle(OPTIONS, name(0), overtaken, [])
    assert world.values() == Counter({b"click": 2, b"view": 2})


def test_more_rows_than_the_driver_takes_are_one_clear_line(world: SinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "MAX_HELD_BYTES", 100)
    write("first", 5, VALUES)
    with pytest.raises(DeliveryError, match="equal rows that other tasks have written in an earlier run"):
        write("second", 0, VALUES)
    assert world.values() == Counter(VALUES)


@pytest.mark.parametrize("writer", [sink.LogStreamWriter, sink.LogWriter])
def test_all_tasks_of_a_run_know_that_it_is_one_and_another_run_is_another(
    writer: type[sink.LogStreamWriter | sink.LogWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes one writer for each run, and pickles it for its tasks."""
    given: list[str] = []

    def write_once(options: object, who: runs.Name, batches: Iterator[object], run: str) -> None:
        given.append(run)

    monkeypatch.setattr(sink, "write_once", write_once)
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "3"}
    task = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 4)
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: task))
    for made in (writer(WriteOptions("nowhere:1", "t", "job", "none")) for _ in range(2)):
        for _ in range(3):
            pickle.loads(pickle.dumps(made)).write(iter(()))
    assert [given.count(run) for run in dict.fromkeys(given)] == [3, 3]


# -- the rows alone -----------------------------------------------------------------------------------------------


def records(values: list[bytes | None], headers: list[Any] | None = None) -> pa.Table:
    columns = {"key": [None] * len(values), "value": values, "timestamp": [5] * len(values)}
    return pa.Table.from_pydict({**columns, "headers": headers or [None] * len(values)}, schema=LOG_SCHEMA)


def test_rows_are_the_same_only_if_all_that_a_record_has_is_the_same() -> None:
    place, other = TargetPartition("t", 0), TargetPartition("t", 1)
    header, another = [{"key": "h", "value": b"1"}], [{"key": "h", "value": b"2"}]
    mine = records([b"a", b"a", None, b"b"], [header, another, None, None])
    theirs = records([b"a", None, b"c"], [another, None, None]).to_batches()[0]
    own, shared = shared_rows.set_aside([(place, mine)], [(other, theirs), (TargetPartition("u", 0), theirs)])
    assert [table.column("value").to_pylist() for _, table in own] == [[b"a", b"b"]]
    assert own[0][1].column("headers").to_pylist() == [header, None]
    assert [table.column("value").to_pylist() for _, table in shared] == [[b"a", None]]


def test_lost_rows_are_taken_off_where_they_are_before_elsewhere() -> None:
    """Rows may name their partitions: then those that are left must not be the lost ones."""
    places = [TargetPartition("t", number) for number in range(3)]
    held = [(place, records([b"a"])) for place in places]
    (batch,) = records([b"a"]).to_batches()
    kept = shared_rows.without_lost(held, [(places[1], batch)], 1)
    assert [table.num_rows for _, table in kept] == [1, 0, 1]
    kept = shared_rows.without_lost(held, [(TargetPartition("t", 9), batch)], 1)
    assert sorted(table.num_rows for _, table in kept) == [0, 1, 1]


def test_a_note_says_from_where_on_another_task_may_have_written() -> None:
    shapes = {topic: TopicShape(topic.encode(), 3) for topic in "ab"}
    here = {TargetPartition("a", number): 100 + number for number in range(2)}
    note = runs.Note(5, {"a": 2}, here, {"a": sink.zlib.crc32(b"a")}, "nonce")
    everything = {TargetPartition(topic, number): 0 for topic in "ab" for number in range(3)}
    ids = [b"a", b"b", b"c"]
    assert runs.first_ends(note.to_bytes(["a"]), shapes, ids) == {**here, TargetPartition("a", 2): 0}
    elsewhere = note._replace(ids={"a": sink.zlib.crc32(b"c")}).to_bytes(["a"])
    assert runs.first_ends(elsewhere, shapes, ids) == {}
    # One of the topics that it wrote to was deleted: a later run under the same note may have written to its successor.
    assert runs.first_ends(elsewhere, shapes, ids[:2]) == everything
    assert runs.first_ends(b"", shapes, ids) == everything
    assert runs.first_ends(b"no note of ours", shapes, ids) == everything


@pytest.mark.parametrize("tasks", [1, 2])
def test_what_a_lost_task_wrote_to_a_topic_that_was_created_anew_counts(world: SinkWorld, tasks: int) -> None:
    """Its note is of the first run, which wrote to the former topic."""
    write("first", 3, VALUES[3::4])
    world.shapes["t"] = TopicShape(b"another", 2)
    for log in world.logs.values():
        log.clear()
    write("second", 3, VALUES[3::4])
    whole_run("third", tasks)
    assert world.values() == Counter(VALUES)


def test_logs_of_topics_that_a_task_did_not_write_to_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(monkeypatch, ("t", "u"))
    everywhere = dataclasses.replace(OPTIONS, topic=None)
    to_u = [rows(VALUES, topic=["u"] * len(VALUES))]
    done = sink.write_once(everywhere, name(0, work="before"), to_u, "before")
    write("first", 3, VALUES[3::4])
    read = world.read_rows
    assert sink.write_once(everywhere, name(0), to_u, "second").records == done.records
    assert world.read_rows == read
