"""Partitions move between nodes while they are written, a leader is killed, and no producer notices."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import PATIENCE_S, cli, leader_of, until
from steady_load import SteadyLoad

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NewTopic,
    NodeDescription,
    Producer,
    ReassignmentInProgressError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.cluster
MOVED = TopicPartition("orders", 0)


def replicas(admin: Admin) -> tuple[int, ...]:
    [topic] = admin.describe_topics([MOVED.topic], linearizable=True)
    return topic.partitions[0].replicas


class Load(SteadyLoad):
    """Ten numbered records a round."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.acknowledged = 0

    @property
    def count(self) -> int:
        return self.acknowledged

    def send_round(self, producer: Producer, number: int) -> None:
        sends = [producer.send(*MOVED[:1], b"%d" % (10 * number + place), partition=0) for place in range(10)]
        for send in sends:
            send.result(timeout=PATIENCE_S)
        self.acknowledged += len(sends)


def assert_one_copy_each_in_order(cluster: LocalCluster, count: int) -> None:
    with Consumer(MOVED.topic, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        end = consumer.end_offsets([MOVED])[MOVED]
        values: list[int] = []
        while len(values) < end:
            for records in consumer.poll(timeout_ms=2_000).values():
                values += [int(record.value) for record in records]
    assert values == list(range(count))


def test_a_partition_moves_twice_while_its_leader_is_killed_and_every_record_is_there_once() -> None:
    with LocalCluster(nodes=4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [1, 2, 3]})])
        with Load(cluster) as load:
            load.goes_on()
            admin.reassign_partitions({MOVED: [2, 3, 4]})
            leader = leader_of(cluster, MOVED.topic)
            cluster.kill(leader)
            load.goes_on()
            cluster.start(leader)
            until(lambda: not admin.list_partition_reassignments(), "the first move")
            assert replicas(admin) == (2, 3, 4)
            load.goes_on()
            moved = cli(cluster, "partitions", "reassign", "--topic", MOVED.topic, "--replicas", "4,1,2", "--wait")
            assert moved.returncode == 0, moved.stderr
            assert replicas(admin) == (4, 1, 2)
            load.goes_on()
        assert load.failures == []
        assert_one_copy_each_in_order(cluster, load.acknowledged)


def test_moves_from_the_command_line(tmp_path: Path) -> None:
    with LocalCluster(nodes=4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [1, 2, 3], 1: [2, 3, 4]})])
        assert "No partition is being moved." in cli(cluster, "partitions", "list-reassignments").stdout
        dry = cli(
            cluster, "partitions", "reassign", "-t", "orders", "-p", "0", "--replicas", "4", "--dry-run", "-o", "json"
        )
        assert json.loads(dry.stdout) == [
            {"topic": "orders", "partition": 0, "replicas": [4], "result": "could be moved"}
        ]
        assert admin.list_partition_reassignments() == {}

        plan = tmp_path / "plan.json"
        rows = [{"topic": "orders", "partition": number, "replicas": [1]} for number in (0, 1)]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        done = cli(cluster, "partitions", "reassign", "--file", str(plan), "--wait")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("moved") == 2
        assert replicas(admin) == (1,)

        refused = cli(cluster, "partitions", "reassign", "-t", "orders", "-p", "0", "--cancel")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
        assert "nothing to cancel" in refused.stderr
        with pytest.raises(ReassignmentInProgressError):
            admin.reassign_partitions({MOVED: None})
        for wrong, error in (
            ([1, 2, 3, 4], InvalidReplicationFactorError),
            ([1, 2, 9], InvalidReplicaAssignmentError),
            ([1, 1, 2], InvalidReplicaAssignmentError),
        ):
            with pytest.raises(error):
                admin.reassign_partitions({MOVED: wrong})
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.reassign_partitions({TopicPartition("orders", 7): [1]})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--replicas", "1,2,3"), "give --topic"),
        (("--topic", "orders"), "give either --replicas"),
        (("--topic", "orders", "--replicas", "1", "--cancel"), "give either --replicas"),
        (("--topic", "orders", "--replicas", "a,b"), "is not a list of node ids"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: tuple[str, ...], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from quorumlog.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["partitions", "reassign", *arguments])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert complaint in lines[0]


def test_a_throttled_move_says_what_is_left_survives_restarts_and_is_called_off() -> None:
    with LocalCluster(nodes=4) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [1, 2, 3]})])
        rng = random.Random(1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for future in [producer.send(MOVED.topic, rng.randbytes(100_000), partition=0) for _ in range(500)]:
                future.result(timeout=PATIENCE_S)
        # So slow that it is not over before all of this is done, on a busy machine too.
        requests = ("partitions", "reassign", "--topic", MOVED.topic, "--replicas", "1,2,4", "--throttle", "1.1MB/s")
        assert cli(cluster, *requests).returncode == 0

        def lacking() -> int:
            described = [each for each in admin.describe_nodes() if isinstance(each, NodeDescription)]
            return max((copy.left_bytes for each in described for copy in each.copies), default=0)

        until(lambda: 0 < lacking() < 50_000_000, "the copy is under way")
        assert "1.1 MB/s" in cli(cluster, "partitions", "list-reassignments").stdout
        leader = leader_of(cluster, MOVED.topic)
        cluster.kill(leader)
        cluster.start(leader)
        until(lambda: 0 < lacking() < 50_000_000, "the copy continues")
        assert admin.list_partition_reassignments()[MOVED].throttle_bytes_per_second == 1_100_000
        assert cli(cluster, "partitions", "reassign", "--topic", MOVED.topic, "--cancel", "--wait").returncode == 0
        assert replicas(admin) == (1, 2, 3)
        # Without the throttle it takes no time.
        assert cli(cluster, *requests[:-2], "--wait").returncode == 0
        assert replicas(admin) == (1, 2, 4)


def test_a_command_that_waits_says_what_it_waits_for() -> None:
    # It takes that long until a node that is gone counts as down.
    settings = {"broker_session_timeout_ms": 8_000}
    with (
        LocalCluster(nodes=4, settings=settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(MOVED.topic, replica_assignments={0: [1, 2, 3]})])
        cluster.kill(4)
        # Before the controller counts it as down: after that it would be refused.
        admin.reassign_partitions({MOVED: [1, 2, 4]})
        waiting = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "quorumlog.cli.main",
                "partitions",
                "reassign",
                "--topic",
                MOVED.topic,
                "--replicas",
                "1,2,4",
                "--wait",
                "-b",
                cluster.bootstrap_servers,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert any("orders-0 waits for node 4, which is down" in line for line in waiting.stderr), "it says so"
        cluster.start(4)
        printed, more = waiting.communicate(timeout=PATIENCE_S)
        # On a busy machine it says what it waits for next, each thing once.
        assert waiting.returncode == 0, more
        assert all("orders-0 waits for" in line and "down" not in line for line in more.splitlines()), more
        assert "moved" in printed
