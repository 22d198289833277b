"""Requests that no client of ours would make, to every method of the services: the node answers, and continues.

Each field of each request is given values that a program with a mistake, or a client with bad intentions, might send.
The methods and fields are taken from the services' descriptors, so that a new one is tried without being named here.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2, groups_pb2_grpc
from quorumlog.wire.entry import Codec, build_batch

pytestmark = pytest.mark.cluster

METHODS: list[MethodDescriptor] = [
    method
    for file in (admin_pb2, data_plane_pb2, groups_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
REQUESTS_PER_METHOD = 200
#: So many go out at once: one that is left waiting for its time-out does not hold up the others.
AT_ONCE = 20
TIMEOUT_S = 10.0
#: What requests may say about their own time, so that the test is over soon.
PATIENCE_MS = (0, 1, 200)

NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 2, 3, 1000, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, 2, 1000, 1001, 2**62, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2, 3, 1000, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2, 1000, 1001, 2**62, 2**64 - 1),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, float("nan"), float("inf")),
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, -1.0, float("nan"), float("inf")),
}
TEXTS = (
    "", "orders", "a\nb", "\0", "\x1b[2J", "\u2028", "größe", "🦆", "..", "x" * 300, "x" * 20_000, "1" * 400, "-1", "0",
    "retention.ms", "cleanup.policy", "compact", "99999999999999999999",
)  # fmt: skip
#: What gets a request about groups beyond its form, now and then.
GROUP_VALUES: dict[str, tuple[object, ...]] = {
    "group_id": ("g", "g", "h", "", "x" * 250, "a\nb", "🦆"),
    "group_ids": ("g", "h", "", "x" * 250, "\0"),
    "member_id": ("a", "a", "b", "", "x" * 65, "\0"),
    "member_epoch": (0, 0, 1, 2, -1, -2, -3, 2**31 - 1),
    "session_timeout_ms": (6_000, 6_000, 0, 2**32 - 1),
    "rebalance_timeout_ms": (6_000, 6_000, 0, 2**32 - 1),
    "topic_pattern": ("", "", "ord.*", "(", "(a*)*b", "x" * 2_000),
    "assignor": ("", "", "uniform", "range", "ünion"),
}


@dataclass
class Maker:
    """Makes up requests; what exists in the cluster is among their values, so that some get far."""

    topic_id: bytes
    chance: random.Random
    batch: bytes = field(
        default_factory=lambda: build_batch(
            b"x" * 64, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1
        )
    )

    def message(self, kind: Descriptor, depth: int = 0) -> Message:
        made: Message = GetMessageClass(kind)()
        for each in kind.fields:
            if self.chance.random() < 0.25 or depth > 3:
                continue
            if each.message_type is not None and each.message_type.GetOptions().map_entry:
                value_of = each.message_type.fields_by_name["value"]
                if value_of.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                    getattr(made, each.name)[self.chance.choice(TEXTS)] = self.chance.choice(TEXTS)
            elif each.is_repeated:
                values = [self.value(each, depth) for _ in range(self.chance.choice((1, 1, 2, 5)))]
                getattr(made, each.name).extend(values)
            elif each.message_type is not None:
                getattr(made, each.name).CopyFrom(self.value(each, depth))
            else:
                setattr(made, each.name, self.value(each, depth))
        return made

    def value(self, each: FieldDescriptor, depth: int) -> object:
        if each.message_type is not None:
            return self.message(each.message_type, depth + 1)
        # A name may be also borne by a flag (which of a heartbeat's fields came): a flag is made up as any other.
        is_flag = each.cpp_type == FieldDescriptor.CPPTYPE_BOOL
        if each.file.name.endswith("/groups.proto") and each.name in GROUP_VALUES and not is_flag:
            chosen = self.chance.choice(GROUP_VALUES[each.name])
            return min(chosen, 2**31 - 1) if each.cpp_type == FieldDescriptor.CPPTYPE_INT32 else chosen  # type: ignore[type-var]
        if each.name in ("topic_id", "partition") and self.chance.random() < 0.7:
            return self.topic_id if each.name == "topic_id" else self.chance.choice((0, 1))
        if each.name in ("timeout_ms", "max_wait_ms"):
            return self.chance.choice(PATIENCE_MS)
        if each.enum_type is not None:
            return self.chance.choice((*each.enum_type.values_by_number, 99))
        if each.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            if each.type == FieldDescriptor.TYPE_BYTES:
                return self.chance.choice((b"", self.topic_id, b"\xff" * 16, b"\0" * 7, self.batch, self.batch[:50]))
            return "orders" if self.chance.random() < 0.4 else self.chance.choice(TEXTS)
        return self.chance.choice(NUMBERS[each.cpp_type])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as running:
        with grpc.insecure_channel(running.address(1)) as channel:
            # Requests about groups get as far as a coordinator.
            groups_pb2_grpc.GroupsStub(channel).FindCoordinators(groups_pb2.FindCoordinatorsRequest(all=True))
        yield running


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_whatever_a_client_sends_the_node_answers_and_lives(cluster: LocalCluster, method: MethodDescriptor) -> None:
    seed = zlib.crc32(method.full_name.encode())
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        if "orders" not in admin.list_topics():
            admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])
        [topic] = admin.describe_topics(["orders"])
    maker = Maker(bytes.fromhex(topic.topic_id), random.Random(seed))
    requests = [maker.message(method.input_type) for _ in range(REQUESTS_PER_METHOD)]
    with grpc.insecure_channel(cluster.address(1), options=[("grpc.max_receive_message_length", -1)]) as channel:
        for first in range(0, len(requests), AT_ONCE):
            for request, code, details in outcomes(channel, method, requests[first : first + AT_ONCE]):
                assert code is not grpc.StatusCode.UNKNOWN, f"seed {seed}: {details} for\n{request}"
    log = cluster.log_path(1).read_text()
    assert cluster.is_running(1), f"seed {seed}: the node ended:\n{log[-2000:]}"
    assert "Traceback" not in log, f"seed {seed}"
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        if "orders" not in admin.list_topics():  # A request may well have deleted it.
            admin.create_topics([NewTopic("orders", num_partitions=2, replication_factor=1)])
        assert producer.send("orders", b"still here").result(timeout=60).offset >= 0


def outcomes(
    channel: grpc.Channel, method: MethodDescriptor, requests: list[Message]
) -> Iterator[tuple[Message, grpc.StatusCode, str]]:
    """Returns how each of some calls, made at once, ended."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming:
        stream = channel.stream_stream(path, request_serializer=type(requests[0]).SerializeToString)
        calls = [stream(iter([request]), timeout=TIMEOUT_S) for request in requests]
        for call in calls:
            with contextlib.suppress(grpc.RpcError):
                list(call)  # To the end of the stream.
    else:
        unary = channel.unary_unary(path, request_serializer=type(requests[0]).SerializeToString)
        calls = [unary.future(request, timeout=TIMEOUT_S) for request in requests]
    for request, call in zip(requests, calls, strict=True):
        yield request, call.code(), call.details()
