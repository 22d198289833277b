"""Notifications of a node to systemd: the reason why it waits, that it serves, and that it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.process.service_manager import LONGEST_STATUS, SOCKET_VARIABLE, ServiceManager
from tests.support.recorded_log import RecordedLog

READY = "READY=1\nSTATUS=serving clients"
#: Enough for a busy machine.
PATIENCE_S = 60.0
STOPPING = "STOPPING=1\nSTATUS=handing over its leaderships"


class Heard:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)
        self.address = address

    def next(self) -> str:
        return self._socket.recv(4096).decode()

    def is_silent(self) -> bool:
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heard]:
    manager = Heard(str(tmp_path / "notify") if request.param == "path" else f"@quorumlog-test-{os.getpid()}")
    yield manager
    manager.close()


def test_a_thing_is_told_once_and_again_after_another(heard: Heard) -> None:
    manager = ServiceManager(heard.address, RecordedLog())
    manager.tell_waiting("waits for\n nodes 2, 3")
    assert heard.next() == "STATUS=waits for nodes 2, 3"
    for _ in range(3):
        manager.tell_ready()
    assert heard.next() == READY
    assert heard.is_silent()
    manager.tell_waiting("x" * 10_000)
    assert heard.next() == f"STATUS={'x' * LONGEST_STATUS}"
    manager.tell_ready()
    assert heard.next() == READY


def test_a_node_that_stops_is_not_said_to_serve(heard: Heard) -> None:
    manager = ServiceManager(heard.address, RecordedLog())
    manager.tell_stopping()
    manager.tell_ready()
    assert heard.next() == STOPPING
    assert heard.is_silent()


def test_what_was_not_heard_is_said_again_and_logged_once(tmp_path: Path) -> None:
    log, address = RecordedLog(), str(tmp_path / "notify")
    manager = ServiceManager(address, log)
    for _ in range(3):
        manager.tell_ready()
    assert [(level, event) for level, event, _ in log.lines] == [("warning", "service_manager_unheard")]
    late = Heard(address)
    manager.tell_ready()
    assert late.next() == READY
    late.close()


def test_without_a_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    log = RecordedLog()
    manager = ServiceManager.of_environment(log)
    manager.tell_ready()
    manager.tell_stopping()
    assert not log.lines


@pytest.mark.cluster
def test_a_node_tells_that_it_waits_then_that_it_serves_then_that_it_stops(tmp_path: Path) -> None:
    heard, reserved = Heard(str(tmp_path / "notify")), ReservedPorts(2)
    controllers = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(reserved.ports, 1))

    def start(node: int) -> subprocess.Popen[bytes]:
        """Starts a node; only node 1 has a service manager."""
        listen = f"127.0.0.1:{reserved.ports[node - 1]}"
        flags = ["--node-id", str(node), "--listen", listen, "--data-dir", str(tmp_path / str(node))]
        return subprocess.Popen(
            [sys.executable, "-m", "quorumlog.cli.main", "node", "start", *flags, "--controllers", controllers],
            env=os.environ | {SOCKET_VARIABLE: heard.address if node == 1 else ""},
        )

    nodes = [start(1)]
    try:
        assert "STATUS=" in (waiting := heard.next()) and "READY=1" not in waiting, "alone it has no majority"
        nodes.append(start(2))
        while (said := heard.next()) != READY:
            assert said.startswith("STATUS=")
        nodes[0].send_signal(signal.SIGTERM)
        while (said := heard.next()) != STOPPING:
            assert said.startswith(("STATUS=", "READY=1"))
        assert nodes[0].wait(PATIENCE_S) == 0
    finally:
        for node in nodes:
            node.kill()
            node.wait()
        heard.close()
        reserved.close()
