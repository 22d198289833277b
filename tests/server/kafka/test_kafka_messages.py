"""Kafka's messages: the same bytes as kafka-python's, and one error for all bytes that are none."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.server.kafka.codec import headers, primitives
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.groups.consumer_group_responses import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    GivenAssignment,
)
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest, MetadataRequestTopic
from quorumlog.server.kafka.codec.primitives import (
    KafkaMessage,
    MalformedKafkaMessageError,
    UnencodableMessageError,
    decode,
    encode,
)
from quorumlog.server.kafka.codec.produce_requests import PartitionProduceData, ProduceRequest, TopicProduceData
from quorumlog.server.kafka.codec.version_responses import ApiVersionsResponse
from tests.support import kafka_oracle

ROOT = Path(__file__).resolve().parents[3]
CODEC = ROOT / "server" / "kafka" / "codec"
SCHEMAS = ROOT / "proto" / "kafka"

#: Kafka's name of a message, and ours.
MESSAGES: list[tuple[str, type[KafkaMessage]]] = [
    (api.name + end, kind)
    for api in APIS.values()
    for end, kind in (("Request", api.request), ("Response", api.response))
]
MESSAGE_NAMES = [name for name, _ in MESSAGES]


def versions_of(kind: type[KafkaMessage]) -> range:
    return range(kind.LOWEST, kind.HIGHEST + 1)


def written(message: KafkaMessage, version: int) -> bytes:
    return b"".join(encode(message, version))


def assert_holds(message: Any, content: dict[str, Any]) -> None:
    """Asserts that a message has this content, and defaults in all other fields."""
    for field in fields(message):
        found = getattr(message, field.name)
        name = field.name if field.name in content else kafka_oracle.THEIR_NAMES.get(field.name, field.name)
        if name not in content:
            assert found in (field.default, []), f"{type(message).__name__}.{field.name}"
            continue
        expected = content[name]
        if is_dataclass(found):
            assert_holds(found, expected)
        elif isinstance(expected, list) and found and is_dataclass(found[0]):
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                assert_holds(one, other)
        elif isinstance(expected, list):
            assert list(found) == expected, field.name
        else:
            assert found == expected, field.name


@pytest.mark.parametrize(("name", "kind"), MESSAGES, ids=MESSAGE_NAMES)
def test_every_version_is_read_and_written_as_kafka_python_does(
    name: str, kind: type[KafkaMessage], random: Random
) -> None:
    for version in versions_of(kind):
        for _ in range(4):
            content = kafka_oracle.random_content(name, version, random)
            theirs = kafka_oracle.their_bytes(name, version, content)
            ours = decode(kind, theirs, version)
            assert_holds(ours, content)
            assert written(ours, version) == theirs, f"version {version}"


@pytest.mark.parametrize(("name", "kind"), MESSAGES, ids=MESSAGE_NAMES)
def test_bytes_that_are_cut_or_altered_raise_one_error_or_are_another_message(
    name: str, kind: type[KafkaMessage], random: Random
) -> None:
    for version in versions_of(kind):
        whole = kafka_oracle.their_bytes(name, version, kafka_oracle.random_content(name, version, random))
        for end in {random.randrange(len(whole)) for _ in range(20)} if whole else ():
            with pytest.raises(MalformedKafkaMessageError):
                decode(kind, whole[:end], version)
        with pytest.raises(MalformedKafkaMessageError):
            decode(kind, whole + b"\0", version)
        for altered in altered_bytes(whole, random, count=30):
            try:
                message = decode(kind, altered, version)
            except MalformedKafkaMessageError:
                continue
            # Bytes, not values: NaN differs from itself, and an empty tagged array is read as the default.
            again = written(message, version)
            assert written(decode(kind, again, version), version) == again


def altered_bytes(whole: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Bytes of which a few differ, or are lengths that lie."""
    for _ in range(count):
        changed = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            if changed:
                changed[random.randrange(len(changed))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        yield bytes(changed)


def test_random_bytes_are_no_message_of_any_kind(random: Random) -> None:
    for _, kind in MESSAGES:
        for version in versions_of(kind):
            for _ in range(10):
                data = random.randbytes(random.randrange(200))
                try:
                    decode(kind, data, version)
                except MalformedKafkaMessageError:
                    continue


def test_records_are_a_view_of_the_request_and_are_handed_on_without_a_copy() -> None:
    records = b"r" * 1000
    sent = ProduceRequest(topic_data=[TopicProduceData("orders", partition_data=[PartitionProduceData(0, records)])])
    parts = encode(sent, 9)
    assert any(part is records for part in parts)
    data = b"".join(parts)
    found = decode(ProduceRequest, data, 9).topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview) and found.obj is data and found == records


def test_a_count_is_compared_with_the_bytes_that_are_left_before_anything_is_made_of_it() -> None:
    for count in (2**31 - 1, 1000, 3):
        with pytest.raises(MalformedKafkaMessageError, match="elements are said where"):
            decode(MetadataRequest, struct.pack(">i", count) + b"\0\0", 1)


def test_many_small_elements_are_refused_in_a_request_of_any_size() -> None:
    partitions = [FetchPartition(number) for number in range(100)]
    few = FetchRequest(topics=[FetchTopic(partitions=partitions) for _ in range(490)])
    many = FetchRequest(topics=[FetchTopic(partitions=partitions) for _ in range(500)], forgotten_topics_data=[])
    assert decode(FetchRequest, written(few, 13), 13).topics[489].partitions[99].partition == 99
    with pytest.raises(MalformedKafkaMessageError, match="too many elements"):
        decode(FetchRequest, written(many, 13), 13)
    assert decode(FetchRequest, written(many, 13), 13, most_elements=60_000) == many


def test_tagged_fields_count_as_elements() -> None:
    tags = primitives.pack_tags([(tag, []) for tag in range(1000)])
    empty = written(MetadataRequest(topics=None), 9).removesuffix(b"\0")
    assert decode(MetadataRequest, empty + tags, 9).topics is None
    with pytest.raises(MalformedKafkaMessageError, match="too many tagged fields"):
        decode(MetadataRequest, empty + tags, 9, most_elements=999)


def test_unknown_tagged_fields_are_skipped_and_known_ones_beside_them_are_read() -> None:
    request = written(FetchRequest(), 12).removesuffix(b"\0")
    tags = primitives.pack_tags([(0, [primitives.pack_compact_string("here")]), (7, [b"whatever"]), (2**31, [])])
    assert decode(FetchRequest, request + tags, 12).cluster_id == "here"


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param([(7, [b"x"]), (7, [b"x"])], id="twice"),
        pytest.param([(7, []), (6, [])], id="in another order"),
        pytest.param([(0, [b"\x05here", b"more"])], id="with bytes behind a known one"),
        pytest.param([(0, [b"\x05he"])], id="with a known one cut off"),
    ],
)
def test_tagged_fields_are_refused(tags: list[tuple[int, list[primitives.Buffer]]]) -> None:
    request = written(FetchRequest(), 12).removesuffix(b"\0")
    with pytest.raises(MalformedKafkaMessageError):
        decode(FetchRequest, request + primitives.pack_tags(tags), 12)


@given(st.integers(0, 2**32 - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = primitives.pack_uvarint(value)
    assert primitives.unpack_uvarint(b"before" + data + b"behind", 6) == (value, 6 + len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff" * 10, b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedKafkaMessageError, match="varint"):
        primitives.unpack_uvarint(data + bytes(8), 0)


def test_null_is_refused_where_a_version_does_not_have_it() -> None:
    with pytest.raises(UnencodableMessageError, match="null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(UnencodableMessageError, match="null"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)
    with pytest.raises(MalformedKafkaMessageError, match="null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_a_structure_that_may_be_null_has_a_byte_before_it() -> None:
    nothing = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3)
    empty = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, assignment=GivenAssignment([]))
    without, with_it = written(nothing, 0), written(empty, 0)
    assert (without[-2:], with_it[-4:]) == (b"\xff\0", b"\x01\x01\0\0")
    assert (decode(ConsumerGroupHeartbeatResponse, without, 0), decode(type(empty), with_it, 0)) == (nothing, empty)
    for byte in (0x00, 0x02, 0x7F):  # All that are not below 0 are one.
        assert decode(type(empty), with_it[:-4] + bytes([byte]) + with_it[-3:], 0) == empty
    for byte in (0x80, 0xFE):
        assert decode(type(empty), without[:-2] + bytes([byte]) + without[-1:], 0) == nothing


def test_a_structure_that_may_not_be_null_has_to_be_there() -> None:
    member = DescribedConsumerMember("m", assignment=DescribedAssignment([]))
    response = ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(members=[member])])
    with pytest.raises(UnencodableMessageError, match="null"):
        encode(response, 1)
    member.target_assignment = DescribedAssignment([])
    assert written(decode(type(response), written(response, 1), 1), 1) == written(response, 1)


def test_what_does_not_fit_is_refused_when_it_is_written() -> None:
    for message, version in (
        (FetchRequest(max_wait_ms=2**31), 4),
        (FetchRequest(rack_id="r" * 40_000), 11),
        (FetchRequest(rack_id="r" * 40_000), 12),
    ):
        with pytest.raises(UnencodableMessageError):
            encode(message, version)


def test_a_string_that_is_no_text_or_too_long_is_refused() -> None:
    with pytest.raises(MalformedKafkaMessageError, match="string"):
        decode(MetadataRequest, struct.pack(">ih", 1, 2) + b"\xff\xfe", 0)
    with pytest.raises(MalformedKafkaMessageError, match="string of 40000 bytes"):
        primitives.unpack_compact_string(primitives.pack_uvarint(40_001) + b"x" * 40_000, 0)


def test_a_version_that_is_not_written_is_no_matter_of_the_bytes() -> None:
    for version in (ProduceRequest.LOWEST - 1, ProduceRequest.HIGHEST + 1):
        with pytest.raises(ValueError, match="no version"):
            decode(ProduceRequest, b"", version)
        with pytest.raises(ValueError, match="no version"):
            encode(ProduceRequest(), version)


def test_fields_that_a_version_does_not_have_are_not_written() -> None:
    newest = ApiVersionsResponse(error_code=35, throttle_time_ms=9, zk_migration_ready=True)
    assert decode(ApiVersionsResponse, written(newest, 0), 0) == ApiVersionsResponse(error_code=35, api_keys=[])


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka"])
def test_a_requests_header_comes_back(client_id: str | None, flexible: bool) -> None:
    head = headers.RequestHead(3, 12, 77)
    data = headers.pack_request_header(head, client_id, flexible=flexible)
    assert headers.unpack_request_head(data) == head
    assert headers.unpack_client_id(data + b"message", flexible=flexible) == (client_id, len(data))
    for end in range(8):
        with pytest.raises(MalformedKafkaMessageError):
            headers.unpack_request_head(data[:end])
    for end in range(8, len(data)):
        with pytest.raises(MalformedKafkaMessageError):
            headers.unpack_client_id(data[:end], flexible=flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_responses_header_comes_back(flexible: bool) -> None:
    data = headers.pack_response_header(-5, flexible=flexible)
    assert headers.unpack_response_header(data + b"message", flexible=flexible) == (-5, len(data))
    for end in range(len(data)):
        with pytest.raises(MalformedKafkaMessageError):
            headers.unpack_response_header(data[:end], flexible=flexible)


def run_generator(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "kafka_codec.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_committed_codec_is_fresh() -> None:
    done = run_generator("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_stale_modules_are_reported(tmp_path: Path) -> None:
    """Modules that were edited, removed, or left behind by an API that is no longer listed are reported as stale."""
    copy = Path(shutil.copytree(CODEC, tmp_path / "codec", ignore=shutil.ignore_patterns("__pycache__")))
    with (copy / "apis.py").open("a") as edited:
        edited.write("# edited\n")
    (copy / "sasl_requests.py").unlink()
    shutil.copyfile(copy / "fetch_requests.py", copy / "left_requests.py")
    done = run_generator("--check", "--to", copy)
    stale = "apis.py, left_requests.py, sasl_requests.py"
    message = f"kafka_codec: stale in {copy}: {stale}: run python tools/kafka_codec.py and commit\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_schemas_are_kafkas_own() -> None:
    """The schemas have the digests that were recorded when they were extracted from the jar."""
    recorded = dict(reversed(line.split()) for line in (SCHEMAS / "SHA256SUMS").read_text().splitlines())
    assert {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in SCHEMAS.glob("*.json")} == recorded


def test_another_jar_is_refused(tmp_path: Path) -> None:
    """Schemas come only from the jar that bench/peers pins, which is the one that their README names."""
    jar = tmp_path / "kafka-clients-4.3.1.jar"
    jar.write_bytes(b"")
    before = sorted(SCHEMAS.iterdir())
    done = run_generator("--update-schemas", jar)
    digest = hashlib.sha256(b"").hexdigest()
    message = f"kafka_codec: {jar} has the SHA-256 {digest}, which is not that of {jar.name} in kafka.sha256\n"
    assert (done.returncode, done.stderr) == (1, message)
    assert sorted(SCHEMAS.iterdir()) == before
    pinned = dict(reversed(line.split()) for line in (ROOT / "bench/peers/kafka.sha256").read_text().splitlines())
    assert pinned[jar.name] in (SCHEMAS / "README.md").read_text()


def test_the_codec_imports_nothing_of_the_project_but_itself() -> None:
    script = (
        "import sys; import quorumlog.server.kafka.codec.apis;"
        " print(*(name for name in sys.modules if name.startswith('quorumlog.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert all(name.startswith("quorumlog.server.kafka") or name == "quorumlog.server" for name in done.stdout.split())
