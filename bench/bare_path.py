"""The bare path as a whole: three nodes in processes of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).resolve().parent.parent


class BarePathError(Exception):
    """Raised if a node of the bare path does not start."""


class BarePath:
    """A leader and two followers on free loopback ports, while the context lasts.

    Arguments:
        data_dir: each node gets a folder of its own in it.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._processes: list[subprocess.Popen[str]] = []
        self.address = ""

    @property
    def pids(self) -> list[int]:
        """Process ids of the leader, then of the followers."""
        return [process.pid for process in reversed(self._processes)]

    def __enter__(self) -> Self:
        try:
            followers = [self._start(f"follower-{number}") for number in (1, 2)]
            self.address = self._start("leader", followers=",".join(followers))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def _start(self, name: str, followers: str = "") -> str:
        port = _free_port()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.bare_node", "--port", str(port)),
                *("--data-dir", str(self._data_dir / name), "--followers", followers),
            ],
            cwd=_ROOT,
            # Its end notifies the node that the parent process has exited, for whatever reason.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BarePathError(f"the bare path's {name} did not start; see its own message above")
        return f"127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
