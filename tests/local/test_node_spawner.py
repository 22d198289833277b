"""Nodes that are forked are like those that are started as programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from child_process import ChildProcess

from quorumlog.local import ClusterError, LocalCluster, node_spawner
from quorumlog.local.cleanup_process import start_time
from quorumlog.local.node_spawner import SPAWNERS, NodeSpawner, forked_nodes, separate_nodes, spawner_of
from quorumlog.storage.quarantine import ID_FILE
from tests.support.command_line import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes are forked on Linux only"),
]


@pytest.fixture(scope="module", autouse=True)
def nodes_are_forked(nodes_are_programs: None) -> Iterator[None]:
    """Forks the nodes of this module, from processes of its own."""
    with forked_nodes():
        yield


@pytest.fixture
def spawners() -> Iterator[list[NodeSpawner]]:
    """Spawners that end with the test."""
    with separate_nodes(), forked_nodes():
        yield list(node_spawner._spawners)


def parent_of(pid: int | None) -> psutil.Process:
    parent = psutil.Process(pid).parent()
    assert parent is not None
    return parent


def is_spawner(process: psutil.Process) -> bool:
    return "quorumlog.local.node_spawner" in process.cmdline()


def test_nodes_with_odd_and_even_ids_have_different_parents() -> None:
    with LocalCluster(nodes=3) as cluster:
        parents = [parent_of(cluster.pid(node)) for node in (1, 2, 3)]
        assert all(is_spawner(parent) for parent in parents)
        assert parents[0] == parents[2] != parents[1]
        assert [parent.num_threads() for parent in parents] == [1, 1, 1]
        assert {parent.ppid() for parent in parents} == {os.getpid()}
        for node in (1, 2, 3):
            until((cluster.data_dir(node) / ID_FILE).exists)
        assert len({(cluster.data_dir(node) / ID_FILE).read_text() for node in (1, 2, 3)}) == 3, "ids are random"


def test_a_node_inherits_nothing_of_its_parent_or_another_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(pid: int | None) -> set[str]:
        """The files of a process, without those that it is closing."""
        found = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(entry))
        return found - {"/dev/null"}

    monkeypatch.chdir(tmp_path)
    with LocalCluster(nodes=1) as first, LocalCluster(nodes=1) as second:
        nodes = [cluster.pid(1) for cluster in (first, second)]
        parent = parent_of(nodes[0])
        assert parent == parent_of(nodes[1])
        held = [{one for one in opened(pid) if "anon_inode" not in one} for pid in (*nodes, parent.pid)]
        assert all(held)
        assert held[0] & held[1] == held[0] & held[2] == held[1] & held[2] == set()
        assert [os.getsid(pid) for pid in nodes if pid] == nodes
        assert [psutil.Process(pid).cwd() for pid in nodes] == [str(tmp_path)] * 2
        assert {os.readlink(f"/proc/{pid}/fd/{stream}") for pid in nodes[:1] for stream in (1, 2)} == {
            str(first.log_path(1))
        }


def test_the_exit_status_is_known() -> None:
    with LocalCluster(nodes=1) as cluster:
        process = cluster._nodes[1]
        cluster.stop(1)
        assert process.wait(0) == 0
        cluster.start(1)
        cluster.kill(1)
        assert process.wait(0) == -signal.SIGKILL
        assert not cluster.is_running(1)


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        cluster.shutdown()
        (tmp_path / "node-1" / "WORKERS").write_text("2\n")
        with pytest.raises(ClusterError, match=r"node 1 ended: .*belongs to 2 workers"):
            cluster.up()


def test_environment_variables_reach_the_node() -> None:
    with LocalCluster(nodes=1, env={"QUORUMLOG_LOG_FORMAT": "json"}) as cluster:
        assert is_spawner(parent_of(cluster.pid(1)))
        assert json.loads(cluster.log_path(1).read_text().splitlines()[-1])["event"]


def test_a_node_of_another_environment_is_a_program() -> None:
    env = {"PYTHONHASHSEED": "1"}
    with LocalCluster(nodes=1) as cluster, LocalCluster(nodes=1, env=env) as other, LocalCluster(nodes=1) as third:
        assert is_spawner(parent_of(cluster.pid(1)))
        assert "quorumlog.server" in psutil.Process(other.pid(1)).cmdline()
        assert parent_of(third.pid(1)) == parent_of(cluster.pid(1))


def test_without_its_spawner_a_node_continues_and_the_next_is_a_program(spawners: list[NodeSpawner]) -> None:
    with LocalCluster(nodes=1) as cluster:
        forked = cluster.pid(1)
        spawner = parent_of(forked)
        assert spawners[1]._process is not None
        assert spawner.pid == spawners[1]._process.pid
        spawner.kill()
        until(lambda: spawner.status() == psutil.STATUS_ZOMBIE)
        assert cluster.is_running(1)
        assert cluster.pid(1) == forked
        cluster.kill(1)
        assert not cluster.is_running(1)
        cluster.start(1)
        cluster.wait_ready()
        assert "quorumlog.server" in psutil.Process(cluster.pid(1)).cmdline()


def test_nodes_outside_of_the_blocks_are_programs() -> None:
    with separate_nodes():
        assert spawner_of(1) is None
        with LocalCluster(nodes=1) as cluster:
            assert parent_of(cluster.pid(1)).pid == os.getpid()
    assert spawner_of(1) is not None


def test_closed_spawners_leave_their_nodes_alone(spawners: list[NodeSpawner]) -> None:
    with LocalCluster(nodes=1) as cluster:
        parent = parent_of(cluster.pid(1))
        for spawner in spawners:
            spawner.close()
        assert not parent.is_running()
        assert cluster.is_running(1)
    assert len(spawners) == SPAWNERS


_OWNER = """
import os, sys, time
from quorumlog.local import LocalCluster
from quorumlog.local.node_spawner import forked_nodes
with forked_nodes(), LocalCluster(nodes=2) as cluster:
    if not os.fork():  # It keeps what joins the owner to the others.
        time.sleep(60)
    cluster.pause(2)
    print(cluster.pid(1), cluster.pid(2), flush=True)
    while True:
        time.sleep(0.05)
"""


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    with ChildProcess([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        nodes = [int(pid) for pid in owner.stdout.readline().split()]
        left = [*nodes, *(parent_of(pid).pid for pid in nodes)]
        assert all(is_spawner(psutil.Process(pid)) for pid in left)
        child = next(
            one for one in psutil.Process(owner.pid).children() if not is_spawner(one) and "-I" not in one.cmdline()
        )
        try:
            owner.send_signal(signal.SIGKILL)
            until(lambda: all(start_time(pid) == "" for pid in left))
        finally:
            child.kill()
