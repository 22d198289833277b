"""Server processes of a peer: started with free loopback ports and a directory, ended with all that they have left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from quorumlog.local import cleanup_process as janitor

#: Three JVMs that start at once on two cores.
READY_S = 180.0
_POLL_S = 0.05
_END_S = 20.0


class PeerError(Exception):
    """A peer does not do what it is needed for; the message says which and what it said last."""


class ServerProcesses:
    """Processes that run while the context lasts, and a directory that goes with them.

    If this process is killed, a janitor ends them and removes the directory.

    Arguments:
        work_dir: the directory is made in it.
        peer: for messages.
    """

    def __init__(self, work_dir: Path, peer: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="peer-", dir=work_dir)).absolute()
        self._peer = peer
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", janitor.__file__, str(os.getpid()), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_END_S)
        self._tell_janitor("done")
        assert self._janitor.stdin is not None
        self._janitor.stdin.close()
        self._janitor.wait(_END_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Starts a process whose output goes to a file.

        Arguments:
            env: on top of this process's.
        """
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.directory,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C at the terminal is for the program that started them.
                start_new_session=True,
            )
        self._processes[name] = process
        self._tell_janitor(f"{process.pid} {janitor.start_time(process.pid)}")

    def pid(self, name: str) -> int:
        """The process id of one of them."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL; the process is gone when this returns."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(_END_S)

    def finish(self, name: str) -> None:
        """Waits for the end of a command that ought to come to one.

        Raises:
            PeerError: it failed.
        """
        if self._processes.pop(name).wait(READY_S):
            raise PeerError(f"{self._peer}: {name} failed: {self.last_words(name)}")

    def wait_until(self, what: str, reached: Callable[[], bool]) -> None:
        """Waits for a condition.

        Raises:
            PeerError: it did not come about in time, or one of the processes has ended.
        """
        deadline = time.monotonic() + READY_S
        while not reached():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise PeerError(f"{self._peer}: {name} has ended: {self.last_words(name)}")
            if time.monotonic() > deadline:
                first = next(iter(self._processes))
                raise PeerError(f"{self._peer}: no {what} within {READY_S:.0f} s; {first}: {self.last_words(first)}")
            time.sleep(_POLL_S)

    def wait_for_ports(self, ports: Sequence[int]) -> None:
        """Waits until each is listened on."""
        for port in ports:
            self.wait_until(f"server on port {port}", partial(_listens, port))

    def last_words(self, name: str) -> str:
        """The last line that a process has written, without the lines of a trace of calls, which are indented."""
        lines = self._log(name).read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip() and not line[0].isspace()), "nothing")

    def says(self, name: str, text: str) -> bool:
        """True if a process has written a text."""
        return text in self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _tell_janitor(self, line: str) -> None:
        assert self._janitor.stdin is not None
        self._janitor.stdin.write(f"{line}\n".encode())
        self._janitor.stdin.flush()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
