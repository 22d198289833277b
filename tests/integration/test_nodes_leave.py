"""Nodes are drained, replaced and removed under load, and no client notices."""

from __future__ import annotations

import contextlib
import json

import pytest
from command_line import cli, cli_here, complaints, until
from test_moved_partitions import MOVED, Load

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic

pytestmark = pytest.mark.cluster


def replicas_on(admin: Admin, node: int) -> int:
    topics = admin.describe_topics(include_internal=True, linearizable=True)
    return sum(node in partition.replicas for topic in topics for partition in topic.partitions)


def test_a_node_is_drained_under_load_and_gets_replicas_again_when_it_stays() -> None:
    with LocalCluster(nodes=4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [2, 3, 1]})])
        admin.create_topics([NewTopic("others", num_partitions=6, replication_factor=3)])
        with Load(cluster) as load:
            load.goes_on()
            planned = json.loads(cli(cluster, "nodes", "drain", "2", "--dry-run", "-o", "json").stdout)
            assert planned["all_moves"] == replicas_on(admin, 2) > 0
            drained = cli(cluster, "nodes", "drain", "2")
            assert (drained.returncode, complaints(drained)) == (0, "")
            assert replicas_on(admin, 2) == 0
            load.goes_on()
            listed = {row["node_id"]: row for row in json.loads(cli(cluster, "nodes", "list", "-o", "json").stdout)}
            assert (listed[2]["state"], listed[2]["replicas"]) == ("up, draining", 0)
        admin.create_topics([NewTopic("later", num_partitions=3, replication_factor=3)])
        assert replicas_on(admin, 2) == 0
        assert cli(cluster, "nodes", "undrain", "2").stdout == "node 2 stays\n"
        admin.create_topics([NewTopic("last", num_partitions=3, replication_factor=3)])
        assert replicas_on(admin, 2) > 0


def test_a_node_whose_disk_is_lost_is_replaced_by_one_command_and_health_is_green_again() -> None:
    with (
        LocalCluster(nodes=4, controllers=3) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [3, 2, 1]})])
        with Load(cluster) as load:
            load.goes_on()
            cluster.kill(3)
            load.goes_on()
            until(lambda: "node down: 3" in cli_here(cluster, "cluster", "health").stdout, "node 3 counts as down")
            replaced = cli(cluster, "nodes", "replace", "3", "--with", "4")
            assert (replaced.returncode, complaints(replaced)) == (0, "")
            assert "metadata quorum: nodes 1,2,4" in replaced.stdout
            assert replaced.stdout.endswith("node 3 is removed\n"), replaced.stdout
            load.goes_on()
            until(lambda: cli_here(cluster, "cluster", "health").returncode == 0, "all is well again")
        [topic] = admin.describe_topics([MOVED.topic], linearizable=True)
        assert sorted(topic.partitions[0].replicas) == [1, 2, 4]
        # It never returns under its id, and is notified of that: perhaps it ends before it has answered once.
        with contextlib.suppress(ClusterError):
            cluster.start(3)
        until(lambda: "node 3 was removed from the cluster" in cluster.log_path(3).read_text(), "node 3 is notified")


def test_a_drain_says_which_partition_holds_it_up_and_why() -> None:
    with LocalCluster(nodes=4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("single", replica_assignments={0: [4]})])
        cluster.kill(4)
        until(lambda: "node down: 4" in cli_here(cluster, "cluster", "health").stdout, "node 4 counts as down")
        drained = cli(cluster, "nodes", "drain", "4")
        assert drained.returncode == 1
        assert drained.stderr == (
            "1 partition left: single-0 has no leader, and of its nodes 4 these are down: 4\n"
            "quorumlog: 1 replica cannot leave node 4: no node leads single-0, and of its nodes 4 these are down: 4;"
            " start them, or delete the topic if their disks are lost. Node 4 keeps draining: replicas move"
            " automatically once they can\n"
        )
