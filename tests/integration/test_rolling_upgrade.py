"""A cluster of the former version is upgraded node by node under load, and no client notices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import cli, until
from former_version import LEVEL_1, lay_out
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, QuorumlogError
from quorumlog.server.local import ClusterError, LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def former(tmp_path: Path) -> str:
    """Where the packages of the former version are."""
    packages = lay_out(LEVEL_1, tmp_path)
    if packages is None:
        pytest.skip(f"this checkout does not have commit {LEVEL_1}: fetch its whole history")
    return str(packages)


def features(cluster: LocalCluster) -> tuple[int, dict[int, int]]:
    """The cluster's feature level, and what each node supports; 0 is what a node of level 1 does not say."""
    described: dict[str, Any] = json.loads(cli(cluster, "features", "describe", "-o", "json").stdout)
    return described["feature_level"], {node["node_id"]: node["supported"] for node in described["nodes"]}


def is_healthy(cluster: LocalCluster) -> bool:
    return cli(cluster, "cluster", "health").returncode == 0


def test_nodes_are_upgraded_one_by_one_under_load_and_the_feature_level_rises_behind_the_last(former: str) -> None:
    with (
        LocalCluster(nodes=3, env={"PYTHONPATH": former}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, num_partitions=2, replication_factor=3)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name="etl") as named:
            named.send(MOVED.topic, b"before", partition=1).result(30)
        with Load(cluster) as load:
            load.goes_on()
            for node in (1, 2, 3):
                assert features(cluster)[0] <= 1
                cluster.stop(node)
                cluster._state.env.pop("PYTHONPATH", None)
                cluster.start(node)
                cluster._state.env["PYTHONPATH"] = former
                until(lambda: is_healthy(cluster), f"all is in sync again after the upgrade of node {node}")
                load.goes_on()
                if node == 1:
                    with pytest.raises(QuorumlogError):  # What the others would misread waits for them.
                        admin.drain_node(3)
            until(lambda: features(cluster) == (2, {1: 2, 2: 2, 3: 2}), "the feature level has risen")
            load.goes_on()
            # There is no way back: a node of the former version is told so in a line.
            cluster.stop(3)
            with pytest.raises(ClusterError):
                cluster.start(3)
            assert "upgrade this node" in cluster.log_path(3).read_text().splitlines()[-1]
            load.goes_on()
            cluster._state.env.pop("PYTHONPATH")
            cluster.start(3)
            until(lambda: is_healthy(cluster), "all is well")
        assert load.failures == []
        assert_one_copy_each_in_order(cluster, load.acknowledged)
        with Consumer(
            MOVED.topic, bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as member:
            until(lambda: any(tp.partition == 1 for tp in member.poll(500)), "what was written before is read")
