"""Kafka's administrators over TLS, with rules on, on real nodes: they make users, give and take rights, and set quotas.
What they change is so for clients that authenticate."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from audit_log import audit_lines
from confluent_kafka import KafkaError, KafkaException, Producer
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
from kafka.errors import ClusterAuthorizationFailedError
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster
from tests.support.command_line import until

pytestmark = pytest.mark.cluster

PASSWORD = "canary-83b0-kafka"
DEADLINE_S = 60.0
#: Bytes per second of a user who has a quota, of each of its records, and what it writes beyond a second's worth.
RATE, SIZE, SECONDS = 50_000, 50_000, 6
#: Who may change rules, users and quotas, and who may do nothing.
ROOT, NOBODY = "root", "nobody"


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
        with quorumlog.Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            admin.alter_user_scram_credentials(
                [quorumlog.UserScramCredentialUpsertion(user, PASSWORD) for user in (ROOT, NOBODY)]
            )
            cluster = quorumlog.ResourcePattern(quorumlog.ResourceType.CLUSTER, "kafka-cluster")
            may = quorumlog.ACLOperation
            admin.create_acls(
                quorumlog.ACL(f"User:{ROOT}", operation, quorumlog.ACLPermissionType.ALLOW, cluster)
                for operation in (may.DESCRIBE, may.ALTER, may.ALTER_CONFIGS)
            )
            # Last: once all nodes serve it, they also have users and rules.
            admin.create_topics([quorumlog.NewTopic("orders", 1, 3)])
        yield running
        for node in running.node_ids:
            text = running.log_path(node).read_text()
            assert running.is_running(node), text[-2_000:]
            assert "fault=failed" not in text and PASSWORD not in text
        assert PASSWORD not in (data / "audit.jsonl").read_text()


def signed_in(cluster: LocalCluster, user: str, password: str = PASSWORD) -> dict[str, Any]:
    """librdkafka's options."""
    assert cluster.certificates is not None
    return {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.certificates.node_ca),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def root(cluster: LocalCluster) -> AdminClient:
    return AdminClient(signed_in(cluster, ROOT))


@contextmanager
def kafka_python(cluster: LocalCluster, user: str) -> Iterator[KafkaAdminClient]:
    assert cluster.certificates is not None
    made = KafkaAdminClient(
        bootstrap_servers=cluster.kafka_bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=str(cluster.certificates.node_ca),
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user,
        sasl_plain_password=PASSWORD,
    )
    try:
        yield made
    finally:
        made.close()


def write(options: dict[str, Any], topic: str = "orders", records: int = 1, size: int = 10) -> KafkaError | None:
    """Writes records one after the other; returns what is wrong with the first that is not written."""
    found: list[KafkaError] = []
    producer = Producer({**options, "linger.ms": 0, "message.timeout.ms": int(DEADLINE_S * 1_000)})
    for _ in range(records):
        producer.produce(
            topic, b"x" * size, partition=0, on_delivery=lambda error, _: error is not None and found.append(error)
        )
        assert producer.flush(DEADLINE_S + 5) == 0
    return found[0] if found else None


def is_let_in(options: dict[str, Any]) -> bool:
    """True if a client can authenticate."""
    errors: list[KafkaError] = []
    client = Producer({**options, "error_cb": errors.append})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            client.list_topics(timeout=1)
        except KafkaException:
            client.poll(0)
            if any(each.code() == KafkaError._AUTHENTICATION for each in errors):
                return False
            assert time.monotonic() < deadline, errors
        else:
            return True


def rule(user: str, operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def rules_of(user: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )


def password_of(user: str, password: str = PASSWORD, iterations: int = 4_096) -> UserScramCredentialUpsertion:
    strength = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    return UserScramCredentialUpsertion(user, strength, password.encode())


def result(asked: dict[Any, Any]) -> Any:
    """Returns the result of the single item that was requested."""
    (future,) = asked.values()
    return future.result(DEADLINE_S)


def code_of(asked: Any) -> int:
    """Kafka's code of why something was refused."""
    (future,) = asked.values() if isinstance(asked, dict) else (asked,)
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    return int(refused.value.args[0].code())


# -- users and rules ----------------------------------------------------------------------------------------------


def test_a_user_that_an_administrator_makes_signs_in_and_may_do_what_rules_say(
    cluster: LocalCluster, root: AdminClient
) -> None:
    dora = signed_in(cluster, "dora")
    assert not is_let_in(dora)
    assert result(root.alter_user_scram_credentials([password_of("dora", iterations=8_192)])) is None
    until(lambda: is_let_in(dora), "dora is not let in")
    (described,) = result(root.describe_user_scram_credentials(["dora"])).scram_credential_infos
    assert (described.mechanism, described.iterations) == (ScramMechanism.SCRAM_SHA_256, 8_192)
    short = {**dora, "topic.metadata.propagation.max.ms": 100}
    hidden = write(short)
    assert hidden is not None and hidden.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert result(root.create_acls([rule("dora", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")])) is None
    until(lambda: "orders" in AdminClient(dora).list_topics(timeout=DEADLINE_S).topics, "dora does not see the topic")
    refused = write(dora)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    writes = rule("dora", AclOperation.WRITE, ResourceType.TOPIC, "orders")
    assert result(root.create_acls([writes])) is None
    until(lambda: write(dora) is None, "dora may not write")
    assert writes in result(root.delete_acls([rules_of("dora")]))
    until(lambda: write(short) is not None, "dora may still write")


def test_another_password_and_the_end_of_a_user_are_so_for_who_signs_in(
    cluster: LocalCluster, root: AdminClient
) -> None:
    old, new = (signed_in(cluster, "emil", password) for password in (PASSWORD, PASSWORD + "2"))
    assert result(root.alter_user_scram_credentials([password_of("emil")])) is None
    until(lambda: is_let_in(old), "emil is not let in")
    assert result(root.alter_user_scram_credentials([password_of("emil", PASSWORD + "2")])) is None
    until(lambda: is_let_in(new), "emil is not let in by the new password")
    until(lambda: not is_let_in(old), "emil is let in by the old password")
    removal = UserScramCredentialDeletion("emil", ScramMechanism.SCRAM_SHA_256)
    assert result(root.alter_user_scram_credentials([removal])) is None
    until(lambda: not is_let_in(new), "emil is still let in")
    assert code_of(root.describe_user_scram_credentials(["emil"])) == KafkaError.RESOURCE_NOT_FOUND


def test_who_may_alter_the_cluster_cannot_make_a_password_for_a_super_user(
    cluster: LocalCluster, root: AdminClient
) -> None:
    assert code_of(root.alter_user_scram_credentials([password_of("admin")])) == KafkaError.POLICY_VIOLATION
    assert not is_let_in(signed_in(cluster, "admin"))


def test_who_has_no_right_to_the_cluster_is_told_so_and_changes_nothing(
    cluster: LocalCluster, root: AdminClient
) -> None:
    nobody = AdminClient(signed_in(cluster, NOBODY))
    for request in (
        nobody.create_acls([rule("eve", AclOperation.READ, ResourceType.TOPIC, "orders")]),
        nobody.delete_acls([rules_of("eve")]),
        nobody.alter_user_scram_credentials([password_of("eve")]),
    ):
        assert code_of(request) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    with kafka_python(cluster, NOBODY) as other:
        refused = KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert [code for code, _ in changed_quotas(other, "eve", producer_byte_rate=RATE)] == [refused]
        assert quotas(other) == (refused, {})
        with pytest.raises(ClusterAuthorizationFailedError):
            other.describe_metadata_quorum()
    assert root.describe_acls(rules_of("eve")).result(DEADLINE_S) == []
    assert code_of(root.describe_user_scram_credentials(["eve"])) == KafkaError.RESOURCE_NOT_FOUND


# -- quotas -------------------------------------------------------------------------------------------------------


def _asked(admin: KafkaAdminClient, request: Any) -> Any:
    """Returns the result of a request that kafka-python has, and its administrator does not."""

    async def ask() -> Any:
        return await admin._manager.send(request)

    return admin._manager.run(ask)


def changed_quotas(admin: KafkaAdminClient, user: str, **values: float | None) -> list[tuple[int, str | None]]:
    """Sets a user's quotas, or with None takes them away."""
    entry = AlterClientQuotasRequest.EntryData
    operations = [entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    named = [entry.EntityData(entity_type="user", entity_name=user)]
    request = AlterClientQuotasRequest(entries=[entry(entity=named, ops=operations)], validate_only=False)
    return [(each.error_code, each.error_message) for each in _asked(admin, request).entries]


def quotas(admin: KafkaAdminClient) -> tuple[int, dict[str, dict[str, float]]]:
    """All that there are, by user."""
    anybody = DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=2, match=None)
    answer = _asked(admin, DescribeClientQuotasRequest(components=[anybody], strict=False))
    found = {
        each.entity[0].entity_name: {value.key: value.value for value in each.values} for each in answer.entries or ()
    }
    return answer.error_code, found


def test_a_quota_that_an_administrator_sets_holds_for_who_signs_in_until_it_is_taken_away(
    cluster: LocalCluster, root: AdminClient
) -> None:
    fred = signed_in(cluster, "fred")
    assert result(root.alter_user_scram_credentials([password_of("fred")])) is None
    assert result(root.create_acls([rule("fred", AclOperation.WRITE, ResourceType.TOPIC, "orders")])) is None
    until(lambda: is_let_in(fred) and write(fred) is None, "fred may not write")
    with kafka_python(cluster, ROOT) as admin:
        assert changed_quotas(admin, "fred", producer_byte_rate=RATE) == [(KafkaError.NO_ERROR, None)]
        assert quotas(admin) == (KafkaError.NO_ERROR, {"fred": {"producer_byte_rate": float(RATE)}})
        records = (SECONDS + 1) * RATE // SIZE
        # What comes at once in the first second, and the last request, which passes although nothing is left.
        least_s = (records * SIZE - RATE - SIZE) / RATE

        def took_s() -> float:
            began = time.monotonic()
            assert write(fred, records=records, size=SIZE) is None
            return time.monotonic() - began

        # Each node goes by the quota as soon as it has applied it.
        until(lambda: took_s() >= least_s, "fred writes on at any rate")
        share = changed_quotas(admin, "fred", request_percentage=50.0)
        assert [code for code, _ in share] == [KafkaError.INVALID_REQUEST]
        assert changed_quotas(admin, "fred", producer_byte_rate=None) == [(KafkaError.NO_ERROR, None)]
        assert quotas(admin) == (KafkaError.NO_ERROR, {})
        until(lambda: took_s() < least_s / 2, "fred is still held up")


# -- the audit log ------------------------------------------------------------------------------------------------


def test_what_kafkas_administrators_change_stands_in_the_audit_log(cluster: LocalCluster, root: AdminClient) -> None:
    assert result(root.alter_user_scram_credentials([password_of("gina")])) is None
    log = cluster.log_path(1).parent / "audit.jsonl"

    def told() -> bool:
        return any("gina" in json.dumps(line) and f"User:{ROOT}" in json.dumps(line) for line in audit_lines(log))

    until(told, log.read_text())


def test_a_mirror_prints_users_and_acls(cluster: LocalCluster, tmp_path: Path) -> None:
    """As commands that create them in another cluster."""
    options = signed_in(cluster, ROOT)
    servers = options.pop("bootstrap.servers")
    file = tmp_path / "source.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    command = [
        Path(sys.executable).with_name("quorumlog"),
        "mirror",
        "--print-security",
        "--from",
        f"kafka://{servers}",
    ]
    done = subprocess.run(
        [*command, "--from-config", str(file)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"quorumlog users create --password-file {ROOT}.password -- {ROOT}" in lines
    assert f"quorumlog acls create --allow User:{ROOT} --operation AlterConfigs --cluster" in lines
    assert PASSWORD not in done.stdout
