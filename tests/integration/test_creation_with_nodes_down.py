"""Real nodes: topics and groups come to be while one of three nodes is down, and survive the next loss."""

from __future__ import annotations

import pytest
from command_line import PATIENCE_S, cli, until
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as KafkaTopic

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer

pytestmark = pytest.mark.cluster
TOPICS = ("ours", "theirs", "named")


def written(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value).result(timeout=PATIENCE_S)


def read(cluster: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    """Reads from the beginning in a group of the topic's own name."""
    found: list[bytes | None] = []
    servers = cluster.bootstrap_servers
    with Consumer(topic, bootstrap_servers=servers, group_id=f"of-{topic}", auto_offset_reset="earliest") as consumer:

        def arrived() -> bool:
            found.extend(record.value for records in consumer.poll(500).values() for record in records)
            return len(found) >= count

        until(arrived, f"{count} records of {topic}")
        consumer.commit()
    return found


def test_topics_and_groups_begin_without_a_node() -> None:
    with LocalCluster(nodes=3, kafka=True) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.kill(3)
        until(lambda: any(each.fenced for each in admin.describe_cluster().brokers), "node 3 is fenced")
        configs = {"min.insync.replicas": 2}
        admin.create_topics([NewTopic("ours", 2, 3, configs)])
        kafka = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})
        kafka.create_topics([KafkaTopic("theirs", 1, 3)])["theirs"].result(PATIENCE_S)
        kafka.create_partitions([NewPartitions("theirs", 2)])["theirs"].result(PATIENCE_S)
        created = cli(cluster, "topics", "create", "named", "--replica-assignment", "3,1,2")
        assert created.returncode == 0, created.stderr
        for topic in TOPICS:
            written(cluster, topic, [b"first"])
            assert read(cluster, topic, 1) == [b"first"]
        cluster.start(3)

        def whole() -> bool:
            described = admin.describe_topics(include_internal=True, linearizable=True)
            assert {topic.name for topic in described} == {*TOPICS, "__groups"}
            return all(len(each.isr) == len(each.replicas) == 3 for topic in described for each in topic.partitions)

        until(whole, "all replicas are in sync")
        lost = cluster.leader("ours", 0)
        assert lost is not None
        cluster.kill(lost)
        for topic in TOPICS:
            written(cluster, topic, [b"second"])
            assert read(cluster, topic, 1) == [b"second"], "the group continues from its committed offset"
