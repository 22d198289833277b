"""Topics are deleted, created again and grown on real nodes, while clients use them and nodes are away."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from command_line import PATIENCE_S, until

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    QuorumlogError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.cluster
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"life-{next(_numbers)}"
    admin.create_topics([NewTopic(name, 2, 3)])
    return name


def read(cluster: LocalCluster, topic: str) -> list[bytes]:
    """Reads all records that exist when it starts, however long it takes."""
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        found: list[bytes] = []

        def is_read() -> bool:
            for records in consumer.poll(timeout_ms=100).values():
                found.extend(record.value for record in records)
            return all(consumer.position(partition) >= end for partition, end in ends.items())

        until(is_read, "reading to the end")
        return found


class Writer:
    """Sends numbered records in the background, and continues whatever fails."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[BaseException] = []
        self._stop = threading.Event()
        self._producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1)
        self._topic = topic
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            try:
                self._producer.send(self._topic, b"%d" % number).result(timeout=PATIENCE_S)
                self.acknowledged.append(number)
            except UnknownTopicOrPartitionError as error:
                self.failed.append(error)

    def __enter__(self) -> Writer:
        until(lambda: len(self.acknowledged) > 20, "writing")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()


def test_a_producer_follows_a_topic_that_is_made_anew_and_a_consumer_reads_it_from_its_beginning(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=500) as consumer,
        Writer(cluster, topic) as writer,
    ):
        seen: list[bytes] = []

        def poll() -> None:
            try:
                for records in consumer.poll(timeout_ms=50).values():
                    seen.extend(record.value for record in records)
            except UnknownTopicOrPartitionError:
                return

        until(lambda: bool(poll() or seen), "reading")
        old_id = admin.describe_topics([topic])[0].topic_id
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 2, 3)])
        assert admin.describe_topics([topic])[0].topic_id != old_id
        before = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > before + 50, "following")
        # Of both partitions: one of them may be read before the other.
        present = set(read(cluster, topic))
        until(lambda: bool(poll() or present <= set(seen)), "reading what is new, of which nothing is skipped")
    kept = [int(value) for value in read(cluster, topic)]
    assert len(kept) == len(set(kept)), "one copy each"
    assert set(writer.acknowledged[before + 1 :]) <= set(kept), "all that was acknowledged since"


def test_clients_of_a_deleted_topic_are_told_in_time(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap_servers) as consumer,
        Writer(cluster, topic) as writer,
    ):
        until(lambda: bool(consumer.poll(timeout_ms=100)), "reading")
        admin.delete_topics([topic])
        began = time.monotonic()
        until(lambda: bool(writer.failed), "the producer's error")
        assert time.monotonic() - began < 30

        errors: list[QuorumlogError] = []

        def told() -> bool:
            try:
                consumer.poll(timeout_ms=100)
            except UnknownTopicOrPartitionError as error:
                errors.append(error)
            return bool(errors)

        until(told, "the consumer's error")
        assert all(topic in error.message for error in (*errors, *writer.failed)), "they name it"
        admin.create_topics([NewTopic(topic, 1, 3)])
        before = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > before + 5, "going on")


def test_a_node_that_was_down_gives_up_what_was_deleted_meanwhile(
    cluster: LocalCluster, admin: Admin, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(50):
            producer.send(topic, b"x" * 1000)

    def as_metadata_say() -> bool:
        topics = admin.describe_topics(include_internal=True, linearizable=True)
        held = Counter(node for each in topics for partition in each.partitions for node in partition.replicas)
        # And the metadata themselves.
        return all(admin.describe_node(cluster.address(n)).groups == held[n] + 1 for n in cluster.node_ids)

    until(as_metadata_say, "what was deleted before is gone")
    groups = {node: admin.describe_node(cluster.address(node)).groups for node in cluster.node_ids}
    cluster.kill(3)
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, 1, 3)])
    cluster.start(3)

    def gone() -> bool:
        # A connection that failed while the node was down is not created again at once.
        described = {d.node_id: d for d in admin.describe_nodes() if not isinstance(d, QuorumlogError)}
        return all(n in described and described[n].groups == groups[n] - 1 for n in cluster.node_ids)

    until(gone, "two replicas fewer, one more")
    assert read(cluster, topic) == []


def test_topics_come_and_go_under_one_name(cluster: LocalCluster, admin: Admin) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for turn in range(6):
            admin.create_topics([NewTopic("again", 1 + turn % 3, 3)])
            producer.send("again", b"%d" % turn, partition=0).result(timeout=PATIENCE_S)
            assert read(cluster, "again") == [b"%d" % turn]
            admin.delete_topics(["again"])
            with pytest.raises(UnknownTopicOrPartitionError):
                admin.describe_topics(["again"], linearizable=True)


def test_clients_notice_the_partitions_that_a_topic_gains(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    servers = cluster.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, metadata_max_age_ms=200, partitioner="round_robin") as producer,
        Consumer(topic, bootstrap_servers=servers, metadata_max_age_ms=200, auto_offset_reset="latest") as consumer,
    ):
        consumer.poll(timeout_ms=200)
        producer.send(topic, b"before").result(timeout=PATIENCE_S)
        admin.create_partitions({topic: 3})
        sent: list[int] = []

        def grown() -> bool:
            metadata = producer.send(topic, b"%d" % len(sent)).result(timeout=PATIENCE_S)
            sent.append(metadata.partition)
            return metadata.partition == 2

        until(grown, "the producer's use of the new partition")
        seen: dict[TopicPartition, list[int]] = {}

        def read_from_the_start() -> bool:
            for tp, records in consumer.poll(timeout_ms=100).items():
                seen.setdefault(tp, []).extend(record.offset for record in records)
            return bool(seen.get(TopicPartition(topic, 2)))

        until(read_from_the_start, "the consumer's use of the new partition")
        assert seen[TopicPartition(topic, 2)][0] == 0, "whatever auto_offset_reset says"


def test_configurations_hold_at_once(cluster: LocalCluster, admin: Admin, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        admin.alter_configs({topic: {"max.message.bytes": 1024}})
        assert admin.describe_configs([topic])[topic]["max.message.bytes"].value == "1024"
        error = producer.send(topic, b"x" * 4000).exception(timeout=PATIENCE_S)
        assert "max.message.bytes=1024" in str(error)
        admin.alter_configs({topic: {"max.message.bytes": None}})
        producer.send(topic, b"x" * 4000).result(timeout=PATIENCE_S)
