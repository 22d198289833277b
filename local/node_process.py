"""One node process of a local cluster: started, signalled, and identified even if its pid is reused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from quorumlog.local.cleanup_process import start_time
from quorumlog.server.config.settings import ENV_PREFIX, Settings

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
        self._child: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

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
        command = [sys.executable, "-m", "quorumlog.server"]
        for name, value in flags.items():
            command += [f"--{name.replace('_', '-')}={value}"]
        if life_line is not None:
            command += [f"--life-line={life_line}"]
        # The owner's own settings do not apply to the nodes.
        own = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
        environment = {name: value for name, value in os.environ.items() if name not in own} | dict(env)
        with self.log_path.open("ab") as log:
            self._log_offset = log.tell()
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=() if life_line is None else (life_line,),
                # A Ctrl-C in the terminal is handled by the owner, which stops the nodes in order.
                start_new_session=True,
            )
        self._pid = self._child.pid
        self._started = start_time(self._pid)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal.

        Raises:
            ClusterError: it does not run.
        """
        if not self.is_running():
            raise ClusterError(f"node {self.node_id} is not running")
        assert self._pid is not None
        os.kill(self._pid, number)

    def wait(self, timeout_s: float) -> int | None:
        """Waits until it has exited; returns the exit status if known (negative: the signal that killed it).

        Raises:
            ClusterError: it did not exit in time.
        """
        deadline = time.monotonic() + timeout_s
        while self.is_running():
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
