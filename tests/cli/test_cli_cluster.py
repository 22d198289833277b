"""``cluster up`` to ``log verify``: a local cluster through its life, driven by the command line alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child_process import ChildProcess

from tests.support.command_line import until
from tests.support.free_ports import free_base_port

#: Each starts processes one after the other, a dozen of them.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

TIMEOUT_S = 120
#: A killed node is fenced after 3 s of silence, and out of every ISR at once with that.
NOTICED_S = 60


def quorumlog(*arguments: str, servers: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"QUORUMLOG_BOOTSTRAP_SERVERS": servers} if servers else {})
    return subprocess.run(
        [sys.executable, "-m", "quorumlog.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def loaded(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster that is taken down whatever happens."""
    directory = tmp_path / "cluster"
    yield directory
    if (directory / "cluster.json").exists():
        quorumlog("cluster", "down", "--data-dir", str(directory))


def test_a_local_cluster_lives_loses_a_node_stops_and_is_sound(data_dir: Path) -> None:
    directory = ("--data-dir", str(data_dir))
    port = free_base_port(3)
    up = loaded(quorumlog("cluster", "up", *directory, "--base-port", str(port), "--detach", "--output", "json"))
    assert up["bootstrap_servers"] == ",".join(f"127.0.0.1:{port + node}" for node in range(3))
    assert all(node["ready"] for node in up["nodes"])
    servers = up["bootstrap_servers"]
    assert quorumlog("topics", "create", "orders", servers=servers).returncode == 0

    victim = up["nodes"][2]
    os.kill(victim["pid"], signal.SIGKILL)
    reasons = await_unhealthy(servers, "under-replicated (orders-0)")
    assert "node down: 3" in reasons
    under = quorumlog("topics", "describe", "--under-replicated", servers=servers)
    assert under.returncode == 0
    assert "Partition: 0" in under.stdout
    status = loaded(quorumlog("cluster", "status", *directory, "--output", "json"))
    assert [node["running"] for node in status["nodes"]] == [True, True, False]

    again = quorumlog("cluster", "up", *directory, "--detach")
    assert again.returncode == 0, again.stderr
    assert quorumlog("cluster", "down", *directory).stdout.startswith("Stopped 3 nodes")
    assert quorumlog("cluster", "down", *directory).stdout.startswith("No node was running")
    for node in (1, 2, 3):
        sound = quorumlog("log", "verify", "--data-dir", str(data_dir / f"node-{node}"))
        assert sound.returncode == 0, sound.stdout
        assert ": sound: " in sound.stdout
    dumped = quorumlog("log", "dump", "--data-dir", str(data_dir / "node-1"), "--group", "0")
    assert "noop" in dumped.stdout
    assert "command" in dumped.stdout


def await_unhealthy(servers: str, expected: str) -> list[str]:
    """The reasons of ``cluster health`` once one of them says ``expected``."""
    deadline = time.monotonic() + NOTICED_S
    while True:
        done = quorumlog("cluster", "health", "--output", "json", servers=servers)
        health = json.loads(done.stdout) if done.stdout else {"reasons": []}
        if any(expected in reason for reason in health["reasons"]):
            assert done.returncode == 1
            return list(health["reasons"])
        assert time.monotonic() < deadline, f"{expected!r} never came: {done.stdout}{done.stderr}"


def test_a_flipped_bit_is_found_and_named_and_nothing_is_deleted(data_dir: Path) -> None:
    directory = ("--data-dir", str(data_dir))
    port = str(free_base_port(3))
    up = quorumlog("cluster", "up", "--nodes", "1", *directory, "--base-port", port, "--detach")
    assert up.returncode == 0, up.stderr
    servers = f"127.0.0.1:{port}"
    created = quorumlog("topics", "create", "orders", "--replication-factor", "1", servers=servers)
    assert created.returncode == 0, created.stderr
    lines = data_dir / "lines.txt"
    lines.write_text("a needle in the haystack\n" * 500)
    assert quorumlog("produce", "orders", "--file", str(lines), servers=servers).returncode == 0
    assert quorumlog("cluster", "down", *directory).returncode == 0

    file = data_dir / "node-1" / "data.mdb"
    data = bytearray(file.read_bytes())
    data[data.index(b"needle")] ^= 1
    file.write_bytes(data)
    done = quorumlog("log", "verify", "--data-dir", str(data_dir / "node-1"))
    assert done.returncode == 1
    assert "DAMAGED: 1 problem" in done.stdout
    assert "checksum" in done.stdout
    report = quorumlog("log", "verify", "--data-dir", str(data_dir / "node-1"), "--output", "json")
    assert json.loads(report.stdout)["sound"] is False
    assert file.read_bytes() == data


@pytest.mark.parametrize("all_down", [False, True], ids=["the others run", "all start"])
def test_a_node_that_returns_empty_is_named_and_the_others_go_on(data_dir: Path, all_down: bool) -> None:
    port = str(free_base_port(3))
    up = loaded(quorumlog("cluster", "up", "--data-dir", str(data_dir), "--base-port", port, "-d", "-o", "json"))
    if all_down:
        assert quorumlog("cluster", "down", "--data-dir", str(data_dir)).returncode == 0
    else:
        os.kill(up["nodes"][2]["pid"], signal.SIGKILL)
    shutil.rmtree(data_dir / "node-3")

    again = quorumlog("cluster", "up", "--data-dir", str(data_dir), "--detach")

    assert again.returncode == 1
    assert again.stderr.startswith("quorumlog: all other nodes serve, but node 3 returned with an empty data directory")
    assert "run quorumlog nodes replace 3 --with 3" in again.stderr
    deadline = time.monotonic() + TIMEOUT_S
    replace = ("nodes", "replace", "3", "--with", "3")
    while (replaced := quorumlog(*replace, servers=up["bootstrap_servers"])).returncode:
        # Until the controller counts the former node as down.
        assert time.monotonic() < deadline, replaced.stderr

    def states() -> list[bool]:
        reported = loaded(quorumlog("cluster", "status", "--data-dir", str(data_dir), "-o", "json"))
        return [state["ready"] for state in reported["nodes"]]

    until(lambda: states() == [True, True, True], "all nodes are ready")


def test_a_cluster_in_the_foreground_goes_on_without_a_node_whose_disk_is_lost(data_dir: Path) -> None:
    shape = ("--data-dir", str(data_dir), "--base-port", str(free_base_port(3)))
    assert quorumlog("cluster", "up", *shape, "--detach").returncode == 0
    assert quorumlog("cluster", "down", "--data-dir", str(data_dir)).returncode == 0
    shutil.rmtree(data_dir / "node-2")
    command = [sys.executable, "-m", "quorumlog.cli.main", "cluster", "up", "--data-dir", str(data_dir)]
    with ChildProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as again:
        assert again.stdout is not None
        assert again.stderr is not None
        assert "run quorumlog nodes replace 2 --with 2" in again.stderr.readline()
        for line in again.stdout:
            if "Ctrl-C" in line:
                break
        again.send_signal(signal.SIGINT)
        again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0


def test_a_cluster_in_the_foreground_stops_with_ctrl_c(data_dir: Path) -> None:
    command = [sys.executable, "-m", "quorumlog.cli.main", "cluster", "up", "--nodes", "1", "--data-dir", str(data_dir)]
    with ChildProcess(
        [*command, "--base-port", str(free_base_port(3))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if "Ctrl-C" in line:
                break
        up.send_signal(signal.SIGINT)
        _, errors = up.communicate(timeout=TIMEOUT_S)
    assert (up.returncode, errors) == (0, "")
    status = loaded(quorumlog("cluster", "status", "--data-dir", str(data_dir), "--output", "json"))
    assert [node["running"] for node in status["nodes"]] == [False]


def test_impossible_clusters_are_refused_with_one_line(data_dir: Path) -> None:
    for arguments, words in (
        (["up", "--nodes", "3", "--base-port", "65535"], "65535"),
        (["down"], "no local cluster"),
        (["status"], "no local cluster"),
    ):
        done = quorumlog("cluster", *arguments, "--data-dir", str(data_dir))
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert words in line


def test_settings_and_a_listener_are_added_to_a_cluster(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = ("cluster", "up", "--nodes", "1", "--data-dir", str(data_dir), "--detach", "--output", "json")
    down = ("cluster", "down", "--data-dir", str(data_dir))
    assert "kafka_bootstrap_servers" not in loaded(quorumlog(*up, "--base-port", str(free_base_port(1))))
    for more, said in (("--kafka",), "without a listener for Kafka's"), (("--set", "rack=a"), "without rack=a"):
        refused = quorumlog(*up, *more)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert said in refused.stderr
        assert "quorumlog cluster down --data-dir" in refused.stderr
    assert quorumlog(*down).returncode == 0
    monkeypatch.setenv("QUORUMLOG_RACK", "b")
    added = quorumlog(*up, "--kafka", "--set", "rack=a", "--set", "log_level=debug")
    assert added.stderr == (
        "QUORUMLOG_RACK has no effect on a local cluster: use --set rack=b, or settings={'rack': 'b'} in Python\n"
    )
    servers = loaded(added)["kafka_bootstrap_servers"]
    assert quorumlog(*down).returncode == 0
    monkeypatch.delenv("QUORUMLOG_RACK")
    again = loaded(quorumlog(*up))
    assert again["kafka_bootstrap_servers"] == servers
    nodes = loaded(quorumlog("nodes", "list", "--output", "json", servers=again["bootstrap_servers"]))
    assert [node["rack"] for node in nodes] == ["a"]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (("rak=a",), "unknown setting 'rak' of the local cluster: did you mean 'rack'?"),
        (("rack",), "--set 'rack' is not KEY=VALUE"),
        (("rack=a", "rack=b"), "--set rack is given twice"),
        (("node_id=7",), "node_id cannot be set for a local cluster: nodes are numbered from 1"),
        (("election_timeout_ms=soon",), "wrong value 'soon' for election_timeout_ms"),
    ],
)
@pytest.mark.parametrize("command", [("cluster", "up"), ("console", "--playground")])
def test_wrong_settings_are_refused_at_once(
    tmp_path: Path, command: tuple[str, ...], pairs: tuple[str, ...], said: str
) -> None:
    place = ("--data-dir", str(tmp_path / "none")) if command == ("cluster", "up") else ()
    refused = quorumlog(*command, *place, *(part for pair in pairs for part in ("--set", pair)))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "none" / "cluster.json").exists()
