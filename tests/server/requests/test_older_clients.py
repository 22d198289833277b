"""Clients from before entries could hold a Kafka batch get what stands before one, and then a clear refusal."""

from __future__ import annotations

from quorumlog.v1.errors_pb2 import ErrorCode
from tests.server.requests.test_fetch_sessions import Rig
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry


def append_kafka(rig: Rig, number: int = 0) -> None:
    """A Kafka client has written a record."""
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
    assert rig.answered(rig.ask(3)) == {1: [0]}, "the others go on"


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
