"""A task that was given up still runs while its work is done again with fewer tasks. Log and names are in memory."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.spark import sink
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import Nodes
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.v1 import metadata_log_pb2
from tests.support.sink_world import SinkWorld

OPTIONS = WriteOptions("nowhere:1", "t", None, "none")
VALUES = [b"%d" % number for number in range(12)]
NODES = cast(Nodes, None)
#: No one waits longer for the other side of a test.
LIMIT_S = 30


def in_memory(monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
    """A cluster that gets each of a task's batches when it comes, and where no time passes."""
    monkeypatch.setattr(sink, "time", SimpleNamespace(sleep=lambda delay_s: None, time_ns=time.time_ns))
    monkeypatch.setattr(sink, "_PORTION_BYTES", 1)
    return SinkWorld(monkeypatch)


def batches(values: list[bytes]) -> Iterator[pa.RecordBatch]:
    """In two: a task may stop between them."""
    for half in (values[: len(values) // 2], values[len(values) // 2 :]):
        yield pa.RecordBatch.from_pydict({"value": pa.array(half, pa.binary())})


def write(run: str, task: int, values: list[bytes]) -> sink.Written:
    """Writes values as a task, and returns the task's result as the driver receives it."""
    written = sink.write_once(OPTIONS, runs.Name("q", 7, task), batches(values), run)
    arrived: sink.Written = pickle.loads(pickle.dumps(written))
    return arrived


def whole_run(run: str, tasks: int, values: list[bytes] = VALUES) -> None:
    sink.end(OPTIONS, [write(run, task, values[task::tasks]) for task in range(tasks)])


class Zombie:
    """A task that was given up: it stops before each of its calls to the cluster until it is let continue."""

    def __init__(self, world: SinkWorld, task: int, values: list[bytes]) -> None:
        #: Called before each call of another client.
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._is_free = self._has_ended = False
        self.otherwise: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, args=(task, values), daemon=True)
        world.before_call = self._before_call
        self._thread.start()
        assert self._stopped.acquire(timeout=LIMIT_S)

    def _run(self, task: int, values: list[bytes]) -> None:
        try:
            write("first", task, values)
        except QuorumlogError:
            pass  # It was refused, which is what it is for.
        finally:
            self._has_ended = True
            self._stopped.release()

    def _before_call(self) -> None:
        if threading.current_thread() is not self._thread:
            self.otherwise()
        elif not self._is_free:
            self._stopped.release()
            assert self._go.acquire(timeout=LIMIT_S)

    def step(self) -> bool:
        """Lets it make one call; returns whether there is another one to come."""
        self._go.release()
        assert self._stopped.acquire(timeout=LIMIT_S)
        return not self._has_ended

    @property
    def is_alive(self) -> bool:
        """True if the task has not ended."""
        return not self._has_ended

    def finish(self) -> None:
        """Lets it come to its end."""
        self._is_free = True
        self._go.release()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def finish_at(self, call: int) -> None:
        """Lets it come to its end before a call of another client, counted from 0."""
        calls = iter(range(call + 1))

        def count() -> None:
            if next(calls, None) == call:
                self.finish()

        self.otherwise = count


EQUAL = [b"click", b"view", b"click"] * 4


@pytest.mark.parametrize(
    ("tasks", "number", "begun", "values"),
    [
        (1, 3, {0}, VALUES),
        (1, 3, {0}, EQUAL),
        (2, 3, set(), VALUES),
        (2, 2, {0, 3}, VALUES),
        (1, 0, {3}, EQUAL),
        (2, 1, {0, 2, 3}, VALUES),
    ],
)
def test_whenever_it_goes_on_rows_are_in_the_log_once_or_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, tasks: int, number: int, begun: set[int], values: list[bytes]
) -> None:
    """It stops after each number of its calls, and continues before each call of the next run, or after all.

    Where a run fails that has added nothing more, the next one comes to the end.
    """
    outcomes: Counter[str] = Counter()
    done, is_at_work = 0, True
    while is_at_work:
        call, is_within = 0, True
        while is_within:
            with monkeypatch.context() as patched:
                world = in_memory(patched)
                for task in begun:
                    write("first", task, values[task::4])
                zombie = Zombie(world, number, values[number::4])
                is_at_work = all(zombie.step() for _ in range(done))
                zombie.finish_at(call)
                outcome = outcome_of("second", tasks, values)
                is_within = is_at_work and not zombie.is_alive
                zombie.finish()
                if outcome == "overtaken":
                    assert outcome_of("third", tasks, values) == "once"
                outcomes[outcome] += 1
                where = f"{outcome}, where it stops after {done} calls, and continues before call {call} of the run"
                assert outcome == "told" or world.values() == Counter(values), where
            call += 1
        done += 1
    assert done == 7
    # While the tasks of the run are at work nothing can stop the one that was given up. Later it adds nothing.
    assert outcomes["told"] < outcomes["once"]


def outcome_of(run: str, tasks: int, values: list[bytes]) -> str:
    try:
        whole_run(run, tasks, values)
    except DeliveryError as error:
        if "This run has added nothing more there. Start it again when only one is left" in str(error):
            return "overtaken"
        if "they may be in the log twice now" in str(error):
            return "told"
        raise
    return "once"


def test_what_it_adds_while_the_run_ends_is_taken_into_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its name is taken away, and behind what was read: the row is one that the run has set aside."""
    world = in_memory(monkeypatch)
    write("first", 1, [b"click"])
    zombie = Zombie(world, 2, [b"click"])
    while not any(each.name == "q-2" for each in world.names.records()):
        zombie.step()
    written = [write("second", task, [b"click"] * 2) for task in range(1)]
    zombie.finish()
    assert world.values() == Counter({b"click": 2})
    sink.end(OPTIONS, [*written])
    assert world.values() == Counter({b"click": 2})


def test_what_a_leader_had_taken_when_its_name_went_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No one sees it before it is committed. By then the run has written the row, too, and says so."""
    world = in_memory(monkeypatch)
    write("first", 3, [b"click"])
    (log,) = [log for log in world.logs.values() if log]
    (taken,) = log
    log.clear()
    written = [write("second", 0, [b"click"])]

    def commit(delay_s: float) -> None:
        if taken not in log:
            log.append(taken._replace(offset=sum(rows.columns.num_rows for rows in log)))

    monkeypatch.setattr(sink.time, "sleep", commit)
    with pytest.raises(DeliveryError, match="1 records that the others of them wrote are not those that this run has"):
        sink.end(OPTIONS, written)


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_a_run_that_breaks_off_anywhere_at_its_end_is_finished_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """A run that stops at any call while it ends is completed by the next run, without loss or duplicates.

    The records of tasks whose names were deleted are found again, even if the next run has tasks of these names.
    """
    call, is_broken = 0, True
    while is_broken:
        with monkeypatch.context() as patched:
            world = in_memory(patched)
            for task in range(4):
                write("first", task, EQUAL[task::4])
            zombie = Zombie(world, 3, EQUAL[3::4])
            zombie.step()
            written = [write("second", task, EQUAL[task::2]) for task in range(2)]
            zombie.otherwise = broken_off_at(call)
            try:
                sink.end(OPTIONS, written)
                is_broken = False
            except ZeroDivisionError:
                zombie.otherwise = lambda: None
                is_complete = runs.end_of(NODES, "q", 7).is_complete
                other = pytest.raises(DeliveryError, match="one that was complete before had 12 records in 2 tasks")
                with other if is_complete and tasks != 2 else contextlib.nullcontext():
                    whole_run("third", tasks, EQUAL)
            zombie.finish()
            assert world.values() == Counter(EQUAL), f"broken off at call {call}"
        call += 1
    assert call > 8


def broken_off_at(call: int) -> Callable[[], None]:
    calls = iter(range(call + 1))

    def break_off() -> None:
        if next(calls, None) == call:
            raise ZeroDivisionError

    return break_off


def test_nothing_stays_of_names_that_were_taken_away_when_all_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    world = in_memory(monkeypatch)
    for task in range(4):
        write("first", task, VALUES[task::4])
    for _ in range(2):
        whole_run("second", 2)
        names = [each.name for each in world.names.records()]
        assert [name for name in names if name not in ("q-0", "q-1")] == ["q-all", "q-begun", "q-closed"]


def test_a_task_that_adds_to_what_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = in_memory(monkeypatch)
    whole_run("first", 2)
    world.names.delete(1, metadata_log_pb2.DeleteProducers(names=["q-all"]))
    runs.close(NODES, "q", 7)
    with pytest.raises(DeliveryError, match="another run of this batch are done, and 1 records of q-2 are not"):
        write("first", 2, [b"other"])
    assert world.values() == Counter(VALUES)


@pytest.mark.parametrize("done", range(6))
def test_one_whose_number_the_run_has_adds_nothing_where_rows_of_its_name_were_left_out(
    monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """A lost task has written a row that two tasks of the run have, and one of them would put it into the same place.

    That one is left out, so that its name is free for a client that is about to send it.
    """
    world = in_memory(monkeypatch)
    write("first", 2, [b"click"])
    zombie = Zombie(world, 0, [b"click"])
    for _ in range(done):
        zombie.step()
    before = world.values()
    sink.end(OPTIONS, [write("second", task, [b"click"]) for task in range(2)])
    zombie.finish()
    assert world.values() == Counter({b"click": 2})
    assert before.total() < 2 or done == 5


def test_what_it_adds_there_while_the_run_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = in_memory(monkeypatch)
    write("first", 2, [b"click"])
    zombie = Zombie(world, 0, [b"click"])
    for _ in range(4):
        zombie.step()
    hear, heard = world.hear, []

    def late(topics: Iterable[str]) -> None:
        heard.append(topics)
        if len(heard) == 2:
            zombie.finish()
        hear(topics)

    monkeypatch.setattr(world, "hear", late)
    written = [write("second", task, [b"click"]) for task in range(2)]
    with pytest.raises(DeliveryError, match="a task that was given up has written rows since this run's tasks were"):
        sink.end(OPTIONS, written)
    assert world.values() == Counter({b"click": 3})


def test_what_retention_has_taken_of_a_name_that_was_taken_away_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batches of a deleted name are not recognised as duplicates."""
    world = in_memory(monkeypatch)
    write("first", 0, [b"gone", b"there"])
    (claim,) = runs.claims_of(NODES, "q", 7)
    runs.close(NODES, "q", 7)
    runs.take_names(NODES, "q", 7, [claim])
    (log,) = [log for log in world.logs.values() if log]
    log[:] = [log[1]._replace(offset=0)]
    with pytest.raises(DeliveryError, match="cannot be read back as a whole"):
        write("second", 0, [b"gone", b"there"])
    assert world.values() == Counter([b"there"])
