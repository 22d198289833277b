"""Machines with several workers, as real processes: a worker is killed under load, then a whole machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from command_line import PATIENCE_S, cli, leader_of, until
from test_moved_partitions import MOVED, Load, assert_one_copy_each_in_order

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.local.cleanup_process import start_time
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer

pytestmark = pytest.mark.cluster


def test_workers_and_machines_are_killed() -> None:
    """Under load: a worker returns automatically, a machine when it is started, and no acknowledged record is lost."""
    with (
        LocalCluster(nodes=3, workers=2) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        assert cluster.member_ids == (64, 65, 128, 129, 192, 193)
        assert cluster.controller_ids == (64, 128, 192)
        admin.create_topics([NewTopic(MOVED.topic, 1, 3), NewTopic("others", 6, 3)])
        for topic in admin.describe_topics(include_internal=True):
            for partition in topic.partitions:
                assert {cluster.node_of(replica) for replica in partition.replicas} == {1, 2, 3}, (topic, partition)
        with Load(cluster) as load:
            load.goes_on()
            worker = leader_of(cluster, MOVED.topic)
            before, parent = cluster.pid(worker), cluster.pid(cluster.node_of(worker))
            cluster.kill(worker)
            load.goes_on()
            until(lambda: cluster.pid(worker) not in (None, before), "its parent starts it again")
            assert cluster.pid(cluster.node_of(worker)) == parent
            cluster.wait_ready()
            load.goes_on()

            machine = cluster.node_of(leader_of(cluster, MOVED.topic))
            members = [member for member in cluster.member_ids if cluster.node_of(member) == machine]
            pids = [cluster.pid(member) for member in members]
            cluster.kill(machine)
            assert [start_time(pid) for pid in pids if pid is not None] == ["", ""]
            assert [cluster.pid(member) for member in members] == [None, None]
            load.goes_on()
            until(lambda: leader_of(cluster, MOVED.topic) not in members, "another machine leads")
            with pytest.raises(ClusterError, match=f"node {members[0]} is a worker of node {machine}"):
                cluster.start(members[0])
            cluster.start(machine)
            cluster.wait_ready()
            load.goes_on()
        assert load.failures == []
        assert_one_copy_each_in_order(cluster, load.acknowledged)


def test_workers_have_certificates_and_kafka_ports() -> None:
    """Each has its own of both; commands reach all of them."""
    with LocalCluster(nodes=1, workers=2, tls=True, kafka=True) as cluster:
        servers = {"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_tls}
        first, second = cluster.bootstrap_servers.split(",")
        assert int(second.rpartition(":")[2]) == int(first.rpartition(":")[2]) + 1
        assert len(set(cluster.kafka_bootstrap_servers.split(","))) == 2
        with Admin(**servers) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
            (topic,) = admin.describe_topics(["orders"])
            # The machine has two workers, which have a partition each.
            assert {partition.leader for partition in topic.partitions} == {64, 65}
        with Producer(**servers) as producer:
            for partition in (0, 1):
                producer.send("orders", b"%d" % partition, partition=partition).result(timeout=PATIENCE_S)
        with Consumer("orders", **servers) as consumer:
            values: list[bytes | None] = []
            until(
                lambda: (
                    values.extend(one.value for many in consumer.poll(timeout_ms=500).values() for one in many)
                    or len(values) == 2
                ),
                "both records are read",
            )
        processes = [psutil.Process(pid) for pid in map(cluster.pid, (1, 64, 65)) if pid is not None]
        cluster.pause(65)
        until(lambda: processes[2].status() == "stopped", "a worker is paused")
        assert "stopped" not in (processes[0].status(), processes[1].status())
        cluster.pause(1)
        until(lambda: [each.status() for each in processes] == ["stopped"] * 3, "all of the node is paused")
        cluster.resume(1)
        cluster.wait_ready()


def test_a_cluster_from_the_command_line(tmp_path: Path) -> None:
    """The directory keeps the number of workers; status shows each."""

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "quorumlog.cli.main", "cluster", *words, "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )

    with LocalCluster(nodes=1, workers=2, data_dir=tmp_path) as cluster:
        base_port = int(cluster.address(1).rpartition(":")[2])
        assert cli(cluster, "nodes", "list").stdout.count(" up ") == 2
    refused = command("up", "--nodes", "1", "--workers", "3", "--detach")
    assert refused.returncode == 1
    assert "has a cluster of 1 nodes with 2 workers each" in refused.stderr
    up = command("up", "--detach", "--output", "json")
    try:
        assert up.returncode == 0, up.stderr
        assert json.loads(up.stdout)["bootstrap_servers"] == f"127.0.0.1:{base_port},127.0.0.1:{base_port + 1}"
        shown = json.loads(command("status", "--output", "json").stdout)["nodes"]
        assert [(node["node_id"], node["ready"]) for node in shown] == [(64, True), (65, True)]
        assert [Path(node["data_dir"]).name for node in shown] == ["w00", "w01"]
        assert len({node["pid"] for node in shown}) == 2
    finally:
        down = command("down")
    assert "Stopped 1 node" in down.stdout
    assert all(start_time(node["pid"]) == "" for node in shown)


def test_wrong_numbers_of_workers_are_refused(tmp_path: Path) -> None:
    for nodes, workers, said in (
        (3, 0, "1 to 64 workers, not 0"),
        (8, 33, "1 to 32 workers"),
        (64, 2, "1 to 1 workers"),
    ):
        with pytest.raises(ValueError, match=said):
            LocalCluster(nodes=nodes, workers=workers, data_dir=tmp_path)
