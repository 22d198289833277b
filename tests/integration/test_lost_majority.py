"""A majority is lost permanently under load: the rest continues as another cluster, which no former node joins."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PATIENCE_S, cli, until
from test_moved_partitions import MOVED, Load

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.recovery.directory import survey_directory
from quorumlog.storage.inspection import Inspection

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def recover(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quorumlog.cli.main", "recover", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def recovered(cluster: LocalCluster, survivors: tuple[int, ...], tmp_path: Path) -> str:
    """Does on stopped survivors what the runbook says; returns the plan's report."""
    surveys = []
    for node in survivors:
        done = recover("survey", "--data-dir", cluster.data_dir(node))
        assert (done.returncode, done.stderr) == (0, "")
        surveys.append(tmp_path / f"node-{node}.json")
        surveys[-1].write_text(done.stdout)
    made = recover("plan", *surveys)
    assert made.returncode == 0, made.stderr
    plan = tmp_path / "plan.json"
    plan.write_text(made.stdout)
    for node in survivors:
        refused = recover("apply", plan, "--data-dir", cluster.data_dir(node))
        assert refused.returncode == 2
        assert "add --accept-loss" in refused.stderr
        done = recover("apply", plan, "--data-dir", cluster.data_dir(node), "--accept-loss")
        assert (done.returncode, done.stderr) == (0, "")
        again = recover("apply", plan, "--data-dir", cluster.data_dir(node), "--accept-loss")
        assert "nothing was changed" in again.stdout
    return made.stderr


def lose(cluster: LocalCluster, *nodes: int) -> None:
    for node in nodes:
        cluster.kill(node)
        shutil.rmtree(cluster.data_dir(node))


def is_well(cluster: LocalCluster) -> bool:
    return cli(cluster, "cluster", "health").returncode == 0


def values(cluster: LocalCluster, partition: TopicPartition) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=2_000).values():
                found += [record.value for record in records if record.value is not None]
    return found


def ends_on_disk(cluster: LocalCluster, node: int, group: int) -> int:
    """The offset after the last record that a stopped node has of a partition."""
    with Inspection(cluster.data_dir(node)) as inspection:
        headers = [row.header for row in inspection.entries(group) if row.header is not None]
    return headers[-1].last_offset + 1 if headers else 0


def test_one_of_three_goes_on_and_two_empty_nodes_join_it(tmp_path: Path) -> None:
    with LocalCluster(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(
            [
                NewTopic(MOVED.topic, replica_assignments={0: [3, 2, 1]}, topic_configs={"retention.ms": 1234567890}),
                NewTopic("pairs", num_partitions=6, replication_factor=2),
                NewTopic("alone", replica_assignments={0: [1], 1: [2]}),
            ]
        )
        [pairs] = admin.describe_topics(["pairs"])
        kept = [each.partition for each in pairs.partitions if 1 in each.replicas]
        witnessed = [each.partition for each in pairs.partitions if 1 not in each.replicas]
        assert kept
        assert witnessed, "of these node 1 has a witness, and no records"
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(60):
                producer.send("pairs", b"%d" % number, partition=number % 6)
                producer.send("alone", b"%d" % number, partition=number % 2)
        with Consumer(MOVED.topic, bootstrap_servers=cluster.bootstrap_servers, group_id="billing") as consumer:
            named = Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name="ledger")
            named.send("alone", b"named", partition=0).result(timeout=PATIENCE_S)
            with Load(cluster) as load:
                load.goes_on()
                consumer.poll(timeout_ms=10_000)
                lose(cluster, 2)
                # What is acknowledged from now on is on node 1.
                consumer.commit({MOVED: OffsetAndMetadata(17)})
                load.goes_on()
                lose(cluster, 3)
                cluster.stop(1)
                former = json.loads(recover("survey", "--data-dir", cluster.data_dir(1)).stdout)["cluster_id"]
                end = ends_on_disk(cluster, 1, raft_group(cluster, MOVED))
                acknowledged = load.acknowledged
                report = recovered(cluster, (1,), tmp_path)
                assert "given up permanently, with their data: 2, 3" in report
                assert "alone-1: restarts empty" in report
                assert f"pairs-{witnessed[0]}: restarts empty" in report
                cluster.start(1)
                # The clients that ran all the time continue.
                load.goes_on()
                named.send("alone", b"named again", partition=0).result(timeout=PATIENCE_S)
                named.close()
                assert admin.describe_cluster().cluster_id != former
                for node in (2, 3):
                    cluster.start(node)
                until(lambda: is_well(cluster), "the cluster becomes healthy automatically")
                until(lambda: {each.node_id for each in admin.describe_quorum().voters} == {1, 2, 3}, "both vote again")
                load.goes_on()
            assert (consumer.committed(MOVED) or 0) >= 17, "what the group had committed is there"
            consumer.poll(timeout_ms=10_000)
        assert acknowledged <= end
        assert values(cluster, MOVED) == [b"%d" % number for number in range(load.acknowledged)], "all, once, in order"
        assert values(cluster, TopicPartition("alone", 0))[-2:] == [b"named", b"named again"]
        assert values(cluster, TopicPartition("alone", 1)) == []
        for number in kept:
            assert values(cluster, TopicPartition("pairs", number)) == [b"%d" % n for n in range(number, 60, 6)]
        described = {
            topic.name: topic for topic in admin.describe_topics(["orders", "pairs", "alone"], linearizable=True)
        }
        assert described["orders"].configs["retention.ms"] == "1234567890"
        assert sorted(described["orders"].partitions[0].replicas) == [1, 2, 3]
        assert all(len(each.replicas) == 2 for each in described["pairs"].partitions)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sent = producer.send("alone", b"after", partition=1).result(timeout=PATIENCE_S)
        assert sent.offset >= 1 << 40, "no offset of a lost record is given to another"
        # What they have now counts: with node 1 gone, the others continue.
        cluster.kill(1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(*MOVED[:1], b"more", partition=0).result(timeout=PATIENCE_S)


def raft_group(cluster: LocalCluster, partition: TopicPartition) -> int:
    image = MetadataImage.from_snapshot(survey_directory(cluster.data_dir(1)).metadata)
    return image.topics[partition.topic].partitions[partition.partition].group


def test_two_of_five_go_on_each_with_what_it_has_more_of_and_nobody_else_comes_back(tmp_path: Path) -> None:
    with LocalCluster(nodes=5, controllers=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        ahead_on_4, ahead_on_1 = TopicPartition("ahead", 0), TopicPartition("ahead", 1)
        admin.create_topics([NewTopic("ahead", replica_assignments={0: [4, 2, 1], 1: [3, 1, 4]})])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:

            def write(partition: TopicPartition, *sent: bytes) -> None:
                for value in sent:
                    producer.send(partition.topic, value, partition=partition.partition).result(timeout=PATIENCE_S)

            write(ahead_on_4, b"all")
            write(ahead_on_1, b"all")
            cluster.kill(1)
            write(ahead_on_4, b"0", b"1", b"2")
            lose(cluster, 2)
            cluster.kill(4)
            cluster.start(1)
            write(ahead_on_1, b"0", b"1", b"2")
            former = cluster.data_dir(3).with_name("former")
            cluster.kill(3)
            shutil.move(cluster.data_dir(3), former)
            lose(cluster, 5)
            cluster.kill(1)
            report = recovered(cluster, (1, 4), tmp_path)
            assert "given up permanently, with their data: 2, 3, 5" in report
            for node in (1, 4):
                cluster.start(node)
            # Of the former cluster, and kept after all: logged in one line, and its messages are ignored.
            shutil.copytree(former, cluster.data_dir(3))
            with contextlib.suppress(ClusterError):  # It may end before it has answered once.
                cluster.start(3)
            until(lambda: refusals_of(cluster, 1, 3) != [], "it is refused")
            write(ahead_on_4, b"after")
            write(ahead_on_1, b"after")
            [line] = refusals_of(cluster, 1, 3)
            assert "start the node with an empty data directory" in line
            assert not [each for each in lines_since_start(cluster, 1) if "peer_connected" in each and "peer=3" in each]
            if cluster.is_running(3):
                cluster.kill(3)
            shutil.rmtree(cluster.data_dir(3))
            for node in (2, 3, 5):
                cluster.start(node)
            until(lambda: is_well(cluster), "the cluster becomes healthy automatically")
        for partition in (ahead_on_4, ahead_on_1):
            assert values(cluster, partition) == [b"all", b"0", b"1", b"2", b"after"]


def lines_since_start(cluster: LocalCluster, node: int) -> list[str]:
    return cluster.log_path(node).read_text().rpartition("node_started")[2].splitlines()


def refusals_of(cluster: LocalCluster, node: int, peer: int) -> list[str]:
    return [line for line in lines_since_start(cluster, node) if f"node {peer} returned from cluster" in line]
