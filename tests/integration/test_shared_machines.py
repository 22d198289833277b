"""Real nodes that share machines: what a whole machine's end leaves."""

from __future__ import annotations

import json

import pytest
from command_line import cli, until
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

pytestmark = pytest.mark.cluster

#: The machine of each node.
MACHINES = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def test_a_machine_ends_under_load() -> None:
    """Replicas are on distinct machines, requests for others are refused, and a machine's end costs one replica."""
    settings = {node: {"machine": machine} for node, machine in MACHINES.items()}
    with (
        LocalCluster(nodes=6, controllers=3, node_settings=settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [2, 3, 1]})])
        admin.create_topics([NewTopic("others", num_partitions=6, replication_factor=3)])
        refused = cli(
            cluster, "partitions", "reassign", "--topic", MOVED.topic, "--partition", "0", "--replicas", "2,5,1"
        )
        assert refused.returncode != 0
        assert "nodes 2 and 5 are both on machine b, and would fail together" in refused.stdout + refused.stderr
        listed = json.loads(cli(cluster, "nodes", "list", "-o", "json").stdout)
        assert {row["node_id"]: row["machine"] for row in listed} == MACHINES
        assert " Machine " in cli(cluster, "nodes", "list").stdout
        described = json.loads(cli(cluster, "cluster", "describe", "-o", "json").stdout)
        assert [row["machine"] for row in described["brokers"]] == list(MACHINES.values())
        with Load(cluster) as load:
            assert "replicas on nodes 2, 5 have nowhere to go" in cli(
                cluster, "nodes", "drain", "--machine", "b"
            ).stderr.replace("\n", " ")
            load.goes_on()
            for node in (2, 5):
                cluster.kill(node)
            load.goes_on()
            admin.create_topics([NewTopic("later", num_partitions=4, replication_factor=3)])

        def are_led() -> bool:
            topics = admin.describe_topics(include_internal=True)
            return all(partition.leader not in (None, 2, 5) for topic in topics for partition in topic.partitions)

        until(are_led, "every partition has a leader on another machine")
        for topic in admin.describe_topics(include_internal=True):
            for partition in topic.partitions:
                assert {MACHINES[node] for node in partition.replicas} == {"a", "b", "c"}, (topic.name, partition)
        assert_one_copy_each_in_order(cluster, load.count)


def test_a_machine_is_drained_and_removed() -> None:
    """`--machine` drains, keeps and removes all nodes of a machine."""
    settings = {node: {"machine": "abcd"[(node - 1) % 4]} for node in range(1, 9)}
    with (
        LocalCluster(nodes=8, controllers=3, node_settings=settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, num_partitions=8, replication_factor=3)])
        both = cli(cluster, "nodes", "drain", "4", "--machine", "d")
        assert (both.returncode, "give the id of a node, or --machine NAME" in both.stderr) == (2, True)
        unknown = cli(cluster, "nodes", "drain", "--machine", "x").stderr
        assert "no node is on machine 'x'; the machines are a, b, c, d" in unknown
        planned = json.loads(cli(cluster, "nodes", "drain", "--machine", "d", "--dry-run", "-o", "json").stdout)
        assert (planned["machine"], planned["node_ids"]) == ("d", [4, 8])
        assert planned["all_moves"] > 0
        with Load(cluster) as load:
            load.goes_on()
            drained = cli(cluster, "nodes", "drain", "--machine", "d")
            assert "left machine d (nodes 4,8)" in drained.stdout, drained
            load.goes_on()
            listed = json.loads(cli(cluster, "nodes", "list", "-o", "json").stdout)
            states = {row["node_id"]: (row["state"], row["replicas"]) for row in listed}
            assert {states[4], states[8]} == {("up, draining", 0)}
            assert cli(cluster, "nodes", "undrain", "--machine", "d").stdout == "machine d (nodes 4,8) stays\n"
            cli(cluster, "nodes", "drain", "--machine", "d")
            for node in (4, 8):
                cluster.stop(node)
            until(
                lambda: cli(cluster, "nodes", "remove", "--machine", "d").returncode == 0,
                "both nodes count as down, and are removed",
            )
            load.goes_on()
        assert_one_copy_each_in_order(cluster, load.count)
