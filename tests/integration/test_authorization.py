"""Permission on real nodes: rules are made while no one is asked for any, then nodes are started that ask.

Without certificates every user is User:ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from audit_log import audit_lines
from command_line import cli, until
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ClusterAuthorizationFailedError,
    Consumer,
    GroupAuthorizationFailedError,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourceType,
    TopicAuthorizationFailedError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.cluster

WHO = "User:ANONYMOUS"
#: For what ends as soon as there is an answer.
PATIENCE_S = 30
PATIENCE_MS = 1_000 * PATIENCE_S
ORDERS, SEEN, SECRET = TopicPartition("orders", 0), TopicPartition("seen", 0), TopicPartition("secret", 0)


def allowed(operation: ACLOperation, kind: ResourceType, name: str, *, prefixed: bool = False) -> ACL:
    pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    return ACL(WHO, operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("nodes")
    with LocalCluster(nodes=3, data_dir=place) as open_to_all:
        servers = open_to_all.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(each.topic, 1, 3) for each in (ORDERS, SEEN, SECRET)])
            rules = [
                allowed(ACLOperation.WRITE, ResourceType.TOPIC, "ord", prefixed=True),
                allowed(ACLOperation.READ, ResourceType.TOPIC, "orders"),
                allowed(ACLOperation.DESCRIBE, ResourceType.TOPIC, "seen"),
                allowed(ACLOperation.READ, ResourceType.GROUP, "mine"),
            ]
            assert admin.create_acls(rules) == 4
            assert admin.create_acls(rules) == 0, "they are there already"
            assert set(admin.describe_acls()) == set(rules)
        with Producer(bootstrap_servers=servers) as producer:
            for partition in (ORDERS, SEEN, SECRET):
                producer.send(partition.topic, b"before", partition=0).result(PATIENCE_S)
        # Its ports stay reserved until it is left.
        open_to_all.shutdown()
        asking = {"authorization": True, "super_users": "User:root", "audit_log": audit_log}
        with LocalCluster(nodes=3, data_dir=place, settings=asking) as made:
            yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=30_000) as made:
        yield made


def test_what_is_allowed_is_done(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        assert producer.send("orders", b"after", partition=0).result(PATIENCE_S).offset == 1
    with Consumer("orders", bootstrap_servers=servers, group_id="mine") as consumer:
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for records in consumer.poll(timeout_ms=PATIENCE_MS).values() for record in records]
        consumer.commit()
    assert values == [b"before", b"after"]


def test_a_topic_that_one_may_not_describe_does_not_exist(cluster: LocalCluster, admin: Admin) -> None:
    assert admin.list_topics() == ["orders", "seen"]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topics(["secret"])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["secret"])
    with (
        Producer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=5_000) as producer,
        pytest.raises(UnknownTopicOrPartitionError),
    ):
        producer.send("secret", b"x").result(PATIENCE_S)


def test_what_is_not_allowed_fails_in_one_line_that_says_what_is_missing(cluster: LocalCluster, admin: Admin) -> None:
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        refused = producer.send("seen", b"x", partition=0)
        with pytest.raises(TopicAuthorizationFailedError, match="no permission for Write on Topic seen") as failure:
            refused.result(PATIENCE_S)
        assert (failure.value.definite, failure.value.retriable) == (True, False)
        assert producer.send("orders", b"x", partition=0).result(PATIENCE_S).offset >= 0, (
            "it continues with what it may do"
        )
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([SEEN])
        consumer.seek_to_beginning(SEEN)
        with pytest.raises(TopicAuthorizationFailedError, match="Read on Topic seen"):
            consumer.poll(timeout_ms=PATIENCE_MS)
    with (
        Consumer("orders", bootstrap_servers=servers, group_id="others") as consumer,
        pytest.raises(GroupAuthorizationFailedError, match="Group others"),
    ):
        consumer.poll(timeout_ms=PATIENCE_MS)
    with pytest.raises(TopicAuthorizationFailedError, match="Create on Topic new"):
        admin.create_topics([NewTopic("new", 1, 3)])
    with pytest.raises(TopicAuthorizationFailedError, match="Delete on Topic orders"):
        admin.delete_topics(["orders"])
    for ask in (admin.describe_quorum, admin.describe_acls, admin.describe_node):
        with pytest.raises(ClusterAuthorizationFailedError, match="Describe on Cluster"):
            ask()
    with pytest.raises(ClusterAuthorizationFailedError, match="Alter on Cluster"):
        admin.create_acls([allowed(ACLOperation.ALL, ResourceType.TOPIC, "*")])


def test_everybody_may_ask_what_they_may_do_and_no_more(cluster: LocalCluster, admin: Admin) -> None:
    decision = admin.check_acl(ACLOperation.WRITE, ResourcePattern(ResourceType.TOPIC, "orders"))
    assert (decision.allowed, decision.enforced, decision.super_user) == (True, True, False)
    assert decision.rule == allowed(ACLOperation.WRITE, ResourceType.TOPIC, "ord", prefixed=True)
    with pytest.raises(ClusterAuthorizationFailedError):
        admin.check_acl(ACLOperation.WRITE, ResourcePattern(ResourceType.TOPIC, "orders"), principal="User:root")
    done = cli(cluster, "acls", "check", "--operation", "Delete", "--topic", "orders")
    assert done.returncode == 1
    assert done.stderr == "quorumlog: the caller may not Delete on Topic orders: no ACL allows it\n"
    done = cli(cluster, "acls", "check", "--operation", "read", "--topic", "orders")
    assert done.stdout == f"allowed: allow {WHO} Read on Topic orders\n"


def test_health_is_open_and_reflection_is_not(cluster: LocalCluster) -> None:
    with grpc.insecure_channel(cluster.bootstrap_servers.split(",")[0]) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([question]), timeout=PATIENCE_S
        )
        with pytest.raises(grpc.RpcError) as refused:
            list(answers)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "Describe on Cluster" in refused.value.details()


def test_the_audit_log_tells_who_was_refused_what(cluster: LocalCluster, admin: Admin, audit_log: Path) -> None:
    with pytest.raises(ClusterAuthorizationFailedError):
        admin.describe_quorum()
    until(lambda: refusals_in(audit_log), "the node's thread has written it")
    refusals = refusals_in(audit_log)
    assert {line["principal"] for line in refusals} == {WHO}
    assert {line["host"] for line in refusals} == {"127.0.0.1"}
    assert all(line["times"] >= 1 and line["metadata_index"] > 0 for line in refusals)
    assert (audit_log.stat().st_mode & 0o777) == 0o600
    assert "before" not in audit_log.read_text(), "the audit log contains no content of records"


def refusals_in(audit_log: Path) -> list[dict[str, Any]]:
    return [line for line in audit_lines(audit_log) if line["event"] == "refused"]
