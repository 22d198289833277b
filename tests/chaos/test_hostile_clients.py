"""Hostile clients against three real nodes, with a fixed budget; and the parts that they are made of."""

from __future__ import annotations

import random
from pathlib import Path

import grpc.aio
import pytest

from quorumlog.chaos.hostile.batches import FIELDS, BatchMaker, assemble
from quorumlog.chaos.hostile.boundaries import integers
from quorumlog.chaos.hostile.fuzzer import fuzz
from quorumlog.chaos.hostile.record import Action, SentLog, SentRequest, read_record, write_record
from quorumlog.chaos.hostile.replay import fewest_that
from quorumlog.chaos.hostile.requests import RequestMaker
from quorumlog.chaos.hostile.services import METHODS, PEER_METHODS
from quorumlog.chaos.hostile.vocabulary import KnownTopic, LearntPartition, Vocabulary
from quorumlog.chaos.hostile.wire import Wire
from quorumlog.v1.entry import CorruptEntryError, parse_header, verify_batch

#: Enough of them that a write meets the end of some stream.
_STREAMS_BROKEN = 60


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_nodes_refuse_and_live_on() -> None:
    report = fuzz(requests=12_000, seed=15, duration_s=20, say=lambda line: None)
    assert report.passed, report.findings
    assert report.requests > 2_000
    assert report.by_method.keys() >= METHODS.keys(), "a method that nobody calls"
    assert report.by_method.keys() >= PEER_METHODS.keys()
    for method in ("Produce", "Heartbeat", "CommitOffsets", "InitProducerId", "ListOffsets", "DeleteRecords"):
        assert report.answers.get(f"{method} NONE"), f"no {method} got through: {report.answers}"


async def test_a_broken_stream_hides_no_status_of_a_node() -> None:
    """A write that meets the end of its stream must not put words of this side in the place of the node's."""

    async def break_down(_unused: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, "the node broke")

    server = grpc.aio.server()
    handlers = {"Produce": grpc.stream_stream_rpc_method_handler(break_down)}
    service = METHODS["Produce"].path.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    wire = Wire({1: f"127.0.0.1:{port}"}, Vocabulary((1,)), SentLog(), 0)
    for _ in range(_STREAMS_BROKEN):
        stream = wire.open(1, METHODS["Produce"])
        while await stream.send(b"x" * 1_000):
            pass
        await stream.half_close(5)
    await wire.close()
    await server.stop(0)
    assert wire.findings == ["node 1 answered Produce with INTERNAL: the node broke"] * _STREAMS_BROKEN


def test_the_same_seed_makes_the_same_requests() -> None:
    def made(seed: int) -> list[bytes]:
        maker = RequestMaker(Vocabulary((1, 2, 3)), random.Random(seed))
        return [
            maker.request(method.request).SerializeToString(deterministic=True)
            for method in METHODS.values()
            if method.name != "Produce"  # its batches carry the time
            for _ in range(20)
        ]

    assert made(4) == made(4)
    assert made(4) != made(5)


def test_batches_have_right_checksums_and_every_field_at_its_boundaries() -> None:
    maker, taken = BatchMaker(random.Random(1)), 0
    seen: dict[int, int] = {}
    for _ in range(2_000):
        try:
            _, header = verify_batch(maker.batch())
        except CorruptEntryError:
            continue
        taken += 1
        seen[header.record_count] = seen.get(header.record_count, 0) + 1
    assert taken > 1_000, "most get beyond their checksum"
    assert {(1 << 31) - 1, 1 << 31, (1 << 32) - 1} <= seen.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_batch_holds_what_it_is_given(name: str) -> None:
    bits, signed = FIELDS[name]
    largest = integers(bits, signed)[-1]
    assert largest == (1 << (bits - signed)) - 1
    batch = assemble(b"payload", {name: largest})
    if name in ("record_count", "producer_id", "producer_epoch", "base_sequence", "max_timestamp_ms"):
        assert getattr(parse_header(batch), name) == largest


def test_requests_speak_of_what_there_is() -> None:
    vocabulary = Vocabulary((1, 2, 3))
    topic = KnownTopic("stage-plain", b"\7" * 16, (LearntPartition(0, 2, 5),))
    vocabulary.topics[topic.name] = topic
    maker = RequestMaker(vocabulary, random.Random(3))
    requests = [maker.request(METHODS["ListOffsets"].request).SerializeToString() for _ in range(100)]
    assert sum(topic.topic_id in request for request in requests) > 50


def test_a_record_brings_back_what_was_sent(tmp_path: Path) -> None:
    recorder = SentLog()
    sent = [SentRequest(number, 1 + number % 2, 7, Action.SEND, "/a/b", bytes([number])) for number in range(5)]
    for one in sent:
        recorder.note(one)
    write_record(tmp_path / "record", {"t": "00"}, recorder.all())
    assert read_record(tmp_path / "record") == ({"t": "00"}, sent)
    (tmp_path / "other").write_text("nonsense")
    with pytest.raises(ValueError, match="no record"):
        read_record(tmp_path / "other")


def test_the_fewest_requests_that_do_harm_are_found() -> None:
    sent = [SentRequest(number, 1, 0, Action.CALL, "/a/b") for number in range(40)]
    harm = {sent[3], sent[29]}
    assert fewest_that(sent, lambda some: harm <= set(some), lambda line: None) == [sent[3], sent[29]]
