"""Hostile clients against three real nodes, with a fixed budget; and the parts that they are made of."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from quorumlog.chaos.hostile import fuzzer, old_clients
from quorumlog.chaos.hostile.access import Entrance
from quorumlog.chaos.hostile.batches import FIELDS, BatchMaker, assemble
from quorumlog.chaos.hostile.boundaries import integers
from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.chaos.hostile.fixture import StagedCluster
from quorumlog.chaos.hostile.fuzzer import fuzz
from quorumlog.chaos.hostile.known_ids import KnownTopic, LearntPartition, Vocabulary
from quorumlog.chaos.hostile.old_clients import fuzz_batches
from quorumlog.chaos.hostile.record import Action, SentLog, SentRequest, read_record, write_record
from quorumlog.chaos.hostile.replay import fewest_that
from quorumlog.chaos.hostile.requests import RequestMaker
from quorumlog.chaos.hostile.services import METHODS, PEER_METHODS, SIGN_IN_METHODS
from quorumlog.chaos.hostile.wire import Wire
from quorumlog.chaos.hostile.worker import WorkerOrder
from quorumlog.local import LocalCluster
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import CorruptEntryError, parse_header, verify_batch

#: Enough of them that a write meets the end of some stream.
_STREAMS_BROKEN = 60


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_nodes_refuse_and_live_on() -> None:
    report = fuzz(requests=5_000, seed=15, duration_s=40, say=lambda line: None)
    assert report.passed, report.findings
    assert report.requests > 2_000
    assert report.by_method.keys() >= METHODS.keys(), "a method that is never called"
    assert report.by_method.keys() >= PEER_METHODS.keys()
    for method in ("Produce", "Heartbeat", "CommitOffsets", "InitProducerId", "ListOffsets", "DeleteRecords"):
        assert report.answers.get(f"{method} NONE"), f"no {method} got through: {report.answers}"


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_user_with_few_rights_breaks_nothing_and_learns_no_secret() -> None:
    report = fuzz(requests=1_000, seed=16, duration_s=15, caller=HostileCaller.USER, say=lambda line: None)
    assert report.passed, report.findings
    assert report.outcomes["PERMISSION_DENIED"] > 10
    assert report.answers.get("Produce NONE"), f"nothing got through: {report.answers}"


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_nodes_live_on_whatever_comes_to_the_port_for_kafkas_clients() -> None:
    report = fuzz(requests=1_500, seed=18, duration_s=20, kafka=True, say=lambda line: None)
    assert report.passed, report.findings
    assert report.requests > 1_000
    assert report.outcomes["kafka answered"] > 100


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_accepted_batches_are_readable_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever old clients state in headers: a batch is refused, or every reader reads it."""
    monkeypatch.setattr(old_clients, "RETENTION_S", 0.0)
    report = fuzz_batches(batches=600, say=print)
    assert report.passed, report.findings
    assert report.answers["NONE"] > 100 and report.answers["INVALID_RECORD"] > 100
    assert report.readers.keys() == {"poll", "poll_arrow", "kafka", "compaction", "backup"}


@pytest.mark.cluster
@pytest.mark.timeout(120)
@pytest.mark.parametrize("caller", [HostileCaller.UNSIGNED, HostileCaller.SIGNED_IN])
def test_the_secured_port_for_kafkas_clients_tells_no_secret_whatever_comes(caller: HostileCaller) -> None:
    report = fuzz(requests=2_500, seed=19, duration_s=45, kafka=True, caller=caller, say=lambda line: None)
    assert report.passed, report.findings
    assert report.requests > 500
    assert (report.outcomes.get("kafka authenticated", 0) > 10) is (caller is HostileCaller.SIGNED_IN)
    assert bool(report.answers.get("Kafka Produce NONE")) is (caller is HostileCaller.SIGNED_IN), report.answers


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_who_has_not_signed_in_gets_nothing_but_sign_in() -> None:
    report = fuzz(requests=1_000, seed=17, duration_s=10, caller=HostileCaller.UNSIGNED, say=lambda line: None)
    assert report.passed, report.findings
    assert report.outcomes["UNAUTHENTICATED"] > 50
    assert {answer.partition(" ")[0] for answer in report.answers} <= SIGN_IN_METHODS.keys()


def test_the_time_of_a_run_begins_when_all_clients_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzer, "_LOOK_S", 0.01)
    looks = 0

    def look(_cluster: object) -> list[str]:
        """The first one sends at once, the second one is twenty looks late."""
        nonlocal looks
        looks += 1
        crew[0].news.sent = looks
        crew[1].news.sent = max(0, looks - 20)
        return []

    crew: Any = [SimpleNamespace(over=False, news=SimpleNamespace(sent=0, findings=[])) for _ in range(2)]
    watch: Any = SimpleNamespace(look=look, rss={})
    assert fuzzer._watch(cast(LocalCluster, None), watch, crew, time.monotonic(), 0.05, print) == []
    assert looks > 20


async def test_a_secret_in_an_answer_or_a_log_is_found(tmp_path: Path) -> None:
    wire = Wire(Entrance({1: "127.0.0.1:1"}, forbidden=("canary",)), Vocabulary((1,)), SentLog(), 0)
    metadata = METHODS["Metadata"]
    wire.learn(1, metadata, data_plane_pb2.MetadataResponse(cluster_id="fine").SerializeToString())
    assert wire.findings == []
    wire.learn(1, metadata, data_plane_pb2.MetadataResponse(cluster_id="a-canary").SerializeToString())
    wire.ended(1, METHODS["Produce"], grpc.StatusCode.PERMISSION_DENIED, "not for canary")
    await wire.close()
    assert wire.findings == ["node 1 answered Metadata with a secret", "node 1 answered Produce with a secret"]
    cluster: Any = SimpleNamespace(root=tmp_path, node_ids=(1,), pid=lambda node: os.getpid())
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "node.log").write_text("info signed_in token=stolen\n")
    staged = StagedCluster(cluster, Entrance({}), ("canary",), tmp_path / "audit.jsonl")
    assert staged.leaks() == []
    assert staged.leaks(["stolen"]) == [f"{tmp_path / 'node-1' / 'node.log'} contains a secret"]
    (tmp_path / "audit.jsonl").write_text("{canary}")
    assert staged.leaks() == [f"{tmp_path / 'audit.jsonl'} contains a secret"]


def test_an_order_is_read_as_it_was_given() -> None:
    entrance = Entrance({1: "127.0.0.1:1", 2: "127.0.0.1:2"}, {"security_protocol": "SSL"}, ("canary",))
    order = WorkerOrder(1, 2, 3, "record", HostileCaller.SIGNED_IN, entrance)
    read = WorkerOrder.from_line(order.to_line())
    assert (read.caller, read.entrance.nodes, read.entrance.options) == (
        HostileCaller.SIGNED_IN,
        entrance.nodes,
        entrance.options,
    )
    assert tuple(read.entrance.forbidden) == ("canary",)


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
    wire = Wire(Entrance({1: f"127.0.0.1:{port}"}), Vocabulary((1,)), SentLog(), 0)
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
    with pytest.raises(ValueError, match="not a record"):
        read_record(tmp_path / "other")


def test_the_fewest_requests_that_do_harm_are_found() -> None:
    sent = [SentRequest(number, 1, 0, Action.CALL, "/a/b") for number in range(40)]
    harm = {sent[3], sent[29]}
    assert fewest_that(sent, lambda some: harm <= set(some), lambda line: None) == [sent[3], sent[29]]
