"""The metadata quorum of real nodes moves while controllers are killed, and one that is lost is said to be."""

from __future__ import annotations

import pytest
from command_line import PATIENCE_S, cli, until

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer

pytestmark = pytest.mark.cluster


def voters(admin: Admin) -> list[int]:
    return sorted(voter.node_id for voter in admin.describe_quorum().voters)


def test_a_dead_controller_is_replaced_and_the_cluster_survives_the_loss_of_another_one() -> None:
    with (
        LocalCluster(nodes=4, controllers=3) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=3)])
        assert voters(admin) == [1, 2, 3]
        dead = admin.describe_quorum().leader_id
        assert dead is not None
        cluster.kill(dead)
        left = [node for node in (1, 2, 3) if node != dead]

        replaced = cli(cluster, "quorum", "replace", str(dead), "--with", "4")
        assert (replaced.returncode, replaced.stderr) == (0, "")
        former = ",".join(map(str, (1, 2, 3)))
        assert replaced.stdout == f"nodes {left[0]},{left[1]},4 vote; before: {former}\n"
        assert voters(admin) == [*left, 4]

        # The dead one returns as a node that votes no more, so that another one may die.
        cluster.start(dead)
        until(lambda: dead in {each.node_id for each in admin.describe_quorum().observers}, "the dead one is back")
        until(lambda: not any(broker.fenced for broker in admin.describe_cluster().brokers), "all are up")
        cluster.kill(left[0])
        admin.create_topics([NewTopic("after", num_partitions=3, replication_factor=3)])
        assert producer.send("orders", b"x").result(timeout=PATIENCE_S).offset >= 0


def test_a_node_that_comes_later_finds_a_quorum_that_has_moved() -> None:
    with (
        LocalCluster(nodes=5, controllers=1) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        moved = cli(cluster, "quorum", "add", "3", "4", "5")
        assert (moved.returncode, moved.stderr) == (0, "")
        assert moved.stdout.endswith("4 voters survive the loss of 1, as 3 would\n")
        assert cli(cluster, "quorum", "remove", "1").returncode == 0
        assert voters(admin) == [3, 4, 5]
        # It has only the address of the node that formed it.
        cluster.stop(2)
        cluster.start(2)
        cluster.kill(1)
        admin.create_topics([NewTopic("after", num_partitions=1, replication_factor=3)])
        cluster.kill(3)
        admin.create_topics([NewTopic("later", num_partitions=1, replication_factor=1)])


def test_a_lost_quorum_is_said_to_be_lost() -> None:
    with LocalCluster(nodes=3) as cluster:
        cluster.kill(1)
        cluster.kill(2)
        with Admin(bootstrap_servers=cluster.address(3)) as admin:
            # Where the third one led, it may take an election timeout until it detects that it no longer leads.
            until(lambda: admin.describe_quorum().leader_id is None, "no node leads")
        described = cli(cluster, "quorum", "describe")
        assert described.returncode == 1
        assert "LeaderId:               none\n" in described.stdout
        assert described.stderr == (
            "quorumlog: the metadata quorum is lost: of its voters 1,2,3 only 3 can be reached, which is not a"
            " majority; start the others\n"
        )
