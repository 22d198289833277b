"""A node that cannot start says why and what to do, in one line on stderr, and exits with status 1."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_process import ChildProcess
from command_line import until

from quorumlog.cli.main import main
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.local.ports import ReservedPorts

pytestmark = pytest.mark.cluster


@pytest.fixture
def port() -> Iterator[int]:
    reserved = ReservedPorts(1)
    yield reserved.ports[0]
    reserved.close()


def refusal(data_dir: Path, port: int, **changes: object) -> str:
    """Returns the line that a node prints that is started so; asserts that it stops, with one line and no traceback."""
    address = f"127.0.0.1:{port}"
    flags = {"node_id": 1, "listen": address, "data_dir": data_dir, "controllers": f"1@{address}", **changes}
    command = [sys.executable, "-m", "quorumlog.server"]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert [line for line in lines if not re.match(r"\S+Z (info|warning|error) ", line)] == lines[-1:], ended.stderr
    assert lines[-1].startswith("quorumlog: error: ")
    return lines[-1].removeprefix("quorumlog: error: ")


@pytest.mark.parametrize("start", [("quorumlog.server",), ("quorumlog.cli.main", "node", "start")])
@pytest.mark.parametrize("chosen_in", ["environment", "file"])
@pytest.mark.parametrize(("setting", "said"), [("listen", "beyond loopback"), ("node_id", "wrong value 'one'")])
def test_who_has_chosen_json_is_told_in_json_why_a_node_does_not_start(
    start: tuple[str, ...], chosen_in: str, setting: str, said: str, tmp_path: Path
) -> None:
    settings = {"node_id": "1", "listen": "127.0.0.1:1", "controllers": "1@127.0.0.1:1", "data_dir": str(tmp_path)}
    settings[setting] = "one" if setting == "node_id" else "192.0.2.7:1"
    environment = dict(os.environ)
    if chosen_in == "file":
        settings["log_format"] = "json"
    else:
        environment["QUORUMLOG_LOG_FORMAT"] = "json"
    config = tmp_path / "node.toml"
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", *start, "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (line["level"], line["event"], "time" in line) == ("error", "node_failed", True)
    assert said in line["message"]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(tmp_path, port)
    assert said == (
        f"listen = 127.0.0.1:{port}: port {port} is in use by another process: stop it, or choose another port"
    )


def test_an_address_of_another_machine_is_refused(tmp_path: Path, port: int) -> None:
    said = refusal(tmp_path, port, listen=f"192.0.2.7:{port}", insecure=None)
    assert "192.0.2.7" in said
    assert "beyond loopback" in said


def test_listening_beyond_loopback_takes_insecure_said_aloud(tmp_path: Path, port: int) -> None:
    assert "or set --insecure" in refusal(tmp_path, port, listen=f"0.0.0.0:{port}")


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path, port: int) -> None:
    assert "no-such-host.invalid cannot be resolved" in refusal(tmp_path, port, listen=f"no-such-host.invalid:{port}")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("listen", "127.0.0.1", "wrong value '127.0.0.1' for listen"),
        ("controllers", "1@nowhere", "wrong value '1@nowhere' for controllers"),
        ("node_id", "-4", "wrong value -4 for node_id"),
        ("election_timeout_ms", "soon", "wrong value 'soon' for election_timeout_ms"),
        ("elecion_timeout_ms", "500", "did you mean 'election_timeout_ms'?"),
        ("controllers", None, "controllers is not set: give --controllers"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, port: int, name: str, value: object, said: str) -> None:
    assert said in refusal(tmp_path, port, **{name: value})


def test_a_wrong_key_in_the_file_is_named(tmp_path: Path, port: int) -> None:
    config = tmp_path / "node.toml"
    config.write_text("[node]\nid = 1\n")
    assert f"unknown setting 'node' in {config}" in refusal(tmp_path / "data", port, config=config)


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path, port: int) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    said = refusal(in_the_way / "data", port)
    assert f"cannot use data directory {in_the_way / 'data'}" in said


def test_a_locked_data_directory_names_who_holds_it(tmp_path: Path, port: int) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        said = refusal(cluster.data_dir(1), port)
        assert f"data directory {cluster.data_dir(1)} is in use by process {cluster.pid(1)}" in said
        cluster.wait_ready()


def test_damaged_data_is_never_served(tmp_path: Path, port: int) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        data_dir = cluster.data_dir(1)
    os.truncate(data_dir / "data.mdb", 10_000)
    said = refusal(data_dir, port)
    assert "damaged" in said
    # On an empty directory it would be refused under its own id: the entries that it has acknowledged are missing.
    assert "QUORUMLOG_DAMAGED_STORAGE=move-aside" in said


def test_a_node_on_another_clusters_data_says_so_and_ends(tmp_path: Path) -> None:
    with LocalCluster(nodes=2, controllers=1, data_dir=tmp_path / "other") as other:
        foreign = other.data_dir(2)
    with LocalCluster(nodes=2, controllers=1, data_dir=tmp_path / "this") as cluster:
        cluster.stop(2)
        shutil.rmtree(cluster.data_dir(2))
        shutil.copytree(foreign, cluster.data_dir(2))
        with contextlib.suppress(ClusterError):  # it may end before it has answered once
            cluster.start(2)
        deadline = time.monotonic() + 60
        while cluster.is_running(2):
            assert time.monotonic() < deadline, "the node did not notice that it is among strangers"
            time.sleep(0.05)
        last = cluster.log_path(2).read_text().splitlines()[-1]
        assert last.startswith("quorumlog: error: node 2 stopped: the data directory belongs to cluster ")
        until(lambda: cluster.status()[0].ready, "the other node continues")


def test_a_node_that_waits_for_others_says_for_whom(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{port}"
    flags = ["--node-id", "1", "--listen", address, "--data-dir", str(tmp_path / "data")]
    flags += ["--controllers", f"1@{address},2@127.0.0.1:9,3@127.0.0.1:9"]
    with ChildProcess([sys.executable, "-m", "quorumlog.server", *flags], stderr=subprocess.PIPE, text=True) as node:
        try:
            assert node.stderr is not None
            said = next(line for line in node.stderr if "node_not_ready" in line)
            for command in ("health", "describe"):
                with pytest.raises(SystemExit) as ended:
                    main(["cluster", command, "-b", address])
                assert ended.value.code == 1
        finally:
            node.terminate()
    waiting = "the cluster has not formed; waiting for controllers 2, 3"
    assert waiting in said
    assert capsys.readouterr() == (f"unhealthy: {waiting}\n", f"quorumlog: {waiting}\n")


def test_a_node_on_another_nodes_data_is_refused(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        address, data_dir = cluster.address(1), cluster.data_dir(1)
    port = int(address.rpartition(":")[2])
    said = refusal(data_dir, port, node_id=5, controllers=f"5@{address}")
    assert said.endswith("it belongs to node 1: use --node-id 1, or give node 5 its own")
