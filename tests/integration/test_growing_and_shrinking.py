"""A cluster grows from three nodes to five and shrinks again, the metadata quorum with it, while nodes are killed."""

from __future__ import annotations

import json

import pytest
from command_line import cli, cli_here, complaints, until
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

# It measures how long nothing was acknowledged.
pytestmark = [pytest.mark.cluster, pytest.mark.alone]
#: A failover takes a fraction of a second on a machine that does nothing else, and this one does.
A_FAILOVER_S = 5.0


def voters(admin: Admin) -> list[int]:
    return sorted(voter.node_id for voter in admin.describe_quorum().voters)


def counts_as_down(admin: Admin, node: int) -> bool:
    """With the controller. `cluster health` says so before, of a node that does not answer."""
    return any(each.fenced for each in admin.describe_cluster(linearizable=True).brokers if each.node_id == node)


def on(admin: Admin, node: int) -> int:
    topics = admin.describe_topics(include_internal=True, linearizable=True)
    return sum(node in partition.replicas for topic in topics for partition in topic.partitions)


def done(cluster: LocalCluster, *arguments: str) -> str:
    ended = cli(cluster, *arguments)
    assert (ended.returncode, complaints(ended)) == (0, ""), (arguments, ended.stderr)
    return ended.stdout


def killed_and_back(cluster: LocalCluster, node: int, load: Load) -> None:
    """A node is lost for a moment, and the load continues without it."""
    cluster.kill(node)
    load.goes_on()
    cluster.start(node)
    until(lambda: cli_here(cluster, "cluster", "health").returncode == 0, "all is well again")


def test_a_cluster_grows_and_shrinks_with_its_quorum_while_nodes_are_killed() -> None:
    with (
        LocalCluster(nodes=5, controllers=3) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        # As if 4 and 5 were new: they have nothing.
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [1, 2, 3]})])
        admin.create_topics([NewTopic("others", replica_assignments={number: [1, 2, 3] for number in range(10)})])
        with Load(cluster) as load:
            load.goes_on()
            done(cluster, "quorum", "add", "4", "5")
            assert voters(admin) == [1, 2, 3, 4, 5]
            killed_and_back(cluster, 2, load)
            plan = json.loads(done(cluster, "partitions", "rebalance", "--dry-run", "-o", "json"))
            held = [load["replicas_after"] for load in plan["loads"]]
            assert max(held) - min(held) <= 1
            done(cluster, "partitions", "rebalance", "--throttle", "20MB/s")
            cluster.kill(4)
            load.goes_on()
            cluster.start(4)
            until(lambda: not admin.list_partition_reassignments(), "the moves end although a node was lost")
            assert on(admin, 5) > 0
            assert on(admin, 4) > 0
            # Nodes 1 and 2, which formed the cluster, go.
            for leaving, left in ((1, [3, 4, 5]), (2, [3, 4, 5])):
                if leaving in voters(admin):
                    done(cluster, "quorum", "remove", "1", "2")
                done(cluster, "nodes", "drain", str(leaving), "--throttle", "20MB/s")
                assert voters(admin) == left
                cluster.kill(leaving)
                load.goes_on()
                until(
                    lambda gone=leaving: counts_as_down(admin, gone),
                    "it counts as down",
                )
                done(cluster, "nodes", "remove", str(leaving))
            killed_and_back(cluster, 3, load)
            load.goes_on()
        assert load.failures == []
        assert load.longest_gap_s < A_FAILOVER_S, f"{load.longest_gap_s:.2f} s without an acknowledgement"
        assert [row["node_id"] for row in json.loads(done(cluster, "nodes", "list", "-o", "json"))] == [3, 4, 5]
        assert_one_copy_each_in_order(cluster, load.acknowledged)
