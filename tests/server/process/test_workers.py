"""The parent of a machine's workers: it starts them, restarts them, ends with them, and refuses what does not fit."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quorumlog.local.cleanup_process import start_time
from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.setting_values import MAX_WORKERS
from quorumlog.server.config.settings import SettingsError, load
from quorumlog.server.config.worker_settings import settings_of_workers, worker_pid_file
from quorumlog.server.process import os_limits, workers
from quorumlog.server.process.service_manager import SOCKET_VARIABLE
from quorumlog.storage.meta_pages import DATA_FILE
from tests.support.child_process import ChildProcess
from tests.support.command_line import until
from tests.support.recorded_log import RecordedLog

cluster = pytest.mark.cluster
WORKERS = 2


class Machine:
    """A machine with two workers, of which the first is the only controller.

    Arguments:
        place: its data directory and its log are here.
    """

    def __init__(self, place: Path) -> None:
        self.data_dir = place / "data"
        self.log = place / "log"
        self._ports = ReservedPorts(1, beside=WORKERS)
        self.address = f"127.0.0.1:{self._ports.ports[0]}"
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.bind(str(place / "notify"))
        self._heard.setblocking(False)
        self.heard: list[str] = []
        self._environment = {**os.environ, SOCKET_VARIABLE: str(place / "notify")}

    def start(self, **changes: object) -> ChildProcess[bytes]:
        flags = {
            "node_id": 1,
            "listen": self.address,
            "data_dir": self.data_dir,
            "controllers": f"1@{self.address}",
            "workers": WORKERS,
            **changes,
        }
        command = [sys.executable, "-m", "quorumlog.server"]
        command += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            return ChildProcess(command, stdout=log, stderr=log, env=self._environment)

    def refusal(self, **changes: object) -> str:
        """Returns the only line of a machine that does not start."""
        with self.start(**changes) as ended:
            assert ended.wait(60) == 1
        (line,) = self.log.read_text().splitlines()
        return line.removeprefix("quorumlog: error: ")

    def pid(self, worker: int) -> int:
        """Returns the process id of a worker that runs, or 0."""
        try:
            return int(worker_pid_file(self.data_dir, worker).read_text())
        except FileNotFoundError:
            return 0

    def is_ready(self) -> bool:
        """Returns whether the service manager was notified that all serve."""
        try:
            while True:
                self.heard.append(self._heard.recv(4_096).decode())
        except BlockingIOError:
            return any(state.startswith("READY=1") for state in self.heard)

    def serves(self, node: int) -> int:
        """Returns how often a node has started to serve, by its log."""
        return len(re.findall(rf"node_started node={node} ", self.log.read_text()))

    def close(self) -> None:
        self._ports.close()
        self._heard.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def is_gone(pid: int) -> Callable[[], bool]:
    return lambda: start_time(pid) == ""


@cluster
def test_a_killed_worker_is_restarted(machine: Machine) -> None:
    """By its parent, with one line in the log; the other one does not notice, and a stop ends all in order."""
    with machine.start() as parent:
        until(machine.is_ready, "both serve")
        assert [state for state in machine.heard if state.startswith("READY=1")] == machine.heard[-1:]
        first, second = machine.pid(0), machine.pid(1)
        assert len({parent.pid, first, second}) == 3
        os.kill(second, signal.SIGKILL)
        until(lambda: machine.serves(65) == 2, "it runs again")
        assert machine.pid(0) == first
        assert machine.pid(1) not in (0, second)
        (line,) = [line for line in machine.log.read_text().splitlines() if "worker_ended" in line]
        assert line.endswith(f'node=1 worker=65 pid={second} reason="killed by SIGKILL" restart_in_s=0.5')
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert machine.log.read_text().count("node_stopped") == WORKERS
    assert (machine.pid(0), machine.pid(1)) == (0, 0)
    machine.is_ready()
    assert machine.heard[-1].startswith("STOPPING=1")


@cluster
def test_workers_end_with_their_parent(machine: Machine) -> None:
    """Even one that is paused and cannot notice that the parent was killed; then the machine starts again."""
    with machine.start() as parent:
        until(machine.is_ready, "both serve")
        pids = [machine.pid(worker) for worker in range(WORKERS)]
        os.kill(pids[1], signal.SIGSTOP)
        parent.kill()
    for pid in pids:
        until(is_gone(pid), "it ends")
    machine.heard.clear()
    with machine.start() as parent:
        until(machine.is_ready, "both serve again")
        parent.send_signal(signal.SIGINT)
        assert parent.wait(60) == 0


@cluster
def test_a_worker_that_cannot_start_ends_all(machine: Machine) -> None:
    """It would fail again: the parent stops the others and exits, as a single node does."""
    with machine.start() as parent:
        until(machine.is_ready, "both serve")
        parent.send_signal(signal.SIGTERM)
        parent.wait(60)
    (machine.data_dir / "w01").rename(machine.data_dir / "x")
    (machine.data_dir / "w00").rename(machine.data_dir / "w01")
    (machine.data_dir / "x").rename(machine.data_dir / "w00")
    with machine.start() as parent:
        assert parent.wait(60) == 1
    # Whichever of the two comes first stops the other.
    assert re.search(r"it belongs to node (64: use --node-id 64|65: use --node-id 65)", machine.log.read_text())
    assert "worker_ended" not in machine.log.read_text()
    assert (machine.pid(0), machine.pid(1)) == (0, 0)


@cluster
def test_wrong_machines_are_refused(machine: Machine) -> None:
    """In one line, before a worker starts, whatever is wrong with any of them."""
    port = int(machine.address.rpartition(":")[2])
    assert "the ports of kafka_listen and listen overlap" in machine.refusal(kafka_listen=f"127.0.0.1:{port + 1}")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # The port is reserved.
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        assert machine.refusal().startswith(f"listen = 127.0.0.1:{port + 1}: port {port + 1} is in use")
    assert "--insecure" in machine.refusal(listen=f"192.0.2.7:{port}")
    assert not machine.data_dir.exists()


class Heard:
    """The service manager, as far as the readiness of workers is concerned."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def tell_ready(self) -> None:
        self.told.append("ready")

    def tell_waiting(self, reason: str) -> None:
        self.told.append(reason)


def test_a_machine_is_ready_with_its_last_worker() -> None:
    """Until then its service manager learns what the first of those waits for that are not ready."""
    address, manager = "127.0.0.1:9000", Heard()
    settings = load({"node_id": 1, "listen": address, "data_dir": "/x", "controllers": f"1@{address}", "workers": 2})
    taken: Any = manager
    parent = workers.WorkerParent(settings_of_workers(settings, 2), RecordedLog(), taken)
    first, second = parent._workers
    parent._notified(second, "READY=1\nSTATUS=serving clients")
    assert manager.told == []
    parent._notified(first, "STATUS=waits for nodes 128")
    parent._notified(first, "READY=1\nSTATUS=serving clients")
    assert manager.told == ["worker 0: waits for nodes 128", "ready"]


def test_an_end_may_be_noticed_twice(tmp_path: Path) -> None:
    """By SIGCHLD, and in the same round by the worker's socket, which is closed by then."""
    address = "127.0.0.1:9000"
    wanted = {"node_id": 1, "listen": address, "data_dir": str(tmp_path), "controllers": f"1@{address}", "workers": 2}
    taken: Any = Heard()
    parent = workers.WorkerParent(settings_of_workers(load(wanted), 2), RecordedLog(), taken)
    worker, _ = parent._workers
    with ChildProcess([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        worker.pid = ended.pid
        worker.link, theirs = socket.socketpair()
        theirs.close()
        parent._reap(worker)
    assert (worker.pid, worker.link) == (0, None)
    parent._on_notification(worker)
    assert not worker.is_ready


def test_the_number_of_workers_is_kept(tmp_path: Path) -> None:
    """A directory belongs to the number of workers that it was first started with, or to a node without workers."""
    workers.refuse_other_count(tmp_path, None)
    workers.refuse_other_count(tmp_path, 2)
    workers._record_count(tmp_path, 2)
    workers.refuse_other_count(tmp_path, 2)
    for other in (None, 1, 4):
        with pytest.raises(SettingsError, match="belongs to 2 workers: start it with --workers 2"):
            workers.refuse_other_count(tmp_path, other)
    (tmp_path / workers.COUNT_FILE).write_text("many\n")
    with pytest.raises(SettingsError, match="is not a number of workers"):
        workers.refuse_other_count(tmp_path, 2)
    (tmp_path / workers.COUNT_FILE).unlink()
    (tmp_path / DATA_FILE).touch()
    workers.refuse_other_count(tmp_path, None)
    with pytest.raises(SettingsError, match="belongs to a node without workers: start it without --workers"):
        workers.refuse_other_count(tmp_path, 2)


@pytest.mark.parametrize(
    ("cores", "memory_mib", "count"),
    [(16, 64 << 10, 15), (16, 1 << 10, 4), (1, 1 << 10, 1), (2, 100, 1), (200, 1 << 30, MAX_WORKERS)],
)
def test_auto_fits_the_machine(
    cores: int, memory_mib: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker less than cores, as far as the memory goes; the number of the first start is kept."""
    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
    monkeypatch.setattr(workers, "usable_memory_bytes", lambda: memory_mib << 20)
    address = "127.0.0.1:1"
    settings = load(
        {"node_id": 1, "listen": address, "data_dir": tmp_path, "controllers": f"1@{address}", "workers": "auto"}
    )
    assert workers.count_of(settings) == count
    workers._record_count(tmp_path, 3)
    assert workers.count_of(settings) == 3


def test_limits_of_the_group_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container gets what it was given, not what its machine has."""
    group = tmp_path / "service"
    group.mkdir()
    (tmp_path / "own").write_text("0::/service\n")
    monkeypatch.setattr(os_limits, "_GROUP", tmp_path / "own")
    monkeypatch.setattr(os_limits, "_GROUPS", tmp_path)
    unlimited = os_limits.usable_memory_bytes()
    (group / "cpu.max").write_text("50000 100000\n")
    (group / "memory.max").write_text(f"{64 << 20}\n")
    assert (os_limits.usable_cores(), os_limits.usable_memory_bytes()) == (1, 64 << 20)
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text("max\n")
    assert (os_limits.usable_cores() >= 1, os_limits.usable_memory_bytes()) == (True, unlimited)


def test_a_machine_needs_its_own_flags() -> None:
    """The command line offers the number of workers."""
    shown = subprocess.run(
        [sys.executable, "-m", "quorumlog.cli.main", "node", "start", "--help"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "--workers" in shown.stdout
