"""SCRAM-SHA-512 and tokens on Kafka's port, with Kafka's own clients and real nodes: accepted, rejected, renewed."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from audit_log import audit_lines
from command_line import cli, until
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider
from token_issuer import AUDIENCE, ISSUER, claims, token, write_keys

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import SaslAuthenticationFailedError
from tests.support.kafka_requests import KafkaConnection

pytestmark = pytest.mark.cluster

PASSWORD, NEXT = "canary-7c1f-of-alice", "canary-7c1f-the-next"
#: Tokens and passwords that no log may contain.
SECRETS = [PASSWORD, NEXT]
DEADLINE_S = 60.0
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[LocalCluster]:
    keys, reserved = tmp_path_factory.mktemp("keys") / "keys.json", ReservedPorts(1)
    write_keys(keys, "first")
    settings = {
        "kafka_security_protocol": "SASL_SSL",
        "audit_log": audit_log,
        "log_level": "debug",
        "sasl_oauthbearer_jwks_file": keys,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
    own = {1: {"password_listen": f"127.0.0.1:{reserved.ports[0]}"}}
    with LocalCluster(nodes=1, tls=True, kafka=True, settings=settings, node_settings=own) as running:
        running.password_servers = own[1]["password_listen"]  # type: ignore[attr-defined]
        with own_admin(running) as admin:
            admin.alter_user_scram_credentials([quorumlog.UserScramCredentialUpsertion("alice", PASSWORD)])
            admin.create_topics([NewTopic("orders", 1, 1)])
        yield running
        logs = running.log_path(1).read_text() + audit_log.read_text()
        assert running.is_running(1) and "fault=failed" not in logs
        assert [secret for secret in SECRETS if secret in logs] == []
    reserved.close()


def own_admin(cluster: LocalCluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls)


def node_ca(cluster: LocalCluster) -> str:
    assert cluster.certificates is not None
    return str(cluster.certificates.node_ca)


def bearer_of(user: str, lifetime_s: float = 600, **more: Any) -> str:
    made = token(claims(user, now_s=time.time(), lifetime_s=lifetime_s, **more))
    SECRETS.append(made)
    return made


# -- clients ------------------------------------------------------------------------------------------------------


def librdkafka(cluster: LocalCluster, mechanism: str, **more: Any) -> dict[str, Any]:
    """Options of librdkafka's clients."""
    return {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": node_ca(cluster),
        "sasl.mechanism": mechanism,
        "log_level": 0,
        **more,
    }


def by_password(cluster: LocalCluster, mechanism: str, password: str = PASSWORD, user: str = "alice") -> dict[str, Any]:
    return librdkafka(cluster, mechanism, **{"sasl.username": user, "sasl.password": password})


def by_token(cluster: LocalCluster, bearer: Callable[[], str], lifetime_s: float = 600) -> dict[str, Any]:
    return librdkafka(cluster, "OAUTHBEARER", oauth_cb=lambda _: (bearer(), time.time() + lifetime_s))


def python(cluster: LocalCluster, mechanism: str, **more: Any) -> dict[str, Any]:
    """Options of kafka-python's clients."""
    servers = cluster.kafka_bootstrap_servers
    secured = {"security_protocol": "SASL_SSL", "ssl_cafile": node_ca(cluster), "sasl_mechanism": mechanism}
    return {"bootstrap_servers": servers, **secured, **more}


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """A token for kafka-python."""

    def __init__(self, bearer: str) -> None:
        super().__init__()
        self._bearer = bearer

    def token(self) -> str:
        return self._bearer


def exchange(options: dict[str, Any], value: bytes) -> None:
    """Writes a record with librdkafka and reads it again."""
    sent: list[tuple[Any, Any]] = []
    producer = Producer(options)
    producer.produce("orders", value, partition=0, on_delivery=lambda *outcome: sent.append(outcome))
    assert producer.flush(DEADLINE_S) == 0
    ((error, message),) = sent
    assert error is None
    consumer = Consumer({**options, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, message.offset())])

    def came() -> bool:
        message = consumer.poll(0.1)
        assert message is None or not message.error(), message.error()
        return message is not None and message.value() == value

    until(came, f"{value!r} is read")
    consumer.close()


def exchange_in_python(options: dict[str, Any], value: bytes) -> None:
    """The same with kafka-python."""
    producer = KafkaProducer(**options)
    sent = producer.send("orders", value, partition=0).get(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(**options)
    at = PythonTopicPartition("orders", 0)
    consumer.assign([at])
    consumer.seek(at, sent.offset)
    assert next(consumer).value == value
    consumer.close()


def error_of(options: dict[str, Any]) -> str:
    """Returns the reason why a client of librdkafka is not let in. Others, such as a closed connection, may precede."""
    found: list[KafkaError] = []
    client = Producer({**options, "error_cb": found.append})
    refused = KafkaError._AUTHENTICATION
    until(lambda: client.poll(0.05) >= 0 and refused in [each.code() for each in found], "an error is reported")
    return next(each.str() for each in found if each.code() == refused)


def lines_of(audit_log: Path, event: str, text: str) -> list[dict[str, Any]]:
    """Returns the lines of the audit log about an event that contain a text."""
    return [line for line in audit_lines(audit_log) if line["event"] == event and text in json.dumps(line)]


def until_audited(audit_log: Path, event: str, text: str) -> dict[str, Any]:
    """Waits for such a line; those of one subject are written once a second."""
    until(lambda: bool(lines_of(audit_log, event, text)), f"{event} of {text} is in the audit log")
    return lines_of(audit_log, event, text)[-1]


# -- accepted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
def test_passwords_are_accepted(cluster: LocalCluster, audit_log: Path, mechanism: str) -> None:
    """librdkafka, kafka-python and aiokafka write and read with each mechanism."""
    exchange(by_password(cluster, mechanism), f"librdkafka {mechanism}".encode())
    own = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    exchange_in_python(python(cluster, mechanism, **own), f"kafka-python {mechanism}".encode())

    async def produce() -> None:
        options = python(cluster, mechanism, **own)
        del options["ssl_cafile"]
        async with AIOKafkaProducer(**options, ssl_context=create_ssl_context(cafile=node_ca(cluster))) as producer:
            await producer.send_and_wait("orders", b"aiokafka", partition=0)

    asyncio.run(asyncio.wait_for(produce(), DEADLINE_S))
    proved = "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism
    line = until_audited(audit_log, "signed_in", proved)
    assert (line["principal"], line["host"]) == ("User:alice", "127.0.0.1")


def test_tokens_are_accepted(cluster: LocalCluster, audit_log: Path) -> None:
    """librdkafka, kafka-python and aiokafka write and read with a token."""
    exchange(by_token(cluster, lambda: bearer_of("dora")), b"librdkafka token")
    exchange_in_python(
        python(cluster, "OAUTHBEARER", sasl_oauth_token_provider=Provider(bearer_of("dora"))), b"kafka-python token"
    )

    class AioProvider(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return bearer_of("dora")

    async def produce() -> None:
        options = python(cluster, "OAUTHBEARER", sasl_oauth_token_provider=AioProvider())
        del options["ssl_cafile"]
        async with AIOKafkaProducer(**options, ssl_context=create_ssl_context(cafile=node_ca(cluster))) as producer:
            await producer.send_and_wait("orders", b"aiokafka", partition=0)

    asyncio.run(asyncio.wait_for(produce(), DEADLINE_S))
    line = until_audited(audit_log, "signed_in", "User:dora")
    assert (line["principal"], line["mechanism"]) == ("User:dora", "OAUTHBEARER")


def test_connection_continues_under_the_next_token(cluster: LocalCluster, audit_log: Path) -> None:
    """librdkafka authenticates again on its connection before its token ends (KIP-368); no record is delayed."""
    shown: list[str] = []

    def next_bearer() -> str:
        shown.append(bearer_of("erin", 6))
        return shown[-1]

    producer = Producer({**by_token(cluster, next_bearer, 6), "message.timeout.ms": 5_000})
    failed: list[Any] = []
    ends_s = time.monotonic() + 15
    while time.monotonic() < ends_s:
        producer.produce("orders", b"by erin", partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.poll(0.2)
    assert producer.flush(DEADLINE_S) == 0
    assert set(failed) == {None} and len(shown) >= 3
    assert sum(line["times"] for line in lines_of(audit_log, "signed_in", "User:erin")) <= 3, "sessions are renewed"


# -- rejected -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_passwords_are_rejected(cluster: LocalCluster, audit_log: Path, mechanism: str, user: str) -> None:
    """The client gets the reason, the same for all users, and the audit log the mechanism."""
    error = error_of(by_password(cluster, mechanism, "wrong", user))
    proved = "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism
    said = f"the user name or the password is wrong, or the user has no password for {proved}"
    assert said in error
    until_audited(audit_log, "sign_in_failed", proved)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lifetime_s": -5}, "it has ended (exp)"),
        ({"aud": "others"}, "it is for another audience (aud)"),
        ({"iss": "https://others.test"}, "its issuer (iss) is not the expected one"),
        ({"user": "alice"}, "User:alice is a user with a password"),
    ],
)
def test_wrong_tokens_are_rejected(cluster: LocalCluster, audit_log: Path, wrong: dict[str, Any], words: str) -> None:
    """librdkafka and kafka-python get the reason, and so does the audit log."""
    bearer = bearer_of(**{"user": f"mallory-{'-'.join(wrong)}", **wrong})
    assert f"the token is not taken: {words}" in error_of(by_token(cluster, lambda: bearer))
    with pytest.raises(KafkaPythonError) as refused:
        KafkaProducer(
            **python(cluster, "OAUTHBEARER", sasl_oauth_token_provider=Provider(bearer)), bootstrap_timeout_ms=5_000
        )
    assert bearer not in str(refused.value)
    line = until_audited(audit_log, "sign_in_failed", words)
    assert line["mechanism"] == "OAUTHBEARER"


def test_served_mechanisms_are_named(cluster: LocalCluster) -> None:
    """A client that asks for another mechanism learns which are served."""
    with KafkaConnection(cluster.kafka_bootstrap_servers, node_ca(cluster)) as connection:
        answer = connection.ask("SaslHandshake", 1, mechanism="SCRAM-SHA-1")
    assert list(answer.mechanisms) == [*SCRAM, "PLAIN", "OAUTHBEARER"]


# -- administration -----------------------------------------------------------------------------------------------


def test_kafka_clients_set_each_mechanism(cluster: LocalCluster) -> None:
    """With Kafka's API a user gets, keeps and loses a password for each mechanism, and authenticates with it."""
    admin = AdminClient(by_password(cluster, "SCRAM-SHA-512"))

    def alter(*changes: Any) -> None:
        for future in admin.alter_user_scram_credentials(list(changes)).values():
            future.result(DEADLINE_S)

    def described() -> dict[ScramMechanism, int]:
        found = admin.describe_user_scram_credentials(["carol"])["carol"].result(DEADLINE_S)
        return {each.mechanism: each.iterations for each in found.scram_credential_infos}

    def password(mechanism: ScramMechanism, text: str, iterations: int) -> UserScramCredentialUpsertion:
        return UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, iterations), text.encode())

    sha_256, sha_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    alter(password(sha_512, PASSWORD, 8_192))
    assert described() == {sha_512: 8_192}
    exchange(by_password(cluster, "SCRAM-SHA-512", PASSWORD, "carol"), b"carol 512")
    assert "no password for SCRAM-SHA-256" in error_of(by_password(cluster, "SCRAM-SHA-256", PASSWORD, "carol"))
    alter(password(sha_256, NEXT, 4_096))
    assert described() == {sha_256: 4_096, sha_512: 8_192}
    exchange(by_password(cluster, "SCRAM-SHA-256", NEXT, "carol"), b"carol 256")
    exchange(by_password(cluster, "SCRAM-SHA-512", PASSWORD, "carol"), b"carol 512 still")
    alter(UserScramCredentialDeletion("carol", sha_512))
    assert described() == {sha_256: 4_096}
    assert "no password for SCRAM-SHA-512" in error_of(by_password(cluster, "SCRAM-SHA-512", PASSWORD, "carol"))


def test_own_clients_choose_a_mechanism(cluster: LocalCluster) -> None:
    """quorumlog's clients authenticate with SCRAM-SHA-256 unless SCRAM-SHA-512 is set."""
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.password_servers,  # type: ignore[attr-defined]
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": node_ca(cluster),
        "sasl_plain_username": "frank",
        "sasl_plain_password": PASSWORD,
    }

    def reaches(**more: Any) -> bool:
        with Admin(**options, **more) as frank:
            try:
                return frank.list_topics() == ["orders"]
            except SaslAuthenticationFailedError:
                return False

    def shown() -> list[tuple[str, str]]:
        return [(each.user, each.mechanism) for each in admin.describe_user_scram_credentials(["frank"])]

    with own_admin(cluster) as admin:
        only = quorumlog.UserScramCredentialUpsertion("frank", PASSWORD, mechanism="SCRAM-SHA-512")
        assert admin.alter_user_scram_credentials([only]).created == 1
        assert shown() == [("frank", "SCRAM-SHA-512")]
        assert (reaches(), reaches(sasl_mechanism="SCRAM-SHA-512")) == (False, True)
        admin.alter_user_scram_credentials([quorumlog.UserScramCredentialUpsertion("frank", PASSWORD)])
        assert shown() == [("frank", "SCRAM-SHA-256"), ("frank", "SCRAM-SHA-512")]
        assert reaches() and reaches(sasl_mechanism="SCRAM-SHA-512")
        admin.alter_user_scram_credentials([quorumlog.UserScramCredentialDeletion("frank", "SCRAM-SHA-512")])
        assert shown() == [("frank", "SCRAM-SHA-256")]
        assert (reaches(), reaches(sasl_mechanism="SCRAM-SHA-512")) == (True, False)


def test_commands_show_and_choose_mechanisms(cluster: LocalCluster, tmp_path: Path) -> None:
    """``users create`` sets both; ``--mechanism`` limits it and ``users delete``; ``users list`` shows which."""
    secret = tmp_path / "gina.password"
    secret.touch(0o600)
    secret.write_text(f"{PASSWORD}\n")

    def users(*arguments: str) -> str:
        assert cluster.certificates is not None
        ended = cli(cluster, "--command-config", str(cluster.certificates.properties), "users", *arguments)
        return str(ended.stdout + ended.stderr)

    def shown() -> list[str]:
        return re.findall(r"gina +(SCRAM-SHA-\d+)", users("list"))

    file = ("--password-file", str(secret))
    assert users("create", "gina", *file, "--mechanism", "SCRAM-SHA-512") == "Created user gina.\n"
    assert shown() == ["SCRAM-SHA-512"]
    assert "exists already: add --replace" in users("create", "gina", *file)
    assert users("create", "gina", *file, "--replace") == "Changed the password of user gina.\n"
    assert shown() == list(SCRAM)
    gone = users("delete", "gina", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert gone == "Deleted the password of user gina for SCRAM-SHA-256.\n"
    assert shown() == ["SCRAM-SHA-512"]
    assert "has no password for SCRAM-SHA-256" in users("delete", "gina", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert users("delete", "gina", "--yes") == "Deleted user gina.\n"
    assert shown() == []
