"""Clients from before entries could hold a Kafka batch receive the entries before one, and then a clear error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.partition.time_lookup import TimeFound
from quorumlog.server.requests import list_offsets
from quorumlog.server.requests.list_offsets import OffsetRequests
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header
from tests.server.requests.test_fetch_sessions import Rig
from tests.server.requests.test_request_refusals import TIME, TOPIC, Led, absent_partitions
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry


def append_kafka(rig: Rig, number: int = 0) -> None:
    """Appends a record of a Kafka client."""
    log = rig.logs[number]
    log.entries.append(stored_kafka_entry(kafka_batch([(None, b"v", 1, [])]), log.high_watermark))
    log.high_watermark += 1
    rig.changed(number)


def test_an_older_client_gets_what_stands_before_a_kafka_batch_and_then_a_refusal() -> None:
    rig = Rig(1)
    rig.append(0)
    append_kafka(rig)
    rig.append(0)
    assert rig.answered(rig.ask(0, {0: 0})) == {0: [0]}
    [result] = rig.replies[rig.ask(0, {0: 1})].results
    assert result.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert "upgrade" in result.error.message and not result.entries
    assert rig.answered(rig.ask(0, {0: 2})) == {0: [2]}, "what comes after it, it can read"


def test_in_a_session_an_older_client_is_told_when_it_gets_there() -> None:
    rig = Rig(2)
    rig.append(0)
    append_kafka(rig)
    assert rig.answered(rig.ask(1, range(2))) == {0: [0], 1: []}
    refused = {result.partition: result.error.code for result in rig.replies[rig.ask(2)].results}
    assert refused == {0: ErrorCode.UNSUPPORTED_VERSION}
    rig.append(1)
    assert rig.answered(rig.ask(3)) == {1: [0]}, "the others continue"


def test_an_older_client_that_waits_is_told_at_once() -> None:
    rig = Rig(1)
    waiting = rig.ask(0, {0: 0})
    append_kafka(rig)
    assert [each.error.code for each in rig.replies[waiting].results] == [ErrorCode.UNSUPPORTED_VERSION]


def test_a_client_that_says_so_gets_both_kinds() -> None:
    rig = Rig(1)
    rig.append(0)
    append_kafka(rig)
    rig.append(0)
    assert rig.answered(rig.ask(1, {0: 0}, takes_kafka_batches=True)) == {0: [0, 1, 2]}


@pytest.mark.parametrize("takes_kafka_batches", [False, True])
def test_a_look_up_by_time_gives_a_kafka_batch_to_who_can_read_it(
    takes_kafka_batches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = stored_kafka_entry(kafka_batch([(None, b"v", 50, [])]), 7)
    found = TimeFound(7, parse_header(entry), entry)
    monkeypatch.setattr(list_offsets, "find_time", lambda *_: found)
    replies = Replies()
    service = OffsetRequests(Led(), SimpleNamespace(), 5, replies, absent_partitions(), HeartbeatRounds(lambda _: 0))
    request = pb.ListOffsetsRequest(timeout_ms=1_000, takes_kafka_batches=takes_kafka_batches)
    request.partitions.add(topic_id=TOPIC, partition=0, timestamp_ms=50)
    service.list_offsets(TIME, ClientRequest(1, request), request)
    service.after_round(Led())
    [reply] = replies.take_gathered()
    assert isinstance(reply.message, pb.ListOffsetsResponse)
    [result] = reply.message.results
    if takes_kafka_batches:
        assert (result.offset, result.entry) == (7, entry)
    else:
        assert result.error.code == ErrorCode.UNSUPPORTED_VERSION
        assert (result.offset, result.entry) == (-1, b"")
