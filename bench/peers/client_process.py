"""Clients in processes of their own: ours with this Python, those of peers with that of ``build/peers/venv``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figures
from bench.peers.artifacts import HOME
from bench.peers.clients.target import Target
from bench.peers.server_processes import PeerError

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = HOME / "venv" / "bin" / "python"
_OURS = "ours"
TIMEOUT_S = 300.0
#: As the registry of Python's packages names them.
CLIENT_PACKAGES = ("confluent-kafka", "kafka-python", "nats-py", "rstream")


@functools.cache
def client_versions() -> dict[str, str]:
    """The packages in the environment of the clients, by name; empty without one."""
    if not _PYTHON.exists():
        return {}
    program = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    output = subprocess.run([_PYTHON, "-c", program], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = json.loads(output)
    return found


def missing_clients(*packages: str) -> str:
    """Returns what to install, as a line; empty if all are installed."""
    absent = [package for package in packages if package not in client_versions()]
    return f"{', '.join(absent)} for Python (make bench-peers installs them into {HOME / 'venv'})" if absent else ""


def _command(client: str, call: str, target: Target, arguments: dict[str, object]) -> list[str]:
    python = sys.executable if client == _OURS else str(_PYTHON)
    call_arguments = {"client": client, "call": call, "target": dataclasses.asdict(target), **arguments}
    return [python, "-m", "bench.peers.clients", json.dumps(call_arguments)]


def run_client(client: str, call: str, target: Target, **arguments: object) -> Any:
    """Makes one call and waits for its result.

    Raises:
        PeerError: it failed, or did not end.
    """
    command = _command(client, call, target, arguments)
    try:
        ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{client}: {call} did not end within {TIMEOUT_S:.0f} s") from None
    return _result(client, call, ended.returncode, ended.stdout, ended.stderr)


def run_load(client: str, call: str, target: Target, size: int, count: int) -> Figures:
    """Makes a call that measures."""
    return Figures(**run_client(client, call, target, size=size, count=count))


class SteadyClient:
    """A client that sends a record every few milliseconds, until a killed server has been got over."""

    def __init__(self, client: str, process: subprocess.Popen[str]) -> None:
        self._client = client
        self._process = process

    def wait_until_settled(self) -> None:
        """Returns once acknowledgements come.

        Raises:
            PeerError: the client has failed.
        """
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.result()

    def told_of_the_kill(self) -> None:
        """Notifies the client; it ends once it has been acknowledged again for a while."""
        assert self._process.stdin is not None
        self._process.stdin.write("killed\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """Returns what the client reported at its end.

        Raises:
            PeerError: it failed, or did not end.
        """
        try:
            output, errors = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{self._client}: the steady load did not end within {TIMEOUT_S:.0f} s") from None
        return _result(self._client, "steady", self._process.returncode, output, errors)


@contextlib.contextmanager
def steady_client(client: str, target: Target, size: int) -> Iterator[SteadyClient]:
    """Runs one while the context lasts."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(_command(client, "steady", target, {"size": size}), cwd=_ROOT, text=True, **pipes)
    try:
        yield SteadyClient(client, process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _result(client: str, call: str, status: int, output: str, errors: str) -> Any:
    if status:
        said = errors.strip().splitlines() or ["nothing"]
        raise PeerError(f"{client}: {call} failed: {said[-1]}")
    return json.loads(output.splitlines()[-1])
