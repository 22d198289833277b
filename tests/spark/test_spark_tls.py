"""Spark reads from, and writes to, a cluster whose nodes ask for certificates."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    NewTopic,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.runtime import tls_files
from quorumlog.sdk.runtime.security import ClientSecurity
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.nodes import Nodes
from quorumlog.sdk.spark.option_values import GivenOptions
from quorumlog.sdk.spark.servers import Servers, security_of
from quorumlog.server.certificates.issuing import create_authority, create_client
from tests.support.stream_queries import past_slow_starts

SSL = ClientSecurity("SSL", "/ca.crt", "/alice.crt", "/alice.key")


def test_how_nodes_are_reached_goes_with_their_addresses() -> None:
    servers = Servers("a:1,b:2", SSL)
    sent = pickle.loads(pickle.dumps(servers))
    assert sent == servers and security_of(sent) == SSL and hash(sent) == hash(servers)
    assert servers != Servers("a:1,b:2") and servers != "a:1,b:2"
    assert Servers("a:1") == "a:1" and security_of("a:1") == ClientSecurity()
    assert servers.split(",") == ["a:1", "b:2"]


def test_options_say_how_nodes_are_reached() -> None:
    given = GivenOptions(
        {
            "quorumlog.bootstrap.servers": "a:1",
            "quorumlog.security.protocol": "SSL",
            "quorumlog.ssl.ca.location": "/ca.crt",
            "quorumlog.ssl.certificate.location": "/alice.crt",
            "quorumlog.ssl.key.location": "/alice.key",
        }
    )
    assert given.bootstrap_servers() == Servers("a:1", SSL)


def test_options_say_who_signs_in_and_nothing_shows_the_password() -> None:
    given = GivenOptions(
        {
            "quorumlog.bootstrap.servers": "a:1",
            "quorumlog.security.protocol": "SASL_SSL",
            "quorumlog.sasl.mechanism": "SCRAM-SHA-256",
            "quorumlog.sasl.username": "alice",
            "quorumlog.sasl.password": "canary",
        }
    )
    servers = given.bootstrap_servers()
    security = security_of(pickle.loads(pickle.dumps(servers)))
    assert (security.sasl_plain_username, security.sasl_plain_password) == ("alice", "canary")
    assert security.identity() is not None
    assert "canary" not in repr(servers) + repr(security) + repr(security.identity())
    wrong = {"quorumlog.sasl.password": "canary\n", "quorumlog.sasl.username": "alice"}
    with pytest.raises(OptionError) as refused:
        GivenOptions(
            {"quorumlog.bootstrap.servers": "a:1", "quorumlog.security.protocol": "SASL_SSL", **wrong}
        ).bootstrap_servers()
    assert "canary" not in str(refused.value)


def test_options_name_a_file_with_a_token() -> None:
    given = GivenOptions(
        {
            "quorumlog.bootstrap.servers": "a:1",
            "quorumlog.security.protocol": "SASL_SSL",
            "quorumlog.sasl.mechanism": "OAUTHBEARER",
            "quorumlog.sasl.oauthbearer.token.file": "/run/token",
        }
    )
    security = security_of(pickle.loads(pickle.dumps(given.bootstrap_servers())))
    assert security.sasl_oauthbearer_token_file == "/run/token"
    assert security.identity() is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quorumlog.security.protocol": "TLS"}, "give PLAINTEXT or SSL"),
        ({"quorumlog.ssl.ca.location": "/ca.crt"}, "security_protocol is not SSL"),
        ({"quorumlog.security.protocol": "SSL", "quorumlog.ssl.key.location": "k"}, "give both"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        GivenOptions({"quorumlog.bootstrap.servers": "a:1", **options}).bootstrap_servers()


def test_tasks_connect_with_the_files_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "LOOKED_AT_S", 0.0)
    authority = create_authority(tmp_path, "ca")
    alice = create_client(tmp_path, authority, "alice")
    nodes = Nodes(Servers("127.0.0.1:1", ClientSecurity("SSL", *map(str, (authority.certificate, *alice)))))
    former = nodes.channel("127.0.0.1:1")
    assert nodes.channel("127.0.0.1:1") is former
    for made, own in zip(create_client(tmp_path / "next", authority, "alice"), alice, strict=True):
        os.replace(made, own)
    present = nodes.channel("127.0.0.1:1")
    assert present is not former
    assert nodes.channel("127.0.0.1:1") is present


ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")


@contextmanager
def asking_cluster(*topics: str) -> Iterator[tuple[Admin, dict[str, str]]]:
    """A cluster that asks for passwords and permissions. Yields its admin, and the options of user alice."""
    reserved = ReservedPorts(1)
    place = f"127.0.0.1:{reserved.ports[0]}"
    asking = {"password_listen": place, "authorization": True, "super_users": "User:admin"}
    with (
        LocalCluster(nodes=1, tls=True, settings=asking) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin,
    ):
        admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1) for name in topics])
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "canary-of-spark")])
        yield (
            admin,
            {
                "quorumlog.bootstrap.servers": place,
                "quorumlog.security.protocol": "SASL_SSL",
                "quorumlog.ssl.ca.location": cluster.client_tls["ssl_ca_location"],
                "quorumlog.sasl.username": "alice",
                "quorumlog.sasl.password": "canary-of-spark",
            },
        )
    reserved.close()


def allowed(operation: ACLOperation, pattern: ResourcePattern) -> ACL:
    return ACL("User:alice", operation, ACLPermissionType.ALLOW, pattern)


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_exactly_once_writes_need_write_on_names_that_start_with_their_id(spark: SparkSession, tmp_path: Path) -> None:
    names = ResourcePattern(ResourceType.PRODUCER_NAME, "nightly", ACLResourcePatternType.PREFIXED)
    queries = ResourcePattern(ResourceType.PRODUCER_NAME, "spark-", ACLResourcePatternType.PREFIXED)
    with asking_cluster("orders", "copies") as (admin, options):
        copies = ResourcePattern(ResourceType.TOPIC, "copies")
        granted = [(ACLOperation.READ, ORDERS), (ACLOperation.WRITE, ORDERS), (ACLOperation.WRITE, copies)]
        admin.create_acls(allowed(*each) for each in granted)
        rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        job = rows.write.format("quorumlog").options(**options, topic="orders", transactionId="nightly").mode("append")
        orders = spark.readStream.format("quorumlog").options(**options, subscribe="orders", startingOffsets="earliest")
        copy = orders.load().select("value").writeStream.format("quorumlog").options(**options, topic="copies")
        copy = copy.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        for write in (job.save, lambda: copy.start().awaitTermination(100)):
            with pytest.raises(Exception, match="ProducerName"):
                past_slow_starts(write)
        admin.create_acls(allowed(ACLOperation.WRITE, pattern) for pattern in (names, queries))
        for _ in range(2):
            job.save()
            assert past_slow_starts(lambda: copy.start().awaitTermination(100))
        admin.create_acls([allowed(ACLOperation.READ, copies)])
        read = spark.read.format("quorumlog").options(**options).option("subscribe", "orders,copies").load()
        assert sorted(int(row.value) for row in read.collect()) == [number // 2 for number in range(200)]


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_rows_go_in_and_come_out_by_password_and_permission_and_no_plan_shows_it(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with asking_cluster("orders", "hers") as (admin, options):
        admin.create_acls(allowed(operation, ORDERS) for operation in (ACLOperation.READ, ACLOperation.WRITE))
        rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
        rows.write.format("quorumlog").options(**options).option("topic", "orders").mode("append").save()
        read = spark.read.format("quorumlog").options(**options).option("subscribe", "orders").load()
        assert {bytes(row.value) for row in read.select("value").collect()} == {b"%d" % (2 * n) for n in range(100)}
        read.explain(extended=True)
        said = {}
        for why, more in {
            "another password": {"quorumlog.sasl.password": "canary-of-nobody"},
            "no password": {"quorumlog.sasl.password": "canary-of-spark\n"},
            "no permission": {"subscribe": "hers"},
        }.items():
            with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark wraps it, and what it says is the point
                spark.read.format("quorumlog").options(**{"subscribe": "orders", **options, **more}).load().collect()
            said[why] = str(refused.value)
            assert "canary" not in said[why]
    wrong = [line for line in said["another password"].splitlines() if "password is wrong" in line]
    assert len(wrong) == 1, said
    assert "hers" in said["no permission"]
    assert "which the cluster does not have" in said["no permission"]
    shown = capfd.readouterr()
    assert "canary" not in shown.out + shown.err


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_rows_go_in_and_come_out_with_certificates(spark: SparkSession) -> None:
    with LocalCluster(nodes=1, tls=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])
        options = {f"quorumlog.{name.replace('_', '.')}": value for name, value in cluster.client_tls.items()}
        options["quorumlog.bootstrap.servers"] = cluster.bootstrap_servers
        rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
        rows.write.format("quorumlog").options(**options).option("topic", "orders").mode("append").save()
        read = spark.read.format("quorumlog").options(**options).option("subscribe", "orders").load()
        assert {bytes(row.value) for row in read.select("value").collect()} == {b"%d" % (2 * n) for n in range(100)}
