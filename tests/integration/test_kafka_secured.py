"""Kafka's own clients over TLS, on real nodes: they authenticate by password or certificate, and ACLs apply."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from audit_log import audit_lines
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)
from kafka import KafkaProducer

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    NewTopic,
    ResourcePattern,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.server.certificates.issuing import Issued, create_client
from quorumlog.server.certificates.x509 import validity
from tests.support.command_line import until

pytestmark = pytest.mark.cluster

PASSWORD = "canary-5d7e-kafka"
DEADLINE_S = 60.0
_METADATA_V0 = struct.pack(">ihhih", 10 + 4, 3, 1, 7, -1) + struct.pack(">i", -1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("nodes")
    asking = {
        "authorization": True,
        "super_users": "User:admin",
        "kafka_security_protocol": "SASL_SSL",
        "audit_log": data / "audit.jsonl",
        "kafka_auto_create_topics_enable": "false",
    }
    with LocalCluster(nodes=3, tls=True, kafka=True, data_dir=data, settings=asking) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            orders = ResourcePattern(ResourceType.TOPIC, "orders")
            admin.create_acls(
                ACL(f"User:{user}", operation, ACLPermissionType.ALLOW, orders)
                for user in ("alice", "carol")
                for operation in (ACLOperation.READ, ACLOperation.WRITE)
            )
            readers = ResourcePattern(ResourceType.GROUP, "readers")
            admin.create_acls([ACL("User:alice", ACLOperation.READ, ACLPermissionType.ALLOW, readers)])
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", PASSWORD)])
            # Last: once all nodes serve them, they also have users and rules.
            admin.create_topics([NewTopic("orders", 1, 3), NewTopic("secret", 1, 3)])
        yield running
        for node in running.node_ids:
            text = running.log_path(node).read_text()
            assert running.is_running(node), text[-2_000:]
            assert "fault=failed" not in text and PASSWORD not in text
        assert PASSWORD not in (data / "audit.jsonl").read_text()


def ca(cluster: LocalCluster) -> str:
    assert cluster.certificates is not None
    return str(cluster.certificates.node_ca)


def signed_in(
    cluster: LocalCluster, mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = PASSWORD
) -> dict[str, Any]:
    """librdkafka's options."""
    return {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca(cluster),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def write(options: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    """Writes a record; returns what is wrong."""
    found: list[KafkaError | None] = []
    producer = Producer({**options, "message.timeout.ms": int(DEADLINE_S * 1_000)})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: found.append(error))
    assert producer.flush(DEADLINE_S + 5) == 0
    return found[0]


def read_until(options: dict[str, Any], topic: str, wanted: bytes) -> None:
    """Reads a topic until a value comes."""
    consumer = Consumer({**options, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def came() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error():
            raise KafkaException(message.error())
        return message is not None and message.value() == wanted

    until(came, f"{wanted!r} is not read")
    consumer.close()


def error_of(options: dict[str, Any]) -> KafkaError:
    """The first that a client reports."""
    found: list[KafkaError] = []
    client = Producer({**options, "error_cb": found.append})
    until(lambda: client.poll(0.05) >= 0 and bool(found), "no error is reported")
    return found[0]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_librdkafka_signs_in_writes_and_reads(cluster: LocalCluster, mechanism: str) -> None:
    options = signed_in(cluster, mechanism)
    assert write(options, "orders", mechanism.encode()) is None
    read_until(options, "orders", mechanism.encode())


def test_aiokafka_signs_in_writes_and_reads(cluster: LocalCluster) -> None:
    own: dict[str, Any] = {
        "bootstrap_servers": cluster.kafka_bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=ca(cluster)),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }

    async def exchange() -> bytes | None:
        async with AIOKafkaProducer(**own) as producer:
            sent = await producer.send_and_wait("orders", b"aiokafka", partition=0)
        async with AIOKafkaConsumer(**own) as consumer:
            at = AioTopicPartition("orders", 0)
            consumer.assign([at])
            consumer.seek(at, sent.offset)
            return (await consumer.getone()).value

    assert asyncio.run(asyncio.wait_for(exchange(), DEADLINE_S)) == b"aiokafka"


def test_kafka_python_signs_in_and_writes(cluster: LocalCluster) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.kafka_bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=ca(cluster),
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("orders", b"kafka-python", partition=0).get(DEADLINE_S).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_told_in_librdkafkas_words(cluster: LocalCluster, mechanism: str, user: str) -> None:
    error = error_of(signed_in(cluster, mechanism, user, "wrong"))
    assert error.code() == KafkaError._AUTHENTICATION
    assert "the user name or the password is wrong" in error.str()


def test_a_mechanism_that_is_not_served_is_named(cluster: LocalCluster) -> None:
    options = {name: option for name, option in signed_in(cluster, "OAUTHBEARER").items() if "sasl.u" not in name}
    error = error_of({**options, "oauth_cb": lambda _: ("token", time.time() + 60)})
    assert error.code() == KafkaError._AUTHENTICATION
    assert "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN" in error.str().replace(" ", "")


def test_failed_sign_ins_of_kafkas_clients_stand_in_the_audit_log(cluster: LocalCluster, tmp_path: Path) -> None:
    error_of(signed_in(cluster, "PLAIN", "mallory", "wrong"))
    log = cluster.log_path(1).parent / "audit.jsonl"

    def told() -> bool:
        return any("mallory" in json.dumps(line) and line.get("event") == "sign_in_failed" for line in audit_lines(log))

    until(told, log.read_text())


def test_a_topic_that_one_may_not_describe_is_not_there_for_kafkas_clients(cluster: LocalCluster) -> None:
    options = signed_in(cluster)
    assert set(AdminClient(options).list_topics(timeout=DEADLINE_S).topics) == {"orders"}
    for topic in ("secret", "missing"):
        error = write({**options, "topic.metadata.propagation.max.ms": 100}, topic, b"refused")
        assert error is not None and error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_what_a_signed_in_client_would_do_to_a_hidden_topic_fails_as_with_none(cluster: LocalCluster) -> None:
    admin = AdminClient(signed_in(cluster))

    def told(topic: str) -> list[tuple[int, str]]:
        setting = ConfigEntry("segment.bytes", "1", incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[setting])
        requests = (
            admin.incremental_alter_configs([wanted]),
            admin.describe_configs([wanted]),
            admin.delete_records([TopicPartition(topic, 0, 1)]),
            admin.delete_topics([topic]),
            admin.create_partitions([NewPartitions(topic, 5)]),
            admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}),
        )
        errors = []
        for future in (future for futures in requests for future in futures.values()):
            with pytest.raises(KafkaException) as refused:
                future.result(DEADLINE_S)
            errors.append((refused.value.args[0].code(), refused.value.args[0].str().replace(topic, "...")))
        return errors

    assert told("secret") == told("missing")


def test_kafkas_clients_are_out_when_their_user_is_deleted(cluster: LocalCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", PASSWORD)])
        errors: list[KafkaError] = []
        options = signed_in(cluster, user="carol")
        until(lambda: write(options, "orders", b"carol's") is None, "carol is not let in")
        producer = Producer({**options, "error_cb": errors.append})
        producer.list_topics(timeout=DEADLINE_S)
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("carol")])
        refused = lambda: any(each.code() == KafkaError._AUTHENTICATION for each in errors)  # noqa: E731
        until(lambda: producer.poll(0.05) >= 0 and refused(), "carol is still in")


def connect(cluster: LocalCluster) -> socket.socket:
    host, _, port = cluster.kafka_bootstrap_servers.split(",")[0].rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S)


def ends(connection: socket.socket) -> bool:
    connection.settimeout(DEADLINE_S)
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(4_096):
            assert b"orders" not in chunk
    return True


def test_plaintext_gets_nothing_from_the_secured_port(cluster: LocalCluster) -> None:
    log = cluster.log_path(1).parent / "audit.jsonl"

    def told() -> int:
        wanted = ("handshake_failed", "kafka_listen", "127.0.0.1")
        failed = (each for each in audit_lines(log) if (each["event"], each.get("listener"), each["host"]) == wanted)
        return sum(each["times"] for each in failed)

    before = told()
    with connect(cluster) as plain:
        plain.sendall(_METADATA_V0)
        assert ends(plain)
    until(lambda: told() > before, "the audit log says nothing of it")


def test_without_a_sign_in_kafkas_clients_are_told_nothing(cluster: LocalCluster) -> None:
    context = ssl.create_default_context(cafile=ca(cluster))
    with context.wrap_socket(connect(cluster), server_hostname="127.0.0.1") as stranger:
        stranger.sendall(_METADATA_V0)
        assert ends(stranger)


def test_kafkas_clients_prove_who_they_are_by_certificate(tmp_path: Path) -> None:
    asking = {"authorization": True, "super_users": "User:admin", "kafka_auto_create_topics_enable": "false"}
    with LocalCluster(nodes=1, tls=True, kafka=True, settings=asking) as cluster:
        certificates = cluster.certificates
        assert certificates is not None
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            admin.create_topics([NewTopic("orders", 1, 1), NewTopic("secret", 1, 1)])
            orders = ResourcePattern(ResourceType.TOPIC, "orders")
            admin.create_acls([ACL("User:alice", ACLOperation.WRITE, ACLPermissionType.ALLOW, orders)])
            authority = Issued(certificates.folder / "client-ca.crt", certificates.folder / "client-ca.key")
            made = create_client(tmp_path, authority, "alice")
            common = {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.ca.location": ca(cluster),
                "log_level": 0,
            }
            own = {"ssl.certificate.location": str(made.certificate), "ssl.key.location": str(made.key)}
            assert write({**common, **own}, "orders", b"alice's") is None
            client = AdminClient({**common, **own})
            assert set(client.list_topics(timeout=DEADLINE_S).topics) == {"orders"}
            with pytest.raises(KafkaException):
                AdminClient(common).list_topics(timeout=2)
            admin.revoke(principals=["User:alice"])
            with pytest.raises(KafkaException):
                client.list_topics(timeout=2)


def test_with_a_certificate_that_has_ended_kafkas_clients_are_told_nothing_more(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, tls=True, kafka=True) as cluster:
        certificates = cluster.certificates
        assert certificates is not None
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        authority = Issued(certificates.folder / "client-ca.crt", certificates.folder / "client-ca.key")
        made = create_client(tmp_path, authority, "alice", days=10 / 86_400)
        ends_s = validity(made.certificate.read_bytes()).ends_s
        context = ssl.create_default_context(cafile=ca(cluster))
        context.load_cert_chain(made.certificate, made.key)
        with context.wrap_socket(connect(cluster), server_hostname="127.0.0.1") as client:
            client.settimeout(DEADLINE_S)
            client.sendall(_METADATA_V0)
            said = b""
            while b"orders" not in said:
                reported = client.recv(4_096)
                assert reported, "it has ended before the first answer"
                said += reported
            while time.time() <= ends_s:
                time.sleep(0.05)
            client.sendall(_METADATA_V0)
            assert ends(client)
