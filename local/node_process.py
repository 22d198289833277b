"""One node process of a local cluster: started, signalled, and identified even if its pid is reused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from quorumlog.local.cleanup_process import start_time
from quorumlog.local.node_spawner import ForkedNode, spawner_of
from quorumlog.server.config.settings import ENV_PREFIX, Settings
from quorumlog.server.config.worker_settings import PID_FILES, worker_id

POLL_S = 0.01
_ERROR_MARK = "quorumlog: error: "
#: Mark of the error of a node that logs JSON.
_JSON_ERROR_MARK = '"event": "node_failed"'


class ClusterError(Exception):
    """Raised if a local cluster could not do what was requested. The message is one line that says what to do."""


class ClusterSettingsError(ClusterError):
    """Raised if a setting of a local cluster is invalid: its name, its value, or that it is set at all."""


class NodeWaitsError(ClusterError):
    """Raised if nodes wait to rejoin, because they returned with empty data directories; all others serve."""


class NodesSlowError(ClusterError):
    """Raised if nodes run but were not ready in time. They keep running and may become ready later."""


class NodeProcess:
    """The process of one node, running or not.

    Arguments:
        node_id: of the node.
        address: host:port at which it listens.
        data_dir: of the node.
        log_path: receives its stderr and stdout.
        pid, started: of a process that is running already, from an earlier owner.
    """

    def __init__(
        self, node_id: int, address: str, data_dir: Path, log_path: Path, *, pid: int | None = None, started: str = ""
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.data_dir = data_dir
        self.log_path = log_path
        self._pid = pid
        self._started = started
        self._child: subprocess.Popen[bytes] | ForkedNode | None = None
        self._log_offset = 0
        #: Workers that were running when all of it was killed, with their start times: they use the directory.
        self._killed: list[tuple[int, str]] = []

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._pid if self.is_running() else None

    @property
    def started(self) -> str:
        """The start time by the kernel; empty while it does not run."""
        return self._started if self.is_running() else ""

    def is_running(self) -> bool:
        """True if the process exists, even if it is stopped (paused)."""
        if isinstance(self._child, ForkedNode):
            return self._child.is_running()
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and start_time(self._pid) == self._started != ""

    def spawn(self, flags: Mapping[str, str], env: Mapping[str, str], life_line: int | None) -> None:
        """Starts the process.

        Arguments:
            flags: settings by name.
            env: added to this process's environment.
            life_line: a descriptor that is closed when the owner exits; None for a node that outlives it.

        Raises:
            ClusterError: it is running already.
        """
        if self.is_running():
            raise ClusterError(f"node {self.node_id} is running already (pid {self._pid})")
        for stale in self.data_dir.glob(PID_FILES):
            stale.unlink(missing_ok=True)
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        # The owner's own settings do not apply to the nodes.
        own = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
        environment = {name: value for name, value in os.environ.items() if name not in own} | dict(env)
        with self.log_path.open("ab") as log:
            self._log_offset = log.tell()
            spawner = spawner_of(self.node_id)
            forked = None if spawner is None else spawner.fork(arguments, environment, log, life_line)
            self._child = forked or _start_program(arguments, environment, log, life_line)
        self._pid = self._child.pid
        self._started = start_time(self._pid)

    def workers(self) -> dict[int, int]:
        """Returns the process ids of the workers that run, by the id of their node; empty for a node without."""
        found = {}
        for path in self.data_dir.glob(PID_FILES) if self.is_running() else ():
            with contextlib.suppress(OSError, ValueError):  # It ends just now.
                found[worker_id(self.node_id, int(path.stem[1:]))] = int(path.read_text())
        return found

    def signal(self, number: signal.Signals, worker: int | None = None) -> None:
        """Sends a signal: to all processes of the node, or SIGTERM and the like only to the first, which stops the
        others.

        Arguments:
            worker: the id of a worker's node: only that one gets the signal.

        Raises:
            ClusterError: it does not run.
        """
        if not self.is_running():
            raise ClusterError(f"node {self.node_id} is not running")
        assert self._pid is not None
        workers = self.workers()
        if worker is not None and worker not in workers:
            raise ClusterError(f"node {worker} is not running")
        if worker is not None:
            os.kill(workers[worker], number)
            return
        if number == signal.SIGKILL:
            self._killed = [(pid, start_time(pid)) for pid in workers.values()]
        os.kill(self._pid, number)
        for pid in workers.values() if number in (signal.SIGSTOP, signal.SIGCONT) else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_worker(self, worker: int, timeout_s: float) -> None:
        """Sends SIGKILL to a worker, and waits until that process has exited.

        Raises:
            ClusterError: it does not run, or did not exit in time.
        """
        pid = self.workers().get(worker, 0)
        started = start_time(pid) if pid else ""
        self.signal(signal.SIGKILL, worker)
        deadline = time.monotonic() + timeout_s
        while started and start_time(pid) == started:
            if time.monotonic() > deadline:
                raise ClusterError(f"node {worker} (pid {pid}) did not end within {timeout_s:g} s")
            time.sleep(POLL_S)

    def _may_use_directory(self) -> bool:
        """True while it, or a worker that was killed with it, exists."""
        return self.is_running() or any(started and start_time(pid) == started for pid, started in self._killed)

    def wait(self, timeout_s: float) -> int | None:
        """Waits until it has exited; returns the exit status if known (negative: the signal that killed it).

        Raises:
            ClusterError: it did not exit in time.
        """
        deadline = time.monotonic() + timeout_s
        while self._may_use_directory():
            if time.monotonic() > deadline:
                raise ClusterError(f"node {self.node_id} (pid {self._pid}) did not end within {timeout_s:g} s")
            time.sleep(POLL_S)
        return None if self._child is None else self._child.returncode

    def last_words(self) -> str:
        """Returns why it exited: its own error message, or the last line that it logged since its latest start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_offset)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        for line in reversed(lines):
            if line.startswith(_ERROR_MARK):
                return line.removeprefix(_ERROR_MARK)
            if _JSON_ERROR_MARK in line:
                return str(json.loads(line)["message"])
        return lines[-1] if lines else "it logged nothing"


def _start_program(
    arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes], life_line: int | None
) -> subprocess.Popen[bytes]:
    inherited = () if life_line is None else (life_line,)
    return subprocess.Popen(
        [sys.executable, "-m", "quorumlog.server", *arguments, *(f"--life-line={each}" for each in inherited)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        pass_fds=inherited,
        # A Ctrl-C in the terminal is handled by the owner, which stops the nodes in order.
        start_new_session=True,
    )
