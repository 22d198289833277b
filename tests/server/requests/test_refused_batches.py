"""A batch after one that the node refused for a moment: its producer has to retry, and its sequence is not broken."""

from __future__ import annotations

import pytest

from quorumlog.server.requests import refused_batches
from quorumlog.server.requests.refused_batches import REMEMBERED_US, RefusedBatches
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.data_plane_pb2 import PartitionBatch
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.entry import SEQUENCE_MODULUS, Codec, build_batch

TOPIC = b"t" * 16
MOVING = error(ErrorCode.LEADER_NOT_AVAILABLE, "the leadership is being transferred")
BUSY = error(ErrorCode.SERVER_BUSY, "busy")
GAP = error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "5 comes next")
UNKNOWN = error(ErrorCode.UNKNOWN_PRODUCER_ID, "not known here")
INVALID = error(ErrorCode.INVALID_RECORD, "give every record a key")


def sent(sequence: int, *, producer: int = 7, epoch: int = 0, partition: int = 0) -> PartitionBatch:
    batch = build_batch(
        b"x", record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0,
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
    )  # fmt: skip
    return PartitionBatch(topic_id=TOPIC, partition=partition, batch=batch)


@pytest.fixture
def refused() -> RefusedBatches:
    """Returns what remembers that sequence 5 was refused at time 0."""
    made = RefusedBatches()
    assert made.refused(0, sent(5), MOVING) is MOVING
    return made


@pytest.mark.parametrize("problem", [GAP, UNKNOWN])
def test_a_gap_that_the_node_made_is_answered_with_its_refusal(refused: RefusedBatches, problem: Error) -> None:
    assert refused.refused(1_000, sent(6), problem) is MOVING
    assert refused.refused(2_000, sent(9), problem) is MOVING


@pytest.mark.parametrize(
    "batch",
    [sent(5), sent(4), sent(6, producer=8), sent(6, epoch=1), sent(6, partition=1)],
    ids=["the refused one", "an earlier one", "another producer", "another epoch", "another partition"],
)
def test_other_gaps_are_the_producers(refused: RefusedBatches, batch: PartitionBatch) -> None:
    assert refused.refused(1_000, batch, GAP) is GAP


def test_a_refusal_that_asks_for_no_retry_explains_nothing() -> None:
    made = RefusedBatches()
    assert made.refused(0, sent(5), INVALID) is INVALID
    assert made.refused(1, sent(6), GAP) is GAP


def test_the_gap_starts_at_the_first_batch_refused(refused: RefusedBatches) -> None:
    assert refused.refused(REMEMBERED_US - 1, sent(6), BUSY) is BUSY
    assert refused.refused(REMEMBERED_US + 1, sent(5), GAP) is GAP
    assert refused.refused(REMEMBERED_US + 1, sent(6), GAP) is BUSY


def test_an_accepted_batch_ends_the_gap(refused: RefusedBatches) -> None:
    refused.accepted(1, sent(5))
    assert len(refused) == 0
    assert refused.refused(1_000, sent(7), GAP) is GAP


def test_the_gap_moves_on_with_each_accepted_batch(refused: RefusedBatches) -> None:
    """Batches 6 and 7 were refused for the gap before 5: once 5 is accepted, 8 does not follow since 6 is missing."""
    for sequence in (6, 7):
        assert refused.refused(1_000, sent(sequence), GAP) is MOVING
    refused.accepted(REMEMBERED_US + 1, sent(5))
    assert refused.refused(REMEMBERED_US + 2, sent(8), GAP) is MOVING
    assert refused.refused(REMEMBERED_US + 2, sent(6), GAP) is GAP
    for sequence in (6, 7, 8):
        refused.accepted(REMEMBERED_US + 3, sent(sequence))
    assert len(refused) == 0


def test_an_abandoned_batch_leaves_a_gap_in_the_end(refused: RefusedBatches) -> None:
    """The producer has given up batch 5 and continues with batch 6."""
    for now in range(0, REMEMBERED_US, REMEMBERED_US // 5):
        assert refused.refused(now, sent(6), GAP) is MOVING
    assert refused.refused(REMEMBERED_US, sent(6), GAP) is GAP


def test_an_earlier_batch_that_arrives_late_does_not(refused: RefusedBatches) -> None:
    refused.accepted(1, sent(4))
    assert refused.refused(1_000, sent(6), GAP) is MOVING


def test_a_fenced_instance_does_not_end_its_successors_gap(refused: RefusedBatches) -> None:
    refused.refused(0, sent(3, epoch=1), BUSY)
    fenced = error(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
    assert refused.refused(1, sent(6), fenced) is fenced
    assert refused.refused(1, sent(6), BUSY) is BUSY
    assert refused.refused(2, sent(4, epoch=1), GAP) is BUSY


def test_a_refusal_is_remembered_for_a_time(refused: RefusedBatches) -> None:
    assert refused.refused(REMEMBERED_US - 1, sent(6), GAP) is MOVING
    assert refused.refused(REMEMBERED_US, sent(6), GAP) is GAP


def test_sequences_continue_at_0_after_the_last_one() -> None:
    made = RefusedBatches()
    made.refused(0, sent(SEQUENCE_MODULUS - 1), MOVING)
    assert made.refused(1, sent(0), GAP) is MOVING


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "MOST_REMEMBERED", 3)
    made = RefusedBatches()
    for producer in range(5):
        made.refused(0, sent(0, producer=producer), MOVING)
    assert len(made) == 3
    assert made.refused(1, sent(1, producer=1), GAP) is GAP
    assert made.refused(1, sent(1, producer=2), GAP) is MOVING


@pytest.mark.parametrize("content", [b"", b"\xff" * 200, sent(-1, producer=-1, epoch=-1).batch])
def test_what_has_no_sequence_is_not_remembered(refused: RefusedBatches, content: bytes) -> None:
    batch = PartitionBatch(topic_id=TOPIC, batch=content)
    assert refused.refused(0, batch, BUSY) is BUSY
    refused.accepted(1, batch)
    assert len(refused) == 1
