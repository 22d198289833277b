"""A client's first steps with one node: defaults that it can carry, hints that can be typed, a full disk."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import cli

from quorumlog.cli import cluster as cluster_commands
from quorumlog.local import LocalCluster
from quorumlog.local.cluster import NodeStatus
from quorumlog.sdk import Admin, NewTopic

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def one_node() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as made:
        yield made


def test_a_topic_has_as_many_replicas_as_the_cluster_can_carry_and_says_how_many(one_node: LocalCluster) -> None:
    created = cli(one_node, "topics", "create", "few")
    assert (created.returncode, created.stderr) == (0, "")
    assert created.stdout == (
        "Created topic few: 1 partition, replication factor 1, since the cluster has 1 node:"
        " it does not survive the loss of a disk.\n"
    )
    with Admin(bootstrap_servers=one_node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("alone")])
        [alone] = admin.describe_topics(["alone"])
    assert [len(partition.replicas) for partition in alone.partitions] == [1]


def test_who_asks_for_three_replicas_on_one_node_is_refused(one_node: LocalCluster) -> None:
    refused = cli(one_node, "topics", "create", "many", "--replication-factor", "3")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "replication factor 3 needs 3 nodes, and" in refused.stderr


def test_three_nodes_of_which_one_is_down_carry_three_replicas_still(quorumlog_cluster: LocalCluster) -> None:
    quorumlog_cluster.stop(3)
    try:
        created = cli(quorumlog_cluster, "topics", "create", "as-meant")
        assert "one" not in created.stdout, "reducing the factor automatically would be a silent loss of safety"
        assert "replication factor 1" not in created.stdout + created.stderr
        assert created.returncode == 0, created.stderr
        with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
            [topic] = admin.describe_topics(["as-meant"])
        assert [(len(each.replicas), len(each.isr)) for each in topic.partitions] == [(3, 2)]
    finally:
        quorumlog_cluster.start(3)


def test_the_hints_of_cluster_up_can_be_typed_as_they_are(
    one_node: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("/tmp/sp ace/it's")
    cluster_commands._say_how_to_go_on(path, one_node, cluster_commands.OutputFormat.TABLE)
    export, down = capsys.readouterr().out.splitlines()
    assert export.split("  #")[0] == f"export QUORUMLOG_BOOTSTRAP_SERVERS={one_node.bootstrap_servers}"
    assert shlex.split(down, comments=True) == ["quorumlog", "cluster", "down", "--data-dir", str(path)]


def test_a_node_that_serves_with_a_full_disk_is_shown_as_such() -> None:
    status = NodeStatus(1, "127.0.0.1:1", 7, True, True, "the node's disk is nearly full")
    assert cluster_commands._state(status) == "serving, but the node's disk is nearly full"


def test_the_version_is_printed_by_the_command_too() -> None:
    command = [sys.executable, "-m", "quorumlog.cli.main"]
    printed = [
        subprocess.run([*command, how], capture_output=True, text=True, check=True).stdout
        for how in ("version", "--version")
    ]
    assert printed[0] == printed[1] != ""
