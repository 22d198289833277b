"""Worker processes that make transfers: started, signalled, replaced, and followed by the logs that they write."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from quorumlog.chaos.checkers.transfer_checkers import Attempt
from quorumlog.chaos.processes.nemesis import ChaosError, wait_until
from quorumlog.chaos.processes.transfer_log import FENCED_STATUS, WorkerPlan, read_log

#: Name of the client that is part of the suite; anything else is a command that starts a worker.
LIBRDKAFKA = "librdkafka"
_STARTED_TIMEOUT_S = 90.0
_STOPPED_TIMEOUT_S = 120.0
_KILLED_TIMEOUT_S = 30.0


@dataclass(slots=True)
class WorkerProcess:
    """One worker process.

    Arguments:
        was_killed: by the scenario.
        may_be_fenced: another worker has its transactional id.
    """

    plan: WorkerPlan
    process: subprocess.Popen[bytes]
    was_killed: bool = False
    may_be_fenced: bool = False

    @property
    def log(self) -> Path:
        """Its log."""
        return Path(self.plan.log)

    def last_words(self) -> str:
        """Returns the last lines that it has written to its standard error, and its last note."""
        said = self.log.with_suffix(".err").read_text(errors="replace").strip().splitlines()[-3:]
        return " | ".join([*said, *read_log(self.log).notes[-1:]]) or "no output"


class WorkerProcesses:
    """All workers of a run; all are killed at the end.

    Arguments:
        client: `LIBRDKAFKA`, or a command that starts a worker; the plan is appended to it.
    """

    def __init__(self, client: str) -> None:
        self.all: list[WorkerProcess] = []
        own = [sys.executable, "-m", "quorumlog.chaos.processes.kafka_worker"]
        self._command = own if client == LIBRDKAFKA else shlex.split(client)

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.all:
            self.kill(worker)

    @property
    def running(self) -> Sequence[WorkerProcess]:
        """The workers that were not killed or replaced."""
        return [worker for worker in self.all if not worker.was_killed and not worker.may_be_fenced]

    def start(self, plan: WorkerPlan) -> WorkerProcess:
        """Starts a worker."""
        with Path(plan.log).with_suffix(".err").open("wb") as complaints:
            process = subprocess.Popen(
                [*self._command, plan.as_argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            )
        worker = WorkerProcess(plan, process)
        self.all.append(worker)
        return worker

    def fenced(self) -> Sequence[WorkerProcess]:
        """Returns workers that exited as fenced although none has replaced them: a client cannot tell another worker
        from a transaction that took longer than its timeout. They are marked as replaced.
        """
        found = [worker for worker in self.running if worker.process.poll() == FENCED_STATUS]
        for worker in found:
            worker.may_be_fenced = True
        return found

    def await_started(self, workers: Sequence[WorkerProcess]) -> None:
        """Waits until workers have initialized their producers."""

        def started() -> bool:
            self.require_alive()
            return all(read_log(worker.log).has_started for worker in workers)

        wait_until(started, _STARTED_TIMEOUT_S, "every worker has a producer")

    def kill(self, worker: WorkerProcess) -> None:
        """Sends SIGKILL, and waits until the process has exited."""
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait(_KILLED_TIMEOUT_S)
            worker.was_killed = True

    def pause(self, worker: WorkerProcess) -> None:
        """Sends SIGSTOP."""
        worker.process.send_signal(signal.SIGSTOP)

    def resume(self, worker: WorkerProcess) -> None:
        """Sends SIGCONT."""
        worker.process.send_signal(signal.SIGCONT)

    def require_alive(self) -> None:
        """Checks that no worker has exited unexpectedly.

        Raises:
            ChaosError: one has exited; the message contains its last output.
        """
        for worker in self.all:
            status = worker.process.poll()
            expected = (None, 0, FENCED_STATUS) if worker.may_be_fenced else (None, 0)
            if not worker.was_killed and status not in expected:
                raise ChaosError(f"worker {worker.plan.name} exited with status {status}: {worker.last_words()}")

    def stop_all(self) -> None:
        """Sends SIGTERM to all workers, and waits until they have exited.

        Raises:
            ChaosError: one does not exit in time, or fails.
        """
        for worker in self.all:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.send_signal(signal.SIGTERM)
        for worker in self.all:
            try:
                worker.process.wait(_STOPPED_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise ChaosError(f"worker {worker.plan.name} does not stop: some call of its client hangs") from None
        self.require_alive()

    def attempts(self) -> list[Attempt]:
        """Returns the transactions of all workers."""
        return [attempt for worker in self.all for attempt in read_log(worker.log).attempts]
