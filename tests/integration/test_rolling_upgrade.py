"""A cluster of the former version is upgraded node by node under load, and no client notices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import PATIENCE_S, cli, until
from former_version import LEVEL_1
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from bench.compare import lay_out
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, QuorumlogError

pytestmark = pytest.mark.cluster


@pytest.fixture
def former(tmp_path: Path) -> str:
    """Returns the directory of the former version's packages."""
    packages = lay_out(LEVEL_1, tmp_path)
    if packages is None:
        pytest.skip(f"this checkout does not have commit {LEVEL_1}: fetch its whole history")
    return str(packages)


def features(cluster: LocalCluster) -> tuple[int, dict[int, int]]:
    """The cluster's feature level, and what each node supports; 0 is what a node of level 1 does not say."""
    described: dict[str, Any] = json.loads(cli(cluster, "features", "describe", "-o", "json").stdout)
    return described["feature_level"], {node["node_id"]: node["supported"] for node in described["nodes"]}


def send_named(cluster: LocalCluster, value: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name="etl") as named:
        named.send("names", value).result(PATIENCE_S)


def values(member: Consumer) -> list[bytes | None]:
    return [record.value for records in member.poll(500).values() for record in records]


def is_healthy(cluster: LocalCluster) -> bool:
    return cli(cluster, "cluster", "health").returncode == 0


def upgraded(cluster: LocalCluster, former: str, node: int) -> None:
    """The node is stopped and starts with the code of this checkout."""
    cluster.stop(node)
    cluster._state.env.pop("PYTHONPATH", None)
    cluster.start(node)
    cluster._state.env["PYTHONPATH"] = former
    until(lambda: is_healthy(cluster), f"all is in sync again after the upgrade of node {node}")


def test_nodes_are_upgraded_one_by_one_under_load_and_the_feature_level_rises_behind_the_last(former: str) -> None:
    with (
        LocalCluster(nodes=3, env={"PYTHONPATH": former}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(topic, replication_factor=3) for topic in (MOVED.topic, "names")])
        send_named(cluster, b"before")
        with Load(cluster) as load:
            load.goes_on()
            for node in (1, 2, 3):
                assert features(cluster)[0] <= 1
                upgraded(cluster, former, node)
                load.goes_on()
                if node == 1:
                    with pytest.raises(QuorumlogError):  # What the others would misread waits for them.
                        admin.drain_node(3)
            until(lambda: features(cluster) == (3, {1: 3, 2: 3, 3: 3}), "the feature level has risen")
            load.goes_on()
            # There is no way back: a node of the former version reports that in a line.
            cluster.stop(3)
            with pytest.raises(ClusterError):
                cluster.start(3)
            assert "upgrade this node" in cluster.log_path(3).read_text().splitlines()[-1]
            load.goes_on()
            cluster._state.env.pop("PYTHONPATH")
            cluster.start(3)
            until(lambda: is_healthy(cluster), "all is well")
            send_named(cluster, b"after")
        assert load.failures == []
        assert_one_copy_each_in_order(cluster, load.acknowledged)
        with Consumer("names", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as member:
            read: list[bytes | None] = []
            while len(read) < 2:  # The test's own time limit ends it.
                read += values(member)
        assert read == [b"before", b"after"]


def test_while_the_level_waits_for_an_operator_there_is_a_way_back(former: str) -> None:
    manual = {"PYTHONPATH": former, "QUORUMLOG_FEATURE_UPGRADE": "manual"}
    with (
        LocalCluster(nodes=1, env=manual) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, replication_factor=1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(MOVED.topic, b"0").result(30)
        upgraded(cluster, former, 1)
        assert features(cluster) == (1, {1: 3})
        cluster.stop(1)
        cluster.start(1)  # The former version again.
        until(lambda: is_healthy(cluster), "the former version continues")
        upgraded(cluster, former, 1)
        dry = cli(cluster, "features", "upgrade", "--dry-run")
        assert dry.stdout == "feature level 3: all nodes support it\n", dry.stderr
        assert cli(cluster, "features", "upgrade").stdout == "the cluster is at feature level 3\n"
        assert features(cluster) == (3, {1: 3})
        assert_one_copy_each_in_order(cluster, 1)


def test_transactions_wait_for_the_feature_level(former: str) -> None:
    """Before, they are refused in one line with what to do. Then they work."""
    manual = {"PYTHONPATH": former, "QUORUMLOG_FEATURE_UPGRADE": "manual"}
    with (
        LocalCluster(nodes=1, env=manual) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic("orders", replication_factor=1)])
        upgraded(cluster, former, 1)
        assert features(cluster) == (1, {1: 3})
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="billing") as producer:
            with pytest.raises(QuorumlogError) as refused, producer.transaction() as tx:
                tx.send("orders", b"too early")
            assert refused.value.message.startswith(
                "__transactions needs feature level 3, the cluster is at 1: upgrade all nodes, then the features"
            )
            shown = cli(cluster, "transactions", "list")
            assert shown.returncode == 1
            assert "needs feature level 3, the cluster is at 1" in shown.stderr
            assert cli(cluster, "features", "upgrade").returncode == 0
            with producer.transaction() as tx:
                tx.send("orders", b"committed")
        with Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as reader:
            read: list[bytes | None] = []
            while not read:  # The test's own time limit ends it.
                read += values(reader)
        assert read == [b"committed"]
