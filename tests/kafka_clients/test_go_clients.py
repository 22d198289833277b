"""kafka-go and kaf, unchanged: a group of kafka-go continues when a node is killed, kaf administers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import leader_of
from conftest import AGAINST
from connect_worker import until
from framework_run import Run
from frameworks import KAFKA_GO
from matrix_clients import _go
from test_frameworks import kill_leader

from quorumlog.local import LocalCluster
from quorumlog.sdk import Consumer

KAF = os.environ.get("KAF") or shutil.which("kaf")
LINES = 100
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as nodes:
        yield nodes


def test_kafka_go_survives_a_kill(cluster: LocalCluster, tmp_path: Path) -> None:
    """A member of a group passes every number on."""
    Run(cluster, KAFKA_GO, _go("kafkago"), tmp_path).play()


@pytest.fixture
def kaf(cluster: LocalCluster) -> Callable[..., str]:
    """Runs kaf, and returns what it printed."""

    def run(*arguments: str, text: str = "") -> str:
        command = [str(KAF), "-b", cluster.kafka_bootstrap_servers, *arguments]
        ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


@pytest.mark.skipif(KAF is None, reason="needs kaf: name its program in KAF")
def test_kaf_administers_a_cluster(cluster: LocalCluster, kaf: Callable[..., str]) -> None:
    """Nodes, topics, records, groups and lag, also while a node is down."""
    assert len(kaf("nodes", "ls").splitlines()) == 4
    kaf("topic", "create", "orders", "-p", "3", "-r", "3")
    assert "orders" in kaf("topics")
    kaf("topic", "add-config", "orders", "retention.ms", "100000")
    assert "100000" in kaf("topic", "describe", "orders")
    lines = [f"line {number}" for number in range(LINES)]
    kaf("produce", "orders", "-k", "key", text="".join(f"{each}\n" for each in lines))
    killed = kill_leader(cluster, "orders")
    until(lambda: leader_of(cluster, "orders") != killed, "another node leads")
    assert kaf("consume", "orders", "--offset", "oldest", "--raw", "--limit-messages", str(LINES)).splitlines() == lines
    with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="team") as consumer:
        until(lambda: bool(consumer.poll(timeout_ms=500)), "records")
        consumer.commit()

    def lists_group() -> bool:
        with contextlib.suppress(AssertionError):
            return "team" in kaf("groups")
        return False

    # kaf asks every node that the metadata name, and gives up if one of them does not answer.
    until(lists_group, "the group is listed")
    assert "orders" in kaf("group", "describe", "team")
    kaf("group", "delete", "team")
    kaf("topic", "delete", "orders")
    assert "orders" not in kaf("topics")
