"""Kafka's own administrators on real nodes: they move partitions under load, elect leaders, look at disks, and change
rules and users."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as RdKafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KpTopicPartition
from kafka.errors import InvalidReplicationAssignmentError, NoReassignmentInProgressError

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
#: In the order in which a partition is moved: to other nodes, to more of them, and back.
JOURNEY = ([2], [3, 1, 2], [3, 2, 1], [1])
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # Leaderships return when a client asks for that, and not by themselves in the midst of a test.
    settings = {"auto_leader_rebalance_enable": "false", "kafka_auto_create_topics_enable": "false"}
    with LocalCluster(nodes=3, kafka=True, settings=settings) as running:
        yield running
        for node in running.node_ids:
            assert running.is_running(node), running.log_path(node).read_text()[-2_000:]
            assert "fault=failed" not in running.log_path(node).read_text()


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})


@pytest.fixture(scope="module")
def other_admin(cluster: LocalCluster) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=cluster.kafka_bootstrap_servers.split(","))
    yield made
    made.close()


def created(cluster: LocalCluster, *replicas: list[int]) -> str:
    """A topic with a partition on each of these lists of nodes."""
    name = f"topic-{next(_numbers)}"
    with quorumlog.Admin(bootstrap_servers=cluster.bootstrap_servers) as ours:
        ours.create_topics([quorumlog.NewTopic(name, replica_assignments=dict(enumerate(replicas)))])
    return name


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Load:
    """Writes a row of numbers into a partition, one after the other, until it is stopped."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stopping = threading.Event()
        self.failures: list[object] = []
        self.delivered = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._told)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(DEADLINE_S)

    def _told(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.delivered += 1

    def stop(self) -> int:
        """Stops it; returns how many numbers were written."""
        self._stopping.set()
        self._thread.join(DEADLINE_S + 5)
        assert not self._thread.is_alive()
        assert not self.failures
        return self.delivered


def read_all(cluster: LocalCluster, topic: str, records: int) -> list[int]:
    """Returns the records of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < records and time.monotonic() < deadline:
            found += [int(message.value() or b"-1") for message in consumer.consume(10_000, 0.2)]
        found += [int(message.value() or b"-1") for message in consumer.consume(10, 0.5)]  # There must be no more.
        return found
    finally:
        consumer.close()


def test_a_partition_is_moved_and_handed_over_under_load_and_nothing_is_lost(
    cluster: LocalCluster, admin: AdminClient, other_admin: KafkaAdminClient
) -> None:
    topic = created(cluster, [1])
    place, rd_place = KpTopicPartition(topic, 0), TopicPartition(topic, 0)

    def described() -> tuple[list[int], int | None, int]:
        (future,) = admin.describe_topics(TopicCollection([topic])).values()
        (partition,) = future.result(DEADLINE_S).partitions
        leader = None if partition.leader is None else partition.leader.id
        return [each.id for each in partition.replicas], leader, len(partition.isr)

    load = Load(cluster, topic)
    try:
        until(lambda: load.delivered > 200, "records are written")
        for replicas in JOURNEY:
            before = load.delivered
            assert other_admin.alter_partition_reassignments({place: replicas}) == {place: None}
            until(lambda: described()[0] == replicas, f"it is on {replicas}")  # noqa: B023
            until(lambda: place not in other_admin.list_partition_reassignments(), "the move is done")
            until(lambda: described()[2] == len(replicas), "all replicas are in sync")  # noqa: B023
            if described()[1] != replicas[0]:
                outcome = admin.elect_leaders(ElectionType.PREFERRED, [rd_place]).result(DEADLINE_S)
                # The client may not have received the new leader yet.
                assert outcome[rd_place] is None or outcome[rd_place].code() == RdKafkaError.ELECTION_NOT_NEEDED
            until(lambda: described()[1] == replicas[0], "the first of them leads")  # noqa: B023
            until(lambda: load.delivered > before + 100, "records are written further")  # noqa: B023
        needless = admin.elect_leaders(ElectionType.PREFERRED, [rd_place]).result(DEADLINE_S)
        assert needless[rd_place].code() == RdKafkaError.ELECTION_NOT_NEEDED
    finally:
        written = load.stop()
    assert read_all(cluster, topic, written) == list(range(written))

    def sizes() -> dict[int, dict[tuple[str, int], int]]:
        return {
            entry["broker"]: {
                (each["name"], partition["partition_index"]): partition["partition_size"]
                for directory in entry["log_dirs"]
                for each in directory["topics"]
                for partition in each["partitions"]
            }
            for entry in other_admin.describe_log_dirs({topic: [0]})
        }

    # Replicas that are no longer wanted go in the background.
    until(lambda: {node: set(found) for node, found in sizes().items()} == {1: {(topic, 0)}, 2: set(), 3: set()}, topic)
    assert sizes()[1][topic, 0] > written


def test_moves_that_make_no_sense_are_refused_in_kafkas_words(
    cluster: LocalCluster, other_admin: KafkaAdminClient
) -> None:
    place = KpTopicPartition(created(cluster, [1]), 0)
    assert other_admin.alter_partition_reassignments({place: [7]}) == {place: InvalidReplicationAssignmentError}
    assert other_admin.alter_partition_reassignments({place: None}) == {place: NoReassignmentInProgressError}


def test_an_unclean_election_is_refused(cluster: LocalCluster, admin: AdminClient) -> None:
    place = TopicPartition(created(cluster, [1, 2, 3]), 0)
    outcome = admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(DEADLINE_S)
    assert outcome[place].code() == RdKafkaError.INVALID_REQUEST


def test_resources_with_a_configuration_are_listed(cluster: LocalCluster, other_admin: KafkaAdminClient) -> None:
    """Topics and nodes have a configuration, clients and groups have none (KIP-1142)."""
    topic = created(cluster, [1])
    listed = other_admin.list_config_resources(["TOPIC", "BROKER"])
    assert topic in listed["topic"]
    assert listed["broker"] == ["1", "2", "3"]
    assert other_admin.list_config_resources().keys() == {"topic", "broker", "broker_logger"}
    assert not other_admin.list_config_resources(["CLIENT_METRICS", "GROUP"])


def test_topics_are_described_page_by_page(cluster: LocalCluster, other_admin: KafkaAdminClient) -> None:
    names = sorted(created(cluster, [1], [2], [3]) for _ in range(2))
    found, cursor = [], None
    for _ in range(10):
        page = other_admin.describe_topic_partitions(names, response_partition_limit=2, cursor=cursor)
        found += [(each["name"], one["partition_index"]) for each in page["topics"] for one in each["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        cursor = {key: cursor[key] for key in ("topic_name", "partition_index")}
    assert found == [(name, number) for name in names for number in range(3)]


def test_rules_are_created_found_and_deleted(admin: AdminClient) -> None:
    def rule(name: str, host: str = "*") -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.PREFIXED,
            "User:alice",
            host,
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )

    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY
    )
    created_rules = admin.create_acls([rule("orders-"), rule("parts-"), rule("far-", "10.0.0.1")])
    assert created_rules[rule("orders-")].result(DEADLINE_S) is None
    assert created_rules[rule("parts-")].result(DEADLINE_S) is None
    refused = created_rules[rule("far-", "10.0.0.1")].exception(DEADLINE_S)
    assert refused.args[0].code() == RdKafkaError.INVALID_REQUEST
    assert set(admin.describe_acls(everything).result(DEADLINE_S)) == {rule("orders-"), rule("parts-")}
    (deleted,) = admin.delete_acls([everything]).values()
    assert set(deleted.result(DEADLINE_S)) == {rule("orders-"), rule("parts-")}
    assert admin.describe_acls(everything).result(DEADLINE_S) == []


def test_users_are_created_described_and_deleted(admin: AdminClient, other_admin: KafkaAdminClient) -> None:
    weak, strong = (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations) for iterations in (4_000, 8_192))
    other = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8_192)
    changes = admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("ann", strong, b"secret"),
            UserScramCredentialUpsertion("ben", weak, b"secret"),
            UserScramCredentialUpsertion("eve", other, b"secret"),
        ]
    )
    assert [changes[name].result(DEADLINE_S) for name in ("ann", "eve")] == [None, None]
    assert changes["ben"].exception(DEADLINE_S).args[0].code() == RdKafkaError.UNACCEPTABLE_CREDENTIAL
    (described,) = admin.describe_user_scram_credentials(["ann"]).values()
    (info,) = described.result(DEADLINE_S).scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8_192)
    assert set(other_admin.describe_user_scram_credentials()) == {"ann", "eve"}
    (described,) = admin.describe_user_scram_credentials(["eve"]).values()
    (info,) = described.result(DEADLINE_S).scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_512, 8_192)
    removal = UserScramCredentialDeletion("ann", ScramMechanism.SCRAM_SHA_256)
    assert admin.alter_user_scram_credentials([removal])["ann"].result(DEADLINE_S) is None
    gone = admin.alter_user_scram_credentials([removal])["ann"].exception(DEADLINE_S)
    assert gone.args[0].code() == RdKafkaError.RESOURCE_NOT_FOUND
