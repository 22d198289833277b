"""Bad requests over bare gRPC: each gets its own clear error, on the right layer, and nothing is lost by them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from quorumlog.local import LocalCluster
from quorumlog.v1 import admin_pb2, admin_pb2_grpc, data_plane_pb2, data_plane_pb2_grpc
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch, parse_header, verify
from tests.support.inflating_batches import inflating_batch

pytestmark = pytest.mark.cluster

UNKNOWN_TOPIC = b"\xaa" * 16
#: For what ends as soon as there is an answer.
TIMEOUT_S = 60


class Client:
    """One client's bare connection to a single node."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self.data = data_plane_pb2_grpc.DataPlaneStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)

    def produce(self, *batches: data_plane_pb2.PartitionBatch, acks: int = -1) -> data_plane_pb2.ProduceResponse:
        request = data_plane_pb2.ProduceRequest(correlation_id=7, acks=acks, timeout_ms=30_000, batches=batches)
        return next(self.data.Produce(iter([request]), timeout=TIMEOUT_S))

    def fetch(self, *partitions: data_plane_pb2.FetchPartition) -> data_plane_pb2.FetchResponse:
        request = data_plane_pb2.FetchRequest(correlation_id=8, max_bytes=1 << 20, partitions=partitions)
        return next(self.data.Fetch(iter([request]), timeout=TIMEOUT_S))

    def create(self, **topic: object) -> admin_pb2.CreateTopicResult:
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(**topic)], timeout_ms=30_000)  # type: ignore[arg-type]
        return self.admin.CreateTopics(request, timeout=TIMEOUT_S).results[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    client = Client(cluster.address(1))
    yield client
    client.channel.close()
    assert "Traceback" not in cluster.log_path(1).read_text()


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster, client: Client) -> bytes:
    created = client.create(
        name="orders",
        num_partitions=1,
        replication_factor=1,
        configs={"retention.ms": "-1"},  # The batches are of 1970.
    )
    assert not created.HasField("error")
    deadline = time.monotonic() + TIMEOUT_S
    while cluster.leader("orders", 0) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return created.topic_id


_payloads = itertools.count()


def a_batch(size_bytes: int = 64) -> bytes:
    payload = next(_payloads).to_bytes(8, "little") * (size_bytes // 8)
    return build_batch(payload, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)


def to(topic_id: bytes, batch: bytes, partition: int = 0) -> data_plane_pb2.PartitionBatch:
    return data_plane_pb2.PartitionBatch(topic_id=topic_id, partition=partition, batch=batch)


def refused(response: data_plane_pb2.ProduceResponse) -> str:
    """The name of the only result's error; asserts that it is of one line and definite."""
    (result,) = response.results
    assert result.error.message
    assert "\n" not in result.error.message
    assert result.error.definite
    assert result.base_offset == -1
    return ErrorCode.Name(result.error.code)


def status_of(call: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Status and reason of a call that failed as a whole."""
    assert isinstance(call, grpc.Call)
    status = rpc_status.from_call(call)
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "quorumlog"
    assert set(info.metadata) >= {"retriable", "definite"}
    return call.code(), info.reason


def test_a_good_batch_is_taken_and_read_back(client: Client, topic: bytes) -> None:
    batch = a_batch()
    (produced,) = client.produce(to(topic, batch)).results
    assert not produced.HasField("error"), produced.error
    wanted = data_plane_pb2.FetchPartition(
        topic_id=topic, partition=0, fetch_offset=produced.base_offset, leader_epoch=-1, max_bytes=1 << 20
    )
    (fetched,) = client.fetch(wanted).results
    verify(fetched.entries[0])
    assert parse_header(fetched.entries[0]).base_offset == produced.base_offset
    assert fetched.entries[0][96:] == batch[96:]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_few_kilobytes_that_stand_for_a_quarter_of_a_gigabyte_are_refused(
    client: Client, topic: bytes, codec: Codec
) -> None:
    response = client.produce(to(topic, inflating_batch(240 << 20, codec)))
    assert refused(response) == "INVALID_RECORD"
    assert "decompressed" in response.results[0].error.message


@pytest.mark.parametrize("damage", ["flipped", "cut", "lengthened", "nothing", "noise"])
def test_a_damaged_batch_is_corrupt_and_not_appended(client: Client, topic: bytes, damage: str) -> None:
    good = a_batch()
    flipped = bytearray(good)
    flipped[100] ^= 1
    bad = {
        "flipped": bytes(flipped),
        "cut": good[:-1],
        "lengthened": good + b"x",
        "nothing": b"",
        "noise": bytes(range(256)),
    }[damage]
    before = client.produce(to(topic, a_batch())).results[0].base_offset
    assert refused(client.produce(to(topic, bad))) == "CORRUPT_MESSAGE"
    assert client.produce(to(topic, a_batch())).results[0].base_offset == before + 1


def test_one_bad_batch_does_not_spoil_its_neighbour(client: Client, topic: bytes) -> None:
    created = client.create(name="neighbour", num_partitions=1, replication_factor=1)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        good, bad = client.produce(to(created.topic_id, a_batch()), to(topic, b"nonsense")).results
        if not good.HasField("error"):
            break
        assert good.error.retriable, good.error
        assert time.monotonic() < deadline
    assert bad.error.code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_beyond_the_topics_limit_is_too_large(client: Client, topic: bytes) -> None:
    assert refused(client.produce(to(topic, a_batch(2 << 20)))) == "RECORD_TOO_LARGE"


def test_a_request_beyond_the_nodes_limit_is_too_large(client: Client, topic: bytes) -> None:
    assert refused(client.produce(to(topic, a_batch(40 << 20)))) == "RECORD_TOO_LARGE"


def test_an_unknown_topic_and_a_partition_out_of_range_are_unknown(client: Client, topic: bytes) -> None:
    assert refused(client.produce(to(UNKNOWN_TOPIC, a_batch()))) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert refused(client.produce(to(topic, a_batch(), partition=99))) == "UNKNOWN_TOPIC_OR_PARTITION"
    wanted = data_plane_pb2.FetchPartition(topic_id=topic, partition=99, leader_epoch=-1, max_bytes=1)
    (fetched,) = client.fetch(wanted).results
    assert fetched.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_offset_beyond_the_end_is_out_of_range(client: Client, topic: bytes) -> None:
    wanted = data_plane_pb2.FetchPartition(
        topic_id=topic, partition=0, fetch_offset=1_000_000, leader_epoch=-1, max_bytes=1
    )
    (fetched,) = client.fetch(wanted).results
    assert fetched.error.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"acks": 7}, "INVALID_REQUIRED_ACKS"),
        ({"batches": []}, "INVALID_REQUEST"),
        ({"batches": [to(b"short", b"")]}, "INVALID_REQUEST"),
        ({"batches": [to(UNKNOWN_TOPIC, b"", partition=-1)]}, "INVALID_REQUEST"),
        ({"batches": [to(UNKNOWN_TOPIC, b""), to(UNKNOWN_TOPIC, b"")]}, "INVALID_REQUEST"),
    ],
)
def test_a_produce_request_without_sense_ends_the_stream_with_a_reason(
    client: Client, change: dict[str, object], reason: str
) -> None:
    fields: dict[str, object] = {"acks": -1, "batches": [to(UNKNOWN_TOPIC, b"")], **change}
    request = data_plane_pb2.ProduceRequest(**fields)  # type: ignore[arg-type]
    with pytest.raises(grpc.RpcError) as caught:
        list(client.data.Produce(iter([request]), timeout=TIMEOUT_S))
    assert status_of(caught.value) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        reason,
    )


@pytest.mark.parametrize("method", ["DataPlane/Produce", "DataPlane/Fetch"])
def test_bytes_that_are_no_message_end_the_stream(client: Client, method: str) -> None:
    call = client.channel.stream_stream(f"/quorumlog.v1.{method}")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff\xff\xff"]), timeout=TIMEOUT_S))
    assert status_of(caught.value) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


@pytest.mark.parametrize("method", ["DataPlane/Metadata", "DataPlane/ListOffsets", "Admin/CreateTopics"])
def test_bytes_that_are_no_message_fail_a_call(client: Client, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.channel.unary_unary(f"/quorumlog.v1.{method}")(b"\xff\xff\xff", timeout=TIMEOUT_S)
    assert status_of(caught.value) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


@pytest.mark.parametrize("method", ["Peer/Control", "Peer/Data"])
def test_a_stranger_on_a_peer_stream_is_turned_away(client: Client, method: str) -> None:
    call = client.channel.stream_stream(f"/quorumlog.v1.{method}")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff\xff\xff"]), timeout=TIMEOUT_S))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("topic_fields", "reason"),
    [
        ({"name": "a b"}, "INVALID_TOPIC"),
        ({"name": "orders-2", "num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"name": "orders-2", "replication_factor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "orders-2", "replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "orders-2", "configs": {"retention.msec": "5"}}, "INVALID_CONFIG"),
        ({"name": "orders-2", "configs": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"name": "orders"}, "TOPIC_ALREADY_EXISTS"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    client: Client, topic: bytes, topic_fields: dict[str, object], reason: str
) -> None:
    result = client.create(**{"num_partitions": 1, "replication_factor": 1, **topic_fields})
    assert ErrorCode.Name(result.error.code) == reason
    assert result.error.message
    assert "\n" not in result.error.message


def test_a_client_that_leaves_with_a_parked_fetch_does_no_harm(client: Client, topic: bytes) -> None:
    produced = client.produce(to(topic, a_batch())).results[0].base_offset
    waiting = data_plane_pb2.FetchPartition(
        topic_id=topic, partition=0, fetch_offset=produced + 1, leader_epoch=-1, max_bytes=1
    )
    request = data_plane_pb2.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1, partitions=[waiting])
    for _ in range(20):
        client.data.Fetch(iter([request]), timeout=60).cancel()
    assert not client.produce(to(topic, a_batch())).results[0].HasField("error")


def test_health_and_reflection_are_served(client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "quorumlog.v1.DataPlane", "quorumlog.v1.Admin"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    reflection = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    (listed,) = reflection.ServerReflectionInfo(iter([ask]), timeout=TIMEOUT_S)
    names = {service.name for service in listed.list_services_response.service}
    assert names >= {"quorumlog.v1.DataPlane", "quorumlog.v1.Admin", "quorumlog.v1.Peer", "grpc.health.v1.Health"}
