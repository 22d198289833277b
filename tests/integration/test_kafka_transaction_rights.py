"""librdkafka's transactions over TLS, with rules on for transactional ids, topics and groups, on real nodes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from audit_log import audit_lines
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster
from tests.support.command_line import all_have_heard, until

pytestmark = pytest.mark.cluster

PASSWORD = "canary-61c4-kafka"
DEADLINE_S = 60.0
#: Each test has rules for a user of its own.
USERS = ("writer", "stranger", "observer", "banned", "topicless", "groupless", "dismissed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("nodes")
    settings = {
        "authorization": True,
        "super_users": "User:admin,User:root",
        "kafka_security_protocol": "SASL_SSL",
        "audit_log": data / "audit.jsonl",
        "kafka_auto_create_topics_enable": "false",
    }
    with LocalCluster(nodes=3, tls=True, kafka=True, data_dir=data, settings=settings) as running:
        with quorumlog.Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            admin.alter_user_scram_credentials(
                [
                    quorumlog.UserScramCredentialUpsertion(user, PASSWORD, for_super_user=user == "root")
                    for user in ("root", *USERS)
                ]
            )
            admin.create_topics([quorumlog.NewTopic("orders", 1, 3), quorumlog.NewTopic("seen", 1, 3)])
            all_have_heard(admin)
        # A connection that is older than the coordinator's first term is closed, and opened again.
        first = Producer({**signed_in(running, "root"), "transactional.id": "first"})
        first.init_transactions(DEADLINE_S)
        yield running
        for node in running.node_ids:
            text = running.log_path(node).read_text()
            assert running.is_running(node), text[-2_000:]
            assert "fault=failed" not in text and PASSWORD not in text


def signed_in(cluster: LocalCluster, user: str) -> dict[str, Any]:
    """librdkafka's options."""
    assert cluster.certificates is not None
    return {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.certificates.node_ca),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def root(cluster: LocalCluster) -> AdminClient:
    return AdminClient(signed_in(cluster, "root"))


@pytest.fixture
def own(cluster: LocalCluster) -> Iterator[quorumlog.Admin]:
    with quorumlog.Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
        yield admin


class Rules:
    """Gives a user rules over Kafka's port, until all nodes have them."""

    def __init__(self, root: AdminClient, own: quorumlog.Admin) -> None:
        self._root, self._own = root, own

    def give(
        self,
        user: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
        permission: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        made = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
        for created in self._root.create_acls([made]).values():
            created.result(DEADLINE_S)
        all_have_heard(self._own)

    def to_write(self, user: str, *, name: str | None = None) -> None:
        """Gives the rules of a transactional producer of "orders", for one id or for all that start with the user."""
        self.give(user, AclOperation.WRITE, ResourceType.TOPIC, "orders")
        pattern = ResourcePatternType.LITERAL if name else ResourcePatternType.PREFIXED
        self.give(user, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name or f"{user}-", pattern)

    def take(self, user: str, kind: ResourceType) -> None:
        every = AclBindingFilter(
            kind, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
        )
        (deleted,) = self._root.delete_acls([every]).values()
        assert deleted.result(DEADLINE_S)
        all_have_heard(self._own)


@pytest.fixture
def rules(root: AdminClient, own: quorumlog.Admin) -> Rules:
    return Rules(root, own)


def producer(cluster: LocalCluster, user: str, name: str) -> Producer:
    return Producer({**signed_in(cluster, user), "transactional.id": name, "transaction.timeout.ms": 60_000})


def refusal(call: Any, *arguments: Any) -> KafkaError:
    """The error of a call that must fail."""
    with pytest.raises(KafkaException) as refused:
        call(*arguments)
    error: KafkaError = refused.value.args[0]
    return error


def committed(cluster: LocalCluster, topic: str, until_value: bytes) -> list[bytes]:
    """The committed records of a partition, up to a value that is written now."""
    marking = producer(cluster, "root", f"marks-{uuid.uuid4()}")
    marking.init_transactions(DEADLINE_S)
    marking.begin_transaction()
    marking.produce(topic, until_value, partition=0)
    marking.commit_transaction(DEADLINE_S)
    reader = Consumer({**signed_in(cluster, "root"), "group.id": f"reads-{uuid.uuid4()}", "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def came() -> bool:
        message = reader.poll(0.1)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
        return until_value in found

    until(came, f"{until_value!r} is not read")
    reader.close()
    return found


def test_who_may_write_id_topic_and_group_commits(cluster: LocalCluster, rules: Rules) -> None:
    rules.to_write("writer")
    rules.give("writer", AclOperation.READ, ResourceType.GROUP, "readers")
    rules.give("writer", AclOperation.READ, ResourceType.TOPIC, "orders")
    sending = producer(cluster, "writer", "writer-1")
    sending.init_transactions(DEADLINE_S)
    reader = Consumer({**signed_in(cluster, "writer"), "group.id": "readers", "enable.auto.commit": False})
    for ends, value in ((sending.commit_transaction, b"kept"), (sending.abort_transaction, b"lost")):
        sending.begin_transaction()
        sending.produce("orders", value, partition=0)
        offset = TopicPartition("orders", 0, 7 if value == b"kept" else 9)
        sending.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), DEADLINE_S)
        ends(DEADLINE_S)
    assert [each.offset for each in reader.committed([TopicPartition("orders", 0)], DEADLINE_S)] == [7]
    reader.close()
    found = committed(cluster, "orders", b"mark-writer")
    assert b"kept" in found and b"lost" not in found


def test_another_id_is_refused_for_good_and_written_down(cluster: LocalCluster, rules: Rules) -> None:
    rules.to_write("stranger")
    error = refusal(producer(cluster, "stranger", "other").init_transactions, DEADLINE_S)
    assert (error.code(), error.fatal()) == (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True)
    log = cluster.log_path(1).parent / "audit.jsonl"

    def is_written() -> bool:
        lines = [line for line in audit_lines(log) if line["event"] == "refused"]
        return any(line.get("principal") == "User:stranger" for line in lines)

    until(is_written, "the audit log has the refusal")


def test_describe_is_not_enough_and_deny_wins(cluster: LocalCluster, rules: Rules) -> None:
    rules.give("observer", AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "seen-by-observer")
    error = refusal(producer(cluster, "observer", "seen-by-observer").init_transactions, DEADLINE_S)
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rules.to_write("banned")
    deny = (ResourcePatternType.LITERAL, AclPermissionType.DENY)
    rules.give("banned", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "banned-1", *deny)
    error = refusal(producer(cluster, "banned", "banned-1").init_transactions, DEADLINE_S)
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer(cluster, "banned", "banned-2").init_transactions(DEADLINE_S)


def test_a_topic_without_write_aborts_the_transaction(cluster: LocalCluster, rules: Rules) -> None:
    rules.to_write("topicless")
    rules.give("topicless", AclOperation.DESCRIBE, ResourceType.TOPIC, "seen")
    sending = producer(cluster, "topicless", "topicless-1")
    sending.init_transactions(DEADLINE_S)
    sending.begin_transaction()
    sending.produce("orders", b"lost-with-it", partition=0)
    assert sending.flush(DEADLINE_S) == 0
    failures: list[KafkaError] = []
    sending.produce("seen", b"refused", partition=0, on_delivery=lambda error, _: failures.append(error))
    error = refusal(sending.commit_transaction, DEADLINE_S)
    assert (error.txn_requires_abort(), error.fatal()) == (True, False)
    sending.abort_transaction(DEADLINE_S)
    assert [each.code() for each in failures] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    sending.begin_transaction()
    sending.produce("orders", b"next", partition=0)
    sending.commit_transaction(DEADLINE_S)
    found = committed(cluster, "orders", b"mark-topicless")
    assert b"next" in found and b"lost-with-it" not in found


def test_a_group_without_read_aborts_the_transaction(cluster: LocalCluster, rules: Rules) -> None:
    rules.to_write("groupless")
    rules.give("groupless", AclOperation.READ, ResourceType.TOPIC, "orders")
    sending = producer(cluster, "groupless", "groupless-1")
    sending.init_transactions(DEADLINE_S)
    reader = Consumer({**signed_in(cluster, "groupless"), "group.id": "theirs", "enable.auto.commit": False})
    sending.begin_transaction()
    sending.produce("orders", b"lost-with-offsets", partition=0)
    offsets = [TopicPartition("orders", 0, 5)]
    error = refusal(sending.send_offsets_to_transaction, offsets, reader.consumer_group_metadata(), DEADLINE_S)
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.GROUP_AUTHORIZATION_FAILED, True)
    sending.abort_transaction(DEADLINE_S)
    reader.close()
    assert b"lost-with-offsets" not in committed(cluster, "orders", b"mark-groupless")


def test_a_rule_that_is_taken_away_stops_the_commit(cluster: LocalCluster, rules: Rules, own: quorumlog.Admin) -> None:
    """An operator ends what the producer can no longer end."""
    rules.to_write("dismissed")
    sending = producer(cluster, "dismissed", "dismissed-1")
    sending.init_transactions(DEADLINE_S)
    sending.begin_transaction()
    sending.produce("orders", b"lost-by-dismissal", partition=0)
    assert sending.flush(DEADLINE_S) == 0
    rules.take("dismissed", ResourceType.TRANSACTIONAL_ID)
    error = refusal(sending.commit_transaction, DEADLINE_S)
    assert (error.code(), error.fatal()) == (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True)
    (left,) = own.describe_transactions(["dismissed-1"])
    assert left.state is quorumlog.TransactionState.ONGOING and left.place is not None
    own.abort_transaction("dismissed-1", left.place)
    assert b"lost-by-dismissal" not in committed(cluster, "orders", b"mark-dismissed")
