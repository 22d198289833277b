"""The thread for work that would hold up the node's steps: one job at a time, each short, none by the clock.

It starts with the first job, so a node that never has one never has the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from quorumlog.server.step.events import Job, JobDone


class JobThread:
    """Carries out jobs in their order.

    Arguments:
        done: called on the thread, once for each job; must not block, and must not raise.
    """

    def __init__(self, done: Callable[[JobDone], None]) -> None:
        self._done = done
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Hands over a job. Never blocks."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quorumlog-jobs", daemon=True)
            self._thread.start()
        self._queue.put(job)

    def stop(self) -> None:
        """Waits for the job under way, drops the others and ends the thread: storage can be closed then."""
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None and not self._stopped:
            self._done(carry_out(job))


def carry_out(job: Job) -> JobDone:
    """Does a job's work. What it raises is the node's to judge."""
    try:
        return JobDone(job.number, job.work(), None)
    except Exception as error:
        return JobDone(job.number, None, error)
