"""A node's data is deleted under load, and one command brings all of it back from the others."""

from __future__ import annotations

import json
import shutil
import time

import pytest
from command_line import cli, cli_here, complaints, until
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: From the command to all replicas in sync: the logs of these tests are short.
LIMIT_S = 60


def health(cluster: LocalCluster) -> str:
    return cli(cluster, "cluster", "health").stdout


def placed(admin: Admin) -> dict[tuple[str, int], tuple[int, ...]]:
    """The nodes of each partition's replicas."""
    topics = admin.describe_topics(include_internal=True, linearizable=True)
    return {(topic.name, each.partition): each.replicas for topic in topics for each in topic.partitions}


def lose_disk(cluster: LocalCluster, node: int) -> None:
    cluster.kill(node)
    shutil.rmtree(cluster.data_dir(node))
    cluster.start(node)


@pytest.mark.parametrize("lost", [1, 4], ids=["a controller", "no controller"])
def test_a_node_whose_data_is_deleted_under_load_is_its_own_replacement(lost: int) -> None:
    with (
        LocalCluster(nodes=4, controllers=3) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [lost, 2, 3]})])
        admin.create_topics([NewTopic("others", num_partitions=8, replication_factor=3)])
        before = placed(admin)
        with Load(cluster) as load:
            load.goes_on()
            lose_disk(cluster, lost)
            load.goes_on()
            command = f"quorumlog nodes replace {lost} --with {lost}"
            until(lambda: command in health(cluster), "health says what to type")
            until(
                lambda: command in cli_here(cluster, "nodes", "list").stdout,
                "so does the list, whichever node is asked",
            )
            planned = json.loads(cli(cluster, *command.split()[1:], "--dry-run", "-o", "json").stdout)
            assert planned["all_moves"] == sum(lost in replicas for replicas in before.values())
            began = time.monotonic()
            replaced = cli(cluster, *command.split()[1:])
            took_s = time.monotonic() - began
            assert (replaced.returncode, complaints(replaced)) == (0, ""), replaced.stdout
            assert replaced.stdout.endswith(f"node {lost} has all of its replicas again\n")
            assert took_s < LIMIT_S
            load.goes_on()
            until(
                lambda: cli_here(cluster, "cluster", "health").returncode == 0,
                "the cluster becomes healthy",
            )
            until(lambda: {each.node_id for each in admin.describe_quorum().voters} == {1, 2, 3}, "all vote")
        assert_one_copy_each_in_order(cluster, load.acknowledged)
        assert placed(admin) == before, "each is where it was, and prefers the leader that it preferred"
        # What it has now counts: with another node gone, it is needed for every majority.
        cluster.kill(2)
        with Load(cluster) as load:
            load.goes_on()


def give_up_disk_of_3(cluster: LocalCluster) -> str:
    """Gives up the disk of node 3, and returns what the command prints.

    The controller refuses that until it has noticed that the node is down.
    """
    printed: list[str] = []

    def given_up() -> bool:
        done = cli(cluster, "nodes", "replace", "3", "--with", "3", "--no-wait")
        assert done.returncode == 0 or "node 3 is up" in done.stderr, done.stderr
        printed.append(done.stdout)
        return done.returncode == 0

    until(given_up, "the disk of node 3 is given up")
    return printed[-1]


def test_a_disk_that_was_given_up_does_not_count_when_it_is_found_again() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", num_partitions=2, replication_factor=3)])
        cluster.kill(3)
        found = cluster.data_dir(3).with_name("found")
        shutil.move(cluster.data_dir(3), found)
        assert "start node 3 with an empty data directory" in give_up_disk_of_3(cluster)
        shutil.copytree(found, cluster.data_dir(3))
        cluster.start(3)
        until(lambda: "was given up as lost" in cluster.log_path(3).read_text(), "it is reported")
        # The contacted node may be node 3 itself, which has only the message of its refusal.
        until(lambda: "the disk of node 3 is being replaced" in health(cluster), "health says so")
        lose_disk(cluster, 3)
        until(lambda: cli_here(cluster, "cluster", "health").returncode == 0, "all is well again")


def test_the_only_copy_is_not_given_up() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("alone", replica_assignments={0: [3]})])
        lose_disk(cluster, 3)
        until(lambda: "returned with an empty data directory" in health(cluster), "it waits")
        until(lambda: "delete their topics first (alone)" in health(cluster), "health says what is in the way")
        assert "--with 3" not in health(cluster)
        refused = cli(cluster, "nodes", "replace", "3", "--with", "3")
        assert refused.returncode == 1
        assert "delete their topics first (alone)" in refused.stderr
        admin.delete_topics(["alone"])
        replaced = cli(cluster, "nodes", "replace", "3", "--with", "3")
        assert replaced.returncode == 0, replaced.stderr
        until(lambda: cli_here(cluster, "cluster", "health").returncode == 0, "all is well again")


def test_health_and_the_list_say_what_works_where_a_partition_has_a_witness() -> None:
    with LocalCluster(nodes=4, controllers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("pair", replica_assignments={0: [3, 2]})])
        cluster.kill(4)
        lose_disk(cluster, 3)
        hint = "partitions with a witness need a node with another id: quorumlog nodes replace 3 --with ID"
        until(lambda: hint in health(cluster), "health says so")
        until(lambda: hint in cli_here(cluster, "nodes", "list").stdout, "so does the list")
        assert "--with 3" not in health(cluster)
        cluster.start(4)
        until(
            lambda: cli_here(cluster, "nodes", "replace", "3", "--with", "4", "--dry-run").returncode == 0, "it works"
        )


def test_another_node_gets_the_vote_of_one_that_never_returns_on_its_new_disk() -> None:
    with LocalCluster(nodes=4, controllers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2, 3]})])
        cluster.kill(3)

        give_up_disk_of_3(cluster)
        until(lambda: len(admin.describe_quorum().voters) == 2, "the quorum continues without it")

        def replaced() -> bool:
            ended = cli(cluster, "nodes", "replace", "3", "--with", "4")
            # It is refused as long as anything still names the node.
            assert ended.returncode == 0 or "is being given up" in ended.stderr, ended.stderr
            return "metadata quorum: nodes 1,2,4" in ended.stdout

        until(replaced, "another one takes over")
        until(lambda: {each.node_id for each in admin.describe_quorum().voters} == {1, 2, 4}, "it votes")
