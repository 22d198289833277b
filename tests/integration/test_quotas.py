"""Quotas on real nodes: who is over them waits, others do not, and what is changed counts on streams that are open."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from command_line import all_have_heard
from prometheus_client.parser import text_string_to_metric_families

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, RecordFuture, RequestTimedOutError, TopicPartition
from quorumlog.server.certificates.issuing import Issued, create_client
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

pytestmark = pytest.mark.cluster

LIMIT_S = 30.0
#: Of alice, in bytes per second, and what each of her records has.
RATE, SIZE = 100_000, 10_000
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def metrics() -> Iterator[list[str]]:
    reserved = ReservedPorts(3)
    yield [f"127.0.0.1:{port}" for port in reserved.ports]
    reserved.close()


@pytest.fixture(scope="module")
def cluster(metrics: list[str]) -> Iterator[LocalCluster]:
    places = {node: {"metrics_listen": address} for node, address in enumerate(metrics, start=1)}
    with LocalCluster(nodes=3, tls=True, node_settings=places) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as made:
        yield made
        everybody = made.describe_client_quotas()
        if everybody:
            made.alter_client_quotas({who: dict.fromkeys(values) for who, values in everybody.items()})


def options_of(cluster: LocalCluster, user: str, folder: Path) -> dict[str, str]:
    """Options of a client with a certificate of its own."""
    certificates = cluster.certificates
    assert certificates is not None
    authority = Issued(certificates.folder / "client-ca.crt", certificates.folder / "client-ca.key")
    made = create_client(folder, authority, user)
    own = {"ssl_certificate_location": str(made.certificate), "ssl_key_location": str(made.key)}
    return {"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_tls, **own}


def throttled(metrics: list[str]) -> dict[str, float]:
    """Returns how long principals have waited, at all nodes together."""
    waited: dict[str, float] = {}
    for address in metrics:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as page:
            families = text_string_to_metric_families(page.read().decode())
            samples = [
                s for family in families for s in family.samples if s.name == "quorumlog_throttled_seconds_total"
            ]
        for sample in samples:
            who = sample.labels["principal"]
            waited[who] = waited.get(who, 0) + sample.value
    return waited


def test_a_throttled_producer_keeps_to_its_rate_beside_one_that_goes_on_until_its_quota_is_removed(
    cluster: LocalCluster, admin: Admin, metrics: list[str], tmp_path: Path
) -> None:
    assert admin.alter_client_quotas({"User:alice": {"producer_byte_rate": RATE}}) == 1
    all_have_heard(admin)
    alice = Producer(**options_of(cluster, "alice", tmp_path), batch_size=SIZE, linger_ms=0)
    bob = Producer(**options_of(cluster, "bob", tmp_path), batch_size=SIZE, linger_ms=0)
    with alice, bob:
        bob.send("orders", b"first").result(LIMIT_S)
        began = time.monotonic()
        sent = [alice.send("orders", os.urandom(SIZE)) for _ in range(200)]
        for _ in range(200):
            bob.send("orders", os.urandom(SIZE))
        bob.flush(timeout=LIMIT_S)
        bob_s = time.monotonic() - began
        assert bob_s < 200 * SIZE / RATE / 2, "bob waits for alice"
        for waiting in sent:
            waiting_s = began + 5 - time.monotonic()
            if waiting_s <= 0:
                break
            if not _is_done(waiting, waiting_s):
                break
        least_s = time.monotonic() - began
        acknowledged = SIZE * sum(each.done() for each in sent)
        most_s = time.monotonic() - began
        # A second's worth at once, and one request beyond it.
        assert acknowledged <= RATE * (most_s + 1) + 5 * SIZE, f"{acknowledged} in {most_s:.1f} s"
        assert acknowledged >= 0.3 * RATE * least_s, f"{acknowledged} in {least_s:.1f} s"
        assert not sent[-1].done()
        admin.alter_client_quotas({"User:alice": {"producer_byte_rate": None}})
        removed = time.monotonic()
        alice.flush(timeout=LIMIT_S)
        assert time.monotonic() - removed < (200 * SIZE - acknowledged) / RATE, (
            "she is still throttled after the quota was removed"
        )
    waited = throttled(metrics)
    assert waited["User:alice"] > 1
    assert set(waited) == {"User:alice"}


def _is_done(future: RecordFuture, timeout_s: float) -> bool:
    try:
        future.result(timeout_s)
    except RequestTimedOutError:
        return False
    return True


def test_a_throttled_reader_gets_everything_in_its_time(cluster: LocalCluster, admin: Admin, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls, batch_size=SIZE) as producer:
        mine = [producer.send("orders", os.urandom(SIZE)) for _ in range(60)]
        producer.flush(timeout=LIMIT_S)
    first = mine[0].result(LIMIT_S).offset
    admin.alter_client_quotas({"User:*": {"consumer_byte_rate": 2 * RATE}})
    all_have_heard(admin)
    options = options_of(cluster, "carol", tmp_path)
    with Consumer(**options) as consumer:
        consumer.assign([ORDERS])
        consumer.seek(ORDERS, first)
        began, read = time.monotonic(), 0
        while read < 60:
            assert time.monotonic() - began < LIMIT_S
            read += sum(map(len, consumer.poll(timeout_ms=500).values()))
        took_s = time.monotonic() - began
    assert took_s > (60 * SIZE - 2 * RATE) / (2 * RATE) - 0.5, f"600 kB in {took_s:.1f} s"


def test_who_creates_too_many_partitions_is_held_up_and_gets_them(cluster: LocalCluster, admin: Admin) -> None:
    admin.alter_client_quotas({"User:admin": {"controller_mutation_rate": 5}})
    began = time.monotonic()
    admin.create_topics([NewTopic("many", 15, 1)])
    admin.create_topics([NewTopic("more", 1, 1)])
    assert time.monotonic() - began > 1.9, "ten were a debt of two seconds"
    # The next ones are a debt of half a minute: more than it takes to ask, on whatever machine.
    admin.alter_client_quotas({"User:admin": {"controller_mutation_rate": 0.5}})
    admin.delete_topics(["many"])
    impatient = {"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_tls, "request_timeout_ms": 5_000}
    with Admin(**impatient) as other, pytest.raises(RequestTimedOutError, match=r"controller_mutation_rate = 0\.5"):
        other.create_topics([NewTopic("late", 1, 1)])


def test_what_the_command_line_sets_counts_on_a_stream_that_is_open() -> None:
    with LocalCluster(nodes=1) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        assert quotas(servers, "set", "User:ANONYMOUS", "--producer-byte-rate", "2000") == [
            {"principal": "User:ANONYMOUS", "producer_byte_rate": 2000.0}
        ]
        with grpc.insecure_channel(servers) as channel:
            stub = data_plane_pb2_grpc.DataPlaneStub(channel)
            (topic,) = stub.Metadata(pb.MetadataRequest(topics=["orders"]), timeout=LIMIT_S).topics
            requests: queue.Queue[pb.ProduceRequest | None] = queue.Queue()
            answers = stub.Produce(iter(requests.get, None), timeout=4 * LIMIT_S)
            for number in range(1, 11):
                batch = build_batch(
                    b"x" * 40_000, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1
                )
                body = pb.PartitionBatch(topic_id=topic.topic_id, partition=0, batch=batch)
                requests.put(pb.ProduceRequest(correlation_id=number, acks=-1, timeout_ms=120_000, batches=[body]))
            first = next(answers)
            assert (first.correlation_id, first.results[0].error.code) == (1, ErrorCode.NONE)
            assert stub.Metadata(pb.MetadataRequest(topics=["orders"]), timeout=LIMIT_S).topics, "calls continue"
            removed = time.monotonic()
            quotas(servers, "delete", "User:ANONYMOUS", "--yes")
            rest = [next(answers) for _ in range(9)]
            assert [each.correlation_id for each in rest] == list(range(2, 11))
            assert {each.results[0].error.code for each in rest} == {ErrorCode.NONE}
            assert time.monotonic() - removed < 19, "the second one would have waited for 19 seconds"
            requests.put(None)
            assert list(answers) == []
        assert quotas(servers, "list") == []


def quotas(servers: str, *arguments: str) -> list[dict[str, object]]:
    """Runs ``quorumlog quotas``."""
    command = [sys.executable, "-m", "quorumlog.cli.main", "quotas", *arguments, "--output", "json"]
    done = subprocess.run(
        [*command, "--bootstrap-servers", servers], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    reported: list[dict[str, object]] = json.loads(done.stdout)
    return reported
