"""Jobs beside the node's steps: in order, one at a time, each reported once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

from quorumlog.server.process.job_thread import JobThread
from quorumlog.server.step.events import Job, JobDone


def test_jobs_are_done_in_their_order_and_what_they_raise_is_told() -> None:
    done: Queue[JobDone] = Queue()
    thread = JobThread(done.put)
    works: list[Callable[[], object]] = [lambda: "first", lambda: 1 // 0, lambda: "third"]
    for number, work in enumerate(works):
        thread.submit(Job(number, work))
    reported = [done.get(timeout=30) for _ in works]
    assert [(each.number, each.result) for each in reported] == [(0, "first"), (1, None), (2, "third")]
    assert [type(each.error) for each in reported] == [type(None), ZeroDivisionError, type(None)]
    thread.stop()


def test_a_node_without_jobs_has_no_thread_and_may_stop() -> None:
    before = set(threading.enumerate())
    thread = JobThread(lambda done: None)
    begun = set(threading.enumerate()) - before
    assert not [each for each in begun if each.name == "quorumlog-jobs"]
    thread.stop()


def test_the_job_under_way_is_waited_for_and_the_others_are_dropped() -> None:
    """A stop waits for the job under way, and drops the others: jobs read the storage, which is closed next."""
    begun, may_end, done = threading.Event(), threading.Event(), list[int]()
    thread = JobThread(lambda each: done.append(each.number))

    def slow() -> None:
        begun.set()
        assert may_end.wait(30)

    thread.submit(Job(1, slow))
    for number in (2, 3):
        thread.submit(Job(number, lambda: None))
    assert begun.wait(30)
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    stopping.join(0.05)
    assert stopping.is_alive()
    may_end.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert done == [1]
