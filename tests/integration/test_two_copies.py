"""Two copies and a witness on three nodes: each node is killed in turn under load, and the writes continue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from command_line import PATIENCE_S, cli, until
from steady_load import SteadyLoad

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    Admin,
    Consumer,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NewTopic,
    Producer,
)
from quorumlog.sdk.errors import UnsupportedVersionError

pytestmark = pytest.mark.cluster
TOPIC = "orders"
#: What the witness's disk must not hold.
MARK = b"payload-that-no-witness-keeps"
#: On a busy machine. Without other load a failover takes a tenth of a second.
LONGEST_GAP_S = 5.0


class Load(SteadyLoad):
    """One marked record a round."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.acknowledged: list[bytes] = []

    @property
    def count(self) -> int:
        return len(self.acknowledged)

    def send_round(self, producer: Producer, number: int) -> None:
        value = b"%s-%d" % (MARK, number)
        producer.send(TOPIC, value).result(timeout=PATIENCE_S)
        self.acknowledged.append(value)


def in_sync(admin: Admin) -> int:
    [topic] = admin.describe_topics([TOPIC], linearizable=True)
    return len(topic.partitions[0].isr)


def bytes_on_disk(cluster: LocalCluster, node: int) -> bytes:
    return (cluster.data_dir(node) / "data.mdb").read_bytes()


@pytest.mark.alone  # It measures how long nothing was acknowledged.
@pytest.mark.scenario("23c")
def test_each_node_is_killed_in_turn_and_nothing_acknowledged_is_lost() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2]})])
        [topic] = admin.describe_topics([TOPIC])
        assert topic.partitions[0].witness == 3
        gaps: dict[int, float] = {}
        with Load(cluster) as load:
            for victim in (1, 2, 3, 1):
                load.goes_on()
                load.longest_gap_s = 0.0
                cluster.kill(victim)
                load.goes_on()
                gaps[victim] = max(load.longest_gap_s, gaps.get(victim, 0.0))
                if victim != 3:
                    until(lambda: in_sync(admin) == 1, "the metadata show that it is gone")
                    load.goes_on()
                cluster.start(victim)
                until(lambda: in_sync(admin) == 2, "both copies are in sync again")
        assert load.failures == []
        print(f"{len(load.acknowledged)} records; longest gap by the node that was killed: {gaps}")
        assert max(gaps.values()) < LONGEST_GAP_S
        with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers) as consumer:
            ends = consumer.end_offsets(consumer.assignment())
            found: Counter[bytes] = Counter()
            while sum(found.values()) < sum(ends.values()):
                for records in consumer.poll(timeout_ms=2_000).values():
                    found.update(record.value for record in records)
        assert not [value for value in load.acknowledged if found[value] != 1]
        assert MARK in bytes_on_disk(cluster, 1)
        assert MARK in bytes_on_disk(cluster, 2)
        assert MARK not in bytes_on_disk(cluster, 3)


def test_a_witness_is_shown_and_serves_nothing() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        created = cli(cluster, "topics", "create", TOPIC, "--partitions", "3", "--replication-factor", "2")
        assert created.returncode == 0, created.stderr
        shown = json.loads(cli(cluster, "topics", "describe", TOPIC, "--output", "json").stdout)
        partitions = (shown[0] if isinstance(shown, list) else shown)["partitions"]
        for partition in partitions:
            assert sorted((*partition["replicas"], partition["witness"])) == [1, 2, 3]
        assert "Witness: " in cli(cluster, "topics", "describe", TOPIC).stdout
        until(lambda: all(p.leader is not None for p in admin.describe_topics([TOPIC])[0].partitions), "all are led")
        for partition in admin.describe_topics([TOPIC])[0].partitions:
            assert partition.leader != partition.witness
            assert partition.witness not in partition.isr


def test_two_nodes_refuse_two_copies_in_one_line() -> None:
    with LocalCluster(nodes=2) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(InvalidReplicationFactorError, match="needs 3 nodes, 2 for the copies"):
            admin.create_topics([NewTopic(TOPIC, 1, 2)])
        refused = cli(cluster, "topics", "create", TOPIC, "--replication-factor", "2")
        assert refused.returncode == 1
        assert len(refused.stderr.splitlines()) == 1


def test_a_small_third_node_takes_witnesses_only(tmp_path: Path) -> None:
    """Two machines with the data, and a small one that is nothing but a witness."""
    with LocalCluster(nodes=2, controllers=1) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        reserved = ReservedPorts(1)
        address = f"127.0.0.1:{reserved.ports[0]}"
        command = [
            sys.executable, "-m", "quorumlog.cli.main", "node", "start", "--node-id", "9", "--listen", address,
            "--data-dir", str(tmp_path / "small"), "--controllers", f"1@{cluster.address(1)}", "--witness-only",
        ]  # fmt: skip
        with (tmp_path / "log").open("wb") as log:
            small = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until(
                lambda: 9 in {each.node_id for each in admin.describe_cluster().brokers if not each.fenced}, "it is up"
            )
            until(lambda: created(admin, NewTopic("pair", 4, 2)), "the feature level is raised")
            listed = {row["node_id"]: row for row in json.loads(cli(cluster, "nodes", "list", "-o", "json").stdout)}
            assert [listed[node]["state"] for node in (1, 9)] == ["up", "up, witnesses only"]
            [pair] = admin.describe_topics(["pair"])
            assert [partition.witness for partition in pair.partitions] == [9] * 4
            admin.create_topics([NewTopic("single", 6, 1)])
            [single] = admin.describe_topics(["single"])
            assert {node for partition in single.partitions for node in partition.replicas} == {1, 2}
            with pytest.raises(InvalidReplicationFactorError, match="1 for witnesses only"):
                admin.create_topics([NewTopic("three", 1, 3)])
            with pytest.raises(InvalidReplicaAssignmentError, match="--witness-only"):
                admin.create_topics([NewTopic("named", replica_assignments={0: [1, 2, 9]})])
            with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
                producer.send("pair", MARK, partition=0).result(timeout=PATIENCE_S)
                group = Consumer("pair", bootstrap_servers=cluster.bootstrap_servers, group_id="readers")
                with group as consumer:
                    until(lambda: any(consumer.poll(timeout_ms=1_000).values()), "a group reads it")
        finally:
            small.terminate()
            small.wait(PATIENCE_S)
            reserved.close()
        assert MARK not in (tmp_path / "small" / "data.mdb").read_bytes()


def created(admin: Admin, topic: NewTopic) -> bool:
    """True if a topic could be created by now."""
    try:
        admin.create_topics([topic])
    except UnsupportedVersionError:
        return False
    return True


def test_two_copies_become_three_by_way_of_one_and_the_witness_node_gets_the_records() -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2]})])
        with Load(cluster) as load:
            load.goes_on()
            refused = cli(cluster, "partitions", "reassign", "-t", TOPIC, "-p", "0", "--replicas", "1,2,3")
            assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
            assert "node 3 would have its witness and a replica" in refused.stderr
            for nodes in ("1", "1,2,3", "3", "3,1"):
                moved = cli(cluster, "partitions", "reassign", "-t", TOPIC, "-p", "0", "--replicas", nodes, "--wait")
                assert moved.returncode == 0, moved.stderr
                load.goes_on()
        assert load.failures == []
        [topic] = admin.describe_topics([TOPIC], linearizable=True)
        assert (topic.partitions[0].replicas, topic.partitions[0].witness) == ((3, 1), 2)
        with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers) as consumer:
            found: list[bytes] = []
            while len(found) < len(load.acknowledged):
                for records in consumer.poll(timeout_ms=2_000).values():
                    found += [record.value for record in records]
        assert found == load.acknowledged
