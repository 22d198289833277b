"""A connection that speaks Kafka's protocol: whole requests, answers in order, and bounded memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest as TheirFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest as TheirApiVersionsRequest
from kafka.protocol.metadata import MetadataRequest as TheirMetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest

from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.headers import (
    RequestHead,
    pack_request_header,
    unpack_response_header,
)
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest
from quorumlog.server.kafka.codec.metadata_responses import MetadataResponse, MetadataResponseBroker
from quorumlog.server.kafka.codec.primitives import KafkaMessage, decode, encode
from quorumlog.server.kafka.codec.produce_requests import ProduceRequest
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.codec.version_responses import ApiVersionsResponse
from quorumlog.server.kafka.connection import (
    KafkaConnection,
    KafkaConnectionFault,
    KafkaConnectionLimits,
    KafkaRequest,
)
from quorumlog.server.kafka.version_table import VersionTable

ALL = VersionTable(APIS)
#: One request of each API and version that clients sent while they produced, consumed in a group and administered.
RECORDED = json.loads((Path(__file__).parent / "recorded_requests.json").read_text())
LIMITS = KafkaConnectionLimits(request_bytes=10_000, unanswered_requests=5, unsent_bytes=1_000, silence_us=600_000_000)
FAULT = KafkaConnectionFault


def connection(limits: KafkaConnectionLimits = LIMITS, versions: VersionTable = ALL) -> KafkaConnection:
    return KafkaConnection(versions, limits, now_us=0)


def frame(message: KafkaMessage, version: int, correlation_id: int = 0, client_id: str | None = "test") -> bytes:
    """Returns a whole request, as a client sends it."""
    head = RequestHead(message.API_KEY, version, correlation_id)
    header = pack_request_header(head, client_id, flexible=version >= message.FLEXIBLE_FROM)
    return sized(b"".join((header, *encode(message, version))))


def sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def requests(of: KafkaConnection, now_us: int = 0) -> list[KafkaRequest]:
    """Returns all requests that a connection has."""
    found = []
    while (request := of.next_request(now_us)) is not None:
        found.append(request)
    return found


def output(of: KafkaConnection) -> bytes:
    return b"".join(of.take_output())


def frames(sent: bytes) -> Iterator[bytes]:
    """Yields the responses in the bytes that were sent."""
    while sent:
        (size,) = struct.unpack_from(">i", sent)
        assert len(sent) >= 4 + size
        yield sent[4 : 4 + size]
        sent = sent[4 + size :]


def correlation_ids(sent: bytes) -> list[int]:
    return [struct.unpack_from(">i", each)[0] for each in frames(sent)]


def asked(of: KafkaConnection, ids: Iterable[int]) -> list[KafkaRequest]:
    """Sends metadata requests with these correlation ids, and returns them as received."""
    of.receive(b"".join(frame(MetadataRequest(topics=None), 9, each) for each in ids))
    return requests(of)


def test_requests_come_whole_however_their_bytes_are_cut(random: Random) -> None:
    messages: list[KafkaMessage] = [
        FetchRequest(max_wait_ms=500, topics=[]),
        MetadataRequest(topics=None),
        ProduceRequest(None, 1),
    ]
    sent = b"".join(frame(each, each.HIGHEST, number) for number, each in enumerate(messages))
    for _ in range(200):
        one = connection()
        found = []
        at = 0
        while at < len(sent):
            size = random.randrange(1, 20)
            one.receive(sent[at : at + size])
            at += size
            found += requests(one)
        assert [(each.correlation_id, each.client_id) for each in found] == [(0, "test"), (1, "test"), (2, "test")]
        assert [written(each.message, each.version) for each in found] == [
            written(each, each.HIGHEST) for each in messages
        ]


def written(message: KafkaMessage, version: int) -> bytes:
    return b"".join(encode(message, version))


def test_answers_leave_in_the_order_of_the_requests() -> None:
    one = connection()
    first, second, third = asked(one, (7, 8, 9))
    one.answer(third, MetadataResponse(), now_us=0)
    one.answer(second, MetadataResponse(), now_us=0)
    assert output(one) == b""
    one.answer(first, MetadataResponse(), now_us=0)
    assert correlation_ids(output(one)) == [7, 8, 9]


def test_a_request_without_an_answer_holds_up_nothing() -> None:
    one = connection()
    one.receive(frame(ProduceRequest(acks=0), 9, 1))
    (silent,) = requests(one)
    (loud,) = asked(one, (2,))
    one.answer(loud, MetadataResponse(), now_us=0)
    assert output(one) == b""
    one.answer(silent, None, now_us=0)
    assert correlation_ids(output(one)) == [2]


def test_a_request_without_an_answer_that_fails_ends_the_connection() -> None:
    one = connection()
    one.receive(frame(ProduceRequest(acks=0), 9, 1))
    (request,) = requests(one)
    one.refuse(request, "NOT_LEADER_OR_FOLLOWER")
    assert one.end is not None and one.end.fault is FAULT.REFUSED and "NOT_LEADER" in one.end.detail
    assert not one.reads_on


def test_requests_that_are_not_answered_are_bounded_and_what_was_received_is_taken_afterwards() -> None:
    one = connection()
    first = asked(one, range(8))
    assert [each.correlation_id for each in first] == [0, 1, 2, 3, 4]
    assert not one.reads_on
    one.answer(first[1], MetadataResponse(), now_us=0)
    assert not one.reads_on and one.next_request(0) is None
    one.answer(first[0], MetadataResponse(), now_us=0)
    assert one.reads_on
    assert [each.correlation_id for each in requests(one)] == [5, 6]


def test_a_client_that_does_not_read_is_not_read() -> None:
    one = connection()
    large = MetadataResponse(brokers=[MetadataResponseBroker(host="h" * 300) for _ in range(4)])
    first, second = asked(one, (1, 2))
    one.answer(second, large, now_us=0)
    assert not one.reads_on, "an answer that waits for another one takes room too"
    one.answer(first, MetadataResponse(), now_us=0)
    one.take_output()
    assert not one.reads_on, "it was handed out, but has not left"
    one.note_unsent(800)
    assert one.reads_on
    one.receive(frame(MetadataRequest(), 9, 3))
    (third,) = requests(one)
    one.answer(third, MetadataResponse(), now_us=0)
    assert one.reads_on


def test_asking_for_the_versions_again_and_again_is_bounded_too() -> None:
    one = connection()
    one.receive(frame(ApiVersionsRequest(), 3) * 100)
    assert requests(one) == []
    assert not one.reads_on
    assert len(output(one)) < LIMITS.unsent_bytes + 1_000


@pytest.mark.parametrize("version", [0, 99])
def test_no_call_answers_more_questions_for_the_versions_than_requests_may_wait(version: int) -> None:
    one = connection(KafkaConnectionLimits(unanswered_requests=5))
    question = sized(struct.pack(">hhih", ApiVersionsRequest.API_KEY, version, 7, -1))
    one.receive(question * 12)
    reported = []
    for _ in range(4):
        assert requests(one) == []
        reported.append(len(correlation_ids(output(one))))
        one.note_unsent(0)
    assert reported == [5, 5, 2, 0]
    assert one.reads_on


@pytest.mark.parametrize("size", [-1, -(2**31), 10_001, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_connection_unread(size: int) -> None:
    one = connection()
    one.receive(struct.pack(">i", size))
    assert one.next_request(0) is None
    assert one.end is not None and one.end.fault is FAULT.OVERSIZED
    one.receive(b"x" * 100)
    assert not one.reads_on and one.next_request(0) is None


def test_a_frame_of_the_largest_size_is_taken() -> None:
    one = connection()
    content = frame(MetadataRequest(topics=None), 9)[4:].removesuffix(b"\0")
    rest = LIMITS.request_bytes - len(content)
    # One unknown tagged field, as large as it can be.
    tags = b"\x01\x07" + bytes(((rest - 4) & 0x7F | 0x80, (rest - 4) >> 7)) + bytes(rest - 4)
    one.receive(sized(content + tags))
    assert len(content + tags) == LIMITS.request_bytes
    assert len(requests(one)) == 1


@pytest.mark.parametrize(
    ("head", "detail"),
    [
        ((999, 0), "API 999 in version 0"),
        ((-1, 0), "API -1 in version 0"),
        ((ProduceRequest.API_KEY, 2), "API 0 in version 2"),
        ((FetchRequest.API_KEY, 19), "API 1 in version 19"),
        ((FetchRequest.API_KEY, -1), "API 1 in version -1"),
    ],
)
def test_what_is_not_served_ends_the_connection(head: tuple[int, int], detail: str) -> None:
    one = connection()
    one.receive(sized(struct.pack(">hhih", *head, 0, -1)))
    assert one.next_request(0) is None
    assert one.end == (FAULT.UNSERVED, detail)


def test_an_api_that_this_node_does_not_serve_is_neither_told_nor_taken() -> None:
    one = connection(versions=VersionTable([MetadataRequest.API_KEY]))
    one.receive(frame(ApiVersionsRequest(), 0) + frame(FetchRequest(), 12))
    assert one.next_request(0) is None
    assert one.end == (FAULT.UNSERVED, "API 1 in version 12")
    reported = decode(ApiVersionsResponse, *version_answer(one, 0))
    assert [each.api_key for each in reported.api_keys] == [MetadataRequest.API_KEY, ApiVersionsRequest.API_KEY]


def version_answer(of: KafkaConnection, version: int) -> tuple[bytes, int]:
    """Returns the message in the only response that was sent, and its version."""
    (sent,) = frames(output(of))
    _, at = unpack_response_header(sent, flexible=False)
    return sent[at:], version


@pytest.mark.parametrize("version", range(5))
def test_the_versions_are_told_under_a_header_that_every_client_reads(version: int) -> None:
    one = connection()
    one.receive(frame(ApiVersionsRequest("librdkafka", "2.16.1"), version, 5))
    assert one.next_request(0) is None and one.end is None
    reported = decode(ApiVersionsResponse, *version_answer(one, version))
    ranges = {each.api_key: (each.min_version, each.max_version) for each in reported.api_keys}
    assert reported.error_code == 0 and ranges.keys() == APIS.keys()
    assert ranges[ProduceRequest.API_KEY] == (0, 13), "librdkafka compresses nothing where 0 is not offered"
    assert ranges[FetchRequest.API_KEY] == (4, 18)


@pytest.mark.parametrize("version", [5, 99, 2**15 - 1])
def test_a_client_that_is_too_new_is_told_the_versions_in_the_oldest_one_and_may_ask_again(version: int) -> None:
    one = connection()
    one.receive(sized(struct.pack(">hhi", ApiVersionsRequest.API_KEY, version, 5) + b"this form is unknown"))
    assert one.next_request(0) is None and one.end is None
    reported = decode(ApiVersionsResponse, *version_answer(one, 0))
    assert reported.error_code == 35 and len(reported.api_keys) == len(APIS)
    one.receive(frame(ApiVersionsRequest("new", "1"), 4, 6))
    assert one.next_request(0) is None
    assert correlation_ids(output(one)) == [6]


@pytest.mark.parametrize(("level", "version"), [(0, 4), (2, 4), (3, 3), (3, 4)])
def test_transactions_are_a_feature(level: int, version: int) -> None:
    """Clients of that version have leaders add partitions. Before version 4, the lowest level of none is 0."""
    one = connection(versions=VersionTable(APIS, feature_level=lambda: level))
    one.receive(frame(ApiVersionsRequest(), version))
    assert one.next_request(0) is None
    reported = decode(ApiVersionsResponse, *version_answer(one, version))
    finalized = [(each.name, each.min_version_level, each.max_version_level) for each in reported.finalized_features]
    assert finalized == ([("transaction.version", 2, 2)] if level >= 3 else [])
    assert reported.finalized_features_epoch == level
    supported = [(each.name, each.min_version, each.max_version) for each in reported.supported_features]
    assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])


def test_silence_ends_a_connection_but_not_while_the_client_waits() -> None:
    one = connection()
    assert one.silence_ends_us == LIMITS.silence_us
    one.on_time(LIMITS.silence_us - 1)
    assert one.end is None
    one.receive(frame(FetchRequest(), 12))
    (request,) = requests(one, now_us=50)
    assert one.silence_ends_us is None
    one.on_time(LIMITS.silence_us * 2)
    assert one.end is None
    one.answer(request, FetchResponse(), now_us=LIMITS.silence_us * 2)
    # Half a request is silence too.
    one.receive(frame(FetchRequest(), 12)[:-1])
    one.on_time(LIMITS.silence_us * 3)
    assert one.end is not None and one.end.fault is FAULT.SILENT and one.silence_ends_us is None


def test_answers_restart_the_silence() -> None:
    """An answer restarts the silence: a client that waited long, as in JoinGroup, needs it before it can ask again."""
    one = connection()
    one.receive(frame(FetchRequest(), 12))
    (request,) = requests(one, now_us=50)
    answered_us = LIMITS.silence_us * 2
    one.answer(request, FetchResponse(), now_us=answered_us)
    assert one.silence_ends_us == answered_us + LIMITS.silence_us
    one.on_time(answered_us + LIMITS.silence_us - 1)
    assert one.end is None
    one.on_time(answered_us + LIMITS.silence_us)
    assert one.end is not None and one.end.fault is FAULT.SILENT


def test_what_arrives_after_the_end_does_nothing() -> None:
    one = connection()
    (request,) = asked(one, (1,))
    one.receive(struct.pack(">i", -1))
    assert one.next_request(0) is None
    one.answer(request, MetadataResponse(), now_us=0)
    one.receive(frame(MetadataRequest(), 9))
    assert one.next_request(0) is None and output(one) == b""


def test_answering_twice_is_a_mistake_of_the_node() -> None:
    one = connection()
    first, second = asked(one, (1, 2))
    one.answer(second, MetadataResponse(), now_us=0)
    with pytest.raises(ValueError, match="twice"):
        one.answer(second, MetadataResponse(), now_us=0)
    one.answer(first, MetadataResponse(), now_us=0)
    assert correlation_ids(output(one)) == [1, 2]


def test_hostile_frames_end_their_connection_and_raise_nothing(random: Random) -> None:
    whole = [
        frame(api.request(), version) for api in APIS.values() for version in (api.request.LOWEST, api.request.HIGHEST)
    ]
    ended = 0
    for number in range(5_000):
        one = connection()
        changed = bytearray(random.choice(whole))
        for _ in range(random.randrange(1, 5)):
            # Mostly behind the size, so that what is wrong is looked at.
            changed[random.randrange(0 if number % 10 == 0 else 4, len(changed))] = random.randrange(256)
        one.receive(bytes(changed) if number % 3 else bytes(changed) + random.randbytes(30))
        requests(one)
        assert sum(map(len, one.take_output())) < 2_000
        ended += one.end is not None
    assert ended > 1_000


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: f"{each['client']} {each['api']} {each['version']}")
def test_what_clients_sent_is_taken_and_would_be_sent_again_in_the_same_bytes(recorded: dict[str, Any]) -> None:
    sent = bytes.fromhex(recorded["frame"])
    one = connection()
    one.receive(sized(sent))
    found = requests(one)
    assert one.end is None
    if recorded["api"] == "ApiVersions":
        assert len([*frames(output(one))]) == 1
        return
    (request,) = found
    assert (request.api.name, request.version) == (recorded["api"], recorded["version"])
    assert frame(request.message, request.version, request.correlation_id, request.client_id) == sized(sent)


def test_kafka_pythons_own_connection_understands_this_one() -> None:
    """The connection of kafka-python and this one, both of them state machines, read what the other writes."""
    theirs, one = KafkaProtocol(client_id="kafka-python"), connection()

    def exchange(request: object, response: KafkaMessage | None = None) -> list[tuple[int, object]]:
        theirs.send_request(request)
        one.receive(theirs.send_bytes())
        for each in requests(one):
            assert each.client_id == "kafka-python"
            one.answer(each, response, now_us=0)
        answers = list(theirs.receive_bytes(output(one)))
        one.note_unsent(0)
        return answers

    for version in range(5):
        ((_, reported),) = exchange(TheirApiVersionsRequest[version]())
        assert reported.error_code == 0 and len(reported.api_keys) == len(APIS)
    node = MetadataResponseBroker(3, "127.0.0.1", 9092)
    for version in range(14):
        ((_, metadata),) = exchange(TheirMetadataRequest[version](topics=[]), MetadataResponse(brokers=[node]))
        assert [(each.node_id, each.host, each.port) for each in metadata.brokers] == [(3, "127.0.0.1", 9092)]
    for version in range(4, 19):
        ((_, fetched),) = exchange(TheirFetchRequest[version](topics=[]), FetchResponse(throttle_time_ms=77))
        assert fetched.throttle_time_ms == 77
    assert exchange(TheirProduceRequest[9](acks=0, timeout_ms=100, topic_data=[])) == []
