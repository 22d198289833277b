"""Thread for work that would delay the node's steps: one job at a time, each short, none periodic.

It starts with the first job, so a node that never has one does not have the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from quorumlog.server.step.events import Job, JobDone


class JobThread:
    """Executes jobs in order.

    Arguments:
        done: called on the thread, once for each job; must not block, and must not raise.
    """

    def __init__(self, done: Callable[[JobDone], None]) -> None:
        self._done = done
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Queues a job. Never blocks."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quorumlog-jobs", daemon=True)
            self._thread.start()
        self._queue.put(job)

    def stop(self) -> None:
        """Waits for the current job, drops the others and stops the thread, after which storage can be closed."""
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None and not self._stopped:
            self._done(carry_out(job))


def carry_out(job: Job) -> JobDone:
    """Executes a job. Its exception is returned for the node to handle."""
    try:
        return JobDone(job.number, job.work(), None)
    except Exception as error:
        return JobDone(job.number, None, error)
