"""Passwords beyond ASCII: all clients authenticate with those that users can be given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, IllegalArgumentError, NewTopic, UserScramCredentialUpsertion
from quorumlog.sdk.errors import InvalidRequestError

pytestmark = pytest.mark.cluster

#: User and password.
ACCEPTED = {
    "alice": "plain ASCII, with = and ,",
    "größe": "pässwörd",
    "пользователь": "пароль",
    "利用者": "注文パスワード",
    "arabic": "كلمة",
    "a b": "Łódź, =x",
}
#: SASLprep changes these: a ligature, a Roman numeral, full-width letters, a no-break space, a soft hyphen, a
#: decomposed umlaut, an ordinal.
REFUSED = ["ﬁsh", "Ⅸ", "ｐａｓｓ", "a\u00a0b", "pass\u00adword", "pa\u0308ss", "1ª"]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reserved = ReservedPorts(1)
    password_server = f"127.0.0.1:{reserved.ports[0]}"
    with LocalCluster(
        nodes=1,
        tls=True,
        kafka=True,
        data_dir=tmp_path_factory.mktemp("nodes"),
        settings={"kafka_security_protocol": "SASL_SSL"},
        node_settings={1: {"password_listen": password_server}},
    ) as running:
        running.password_servers = password_server  # type: ignore[attr-defined]
        with admin_of(running) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, password) for user, password in ACCEPTED.items()]
            )
            admin.create_topics([NewTopic("orders", 1, 1)])
        yield running
    reserved.close()


def admin_of(cluster: LocalCluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls)


def node_ca(cluster: LocalCluster) -> str:
    assert cluster.certificates is not None
    return str(cluster.certificates.node_ca)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("user", ACCEPTED)
def test_kafka_clients_sign_in(cluster: LocalCluster, user: str, mechanism: str) -> None:
    """librdkafka, kafka-python and aiokafka."""
    servers, password = cluster.kafka_bootstrap_servers, ACCEPTED[user]
    librdkafka = AdminClient(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": node_ca(cluster),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    assert librdkafka.list_topics(timeout=DEADLINE_S).brokers
    python: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    consumer = KafkaConsumer(**python, ssl_cafile=node_ca(cluster))
    assert consumer.topics() == {"orders"}
    consumer.close()

    async def connect() -> None:
        from aiokafka.helpers import create_ssl_context

        async with AIOKafkaProducer(**python, ssl_context=create_ssl_context(cafile=node_ca(cluster))):
            pass

    asyncio.run(asyncio.wait_for(connect(), DEADLINE_S))


@pytest.mark.parametrize("user", ACCEPTED)
def test_own_clients_sign_in(cluster: LocalCluster, user: str) -> None:
    with Admin(
        bootstrap_servers=cluster.password_servers,  # type: ignore[attr-defined]
        security_protocol="SASL_SSL",
        ssl_ca_location=node_ca(cluster),
        sasl_plain_username=user,
        sasl_plain_password=ACCEPTED[user],
    ) as admin:
        assert admin.list_topics() == ["orders"]


@pytest.mark.parametrize("password", REFUSED)
def test_ambiguous_passwords_are_refused(cluster: LocalCluster, password: str) -> None:
    """The line says why, without the password."""
    with admin_of(cluster) as admin, pytest.raises(IllegalArgumentError) as refused:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", password)])
    assert "some clients normalize" in refused.value.message
    assert password not in refused.value.message


@pytest.mark.parametrize("user", ["ﬁsh", "Ⅸ", "ｕｓｅｒ", "ma\u0308rz"])
def test_ambiguous_names_are_refused(cluster: LocalCluster, user: str) -> None:
    """The line suggests the intended name."""
    with admin_of(cluster) as admin, pytest.raises(InvalidRequestError, match="can be written in two ways"):
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, "password")])


def test_command_refuses_ambiguous_passwords(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any node is asked."""
    from quorumlog.cli.main import main

    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("ﬁsh\n", "utf-8")
    with pytest.raises(SystemExit):
        main(["users", "create", "bob", "--password-file", str(file), "-b", "127.0.0.1:1"])
    [line] = capsys.readouterr().err.splitlines()
    assert "some clients normalize" in line
