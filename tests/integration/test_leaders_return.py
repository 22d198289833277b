"""A leader is killed under load and returns: its partitions return to it, and no producer notices."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from command_line import PATIENCE_S, cli, until
from steady_load import SteadyLoad

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    ElectionNotNeededError,
    NewTopic,
    Producer,
    RecordFuture,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.cluster
TOPIC = "orders"
PARTITIONS = 6


class Load(SteadyLoad):
    """A numbered record to every partition a round."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.acknowledged: list[str] = []

    @property
    def count(self) -> int:
        return len(self.acknowledged)

    def send_round(self, producer: Producer, number: int) -> None:
        sent: list[tuple[str, RecordFuture]] = []
        for partition in range(PARTITIONS):
            value = f"{partition}-{number}"
            sent.append((value, producer.send(TOPIC, value.encode(), partition=partition)))
        for value, future in sent:
            future.result(timeout=PATIENCE_S)
            self.acknowledged.append(value)

    def longest_since(self, since: float) -> float:
        """The longest time that a round of sends took, of those that ended after ``since``."""
        return max(gap for ended, gap in self.gaps if ended >= since)


def leaders(admin: Admin) -> list[int | None]:
    (topic,) = admin.describe_topics([TOPIC], linearizable=True)
    return [partition.leader for partition in topic.partitions]


def preferred(admin: Admin) -> list[int]:
    (topic,) = admin.describe_topics([TOPIC])
    return [partition.replicas[0] for partition in topic.partitions]


def in_sync(admin: Admin) -> bool:
    # A node that is just back reports the former state until it has caught up with the metadata.
    (topic,) = admin.describe_topics([TOPIC], linearizable=True)
    return all(len(partition.isr) == 3 for partition in topic.partitions)


def is_out_of_sync(admin: Admin, node: int) -> bool:
    # Each leader reports it for its own partitions, one after the other.
    (topic,) = admin.describe_topics([TOPIC], linearizable=True)
    return all(node not in partition.isr for partition in topic.partitions)


def assert_all_there_once(cluster: LocalCluster, acknowledged: list[str]) -> None:
    with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        found: Counter[str] = Counter()
        while sum(found.values()) < sum(ends.values()):
            for records in consumer.poll(timeout_ms=2_000).values():
                found.update(record.value.decode() for record in records)
    assert not [value for value in acknowledged if found[value] != 1]
    assert max(found.values()) == 1


def kill_and_restart(cluster: LocalCluster, admin: Admin, node: int) -> None:
    cluster.kill(node)
    until(lambda: node not in leaders(admin) and None not in leaders(admin), "others lead")
    # Else the in-sync sets of before would be taken for those of after.
    until(lambda: is_out_of_sync(admin, node), "the metadata show that it is gone")
    cluster.start(node)
    until(lambda: in_sync(admin), "in sync again")


def test_a_returned_leader_gets_its_partitions_back_and_no_producer_notices() -> None:
    with (
        LocalCluster(nodes=3, settings={"leader_imbalance_check_interval_seconds": 1}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        until(lambda: leaders(admin) == preferred(admin), "preferred leaders lead a new topic")
        victim = preferred(admin)[0]
        with Load(cluster) as load:
            cluster.kill(victim)
            until(lambda: victim not in leaders(admin) and None not in leaders(admin), "others lead")
            # What the kill itself cost is measured elsewhere: from the next round on, only the return can cost
            # anything.
            rounds = len(load.gaps)
            until(lambda: len(load.gaps) > rounds + 2 or bool(load.failures), "the load continues")
            since = time.monotonic()
            cluster.start(victim)
            until(lambda: leaders(admin) == preferred(admin), "the returned node leads again")
            rounds = len(load.gaps)
            until(lambda: len(load.gaps) > rounds + 2 or bool(load.failures), "the load continues")
        assert load.failures == []
        gap_s = load.longest_since(since)
        print(f"{len(load.acknowledged)} records; longest round while leaderships returned: {gap_s:.3f} s")
        assert_all_there_once(cluster, load.acknowledged)


def test_leaderships_return_when_asked_for() -> None:
    with (
        # None moves because the machine is busy, and a follower receives nothing for a moment.
        LocalCluster(
            nodes=3, settings={"auto_leader_rebalance_enable": False, "election_timeout_ms": 3_000}
        ) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        until(lambda: leaders(admin) == preferred(admin), "preferred leaders lead a new topic")
        victim = preferred(admin)[0]
        own = [number for number, node in enumerate(preferred(admin)) if node == victim]
        kill_and_restart(cluster, admin, victim)

        planned = cli(cluster, "leaders", "balance", "--dry-run", "--output", "json")
        assert [row["partition"] for row in json.loads(planned.stdout)] == own
        assert {row["result"] for row in json.loads(planned.stdout)} == {"to be handed over"}
        assert victim not in leaders(admin)

        done = cli(cluster, "leaders", "balance", "--topic", TOPIC)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("handed over") == len(own)
        until(lambda: leaders(admin) == preferred(admin), "the metadata show it")
        assert "Nothing to do: 6 partitions" in cli(cluster, "leaders", "balance").stdout

        kill_and_restart(cluster, admin, victim)
        assert admin.elect_leaders() == {TopicPartition(TOPIC, number): None for number in own}
        until(lambda: leaders(admin) == preferred(admin), "the metadata show it")
        named, missing = TopicPartition(TOPIC, own[0]), TopicPartition(TOPIC, 99)
        outcomes = admin.elect_leaders([named, missing])
        assert isinstance(outcomes[named], ElectionNotNeededError)
        assert isinstance(outcomes[missing], UnknownTopicOrPartitionError)
        assert admin.elect_leaders() == admin.elect_leaders([]) == {}

        cluster.kill(victim)
        until(lambda: victim not in leaders(admin) and None not in leaders(admin), "others lead")
        failed = cli(cluster, "leaders", "balance")
        assert failed.returncode == 1
        assert len(failed.stderr.splitlines()) == 1
        assert (
            f"{len(own)} of {len(own)} partitions not handed over: node {victim}, the preferred leader" in failed.stderr
        )
