"""Batches of transactions in a partition: those that clients may append, and those that only leaders write."""

from __future__ import annotations

import pytest

from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Attributes, Codec, build_batch
from quorumlog.wire.kafka.control import LogPlace, build_marker
from quorumlog.wire.kafka.produced import entry_of_produced
from tests.support.kafka_batches import kafka_batch
from tests.support.partition_rig import NOW_MS, Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def attributed(attributes: Attributes) -> bytes:
    """Returns a batch of an idempotent producer with attributes."""
    return build_batch(
        b"payload!", record_count=1, codec=Codec.NONE, base_timestamp_ms=NOW_MS, max_timestamp_ms=NOW_MS,
        producer_id=7, producer_epoch=0, base_sequence=0, attributes=attributes,
    )  # fmt: skip


@pytest.mark.parametrize("attributes", [Attributes.CONTROL, Attributes.COMMIT])
def test_clients_write_no_markers(rig: Rig, attributes: Attributes) -> None:
    """A client cannot end a transaction by a batch of its own."""
    problem, _ = rig.produce(attributed(attributes))
    assert problem is not None and problem.code == ErrorCode.INVALID_RECORD and "markers" in problem.message
    forged = build_marker(7, 0, LogPlace(1, 1), NOW_MS, commit=True)
    problem, _ = rig.produce(forged)
    assert problem is not None and not problem.retriable
    assert rig.partition.log_end_offset == 0


def test_transactional_batches_need_a_transaction(rig: Rig) -> None:
    """A batch that belongs to a transaction is refused while none is open, in either format."""
    rows = [(b"k", b"v", NOW_MS, [])]
    kafka = kafka_batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    for sent in (entry_of_produced(kafka), attributed(Attributes.TRANSACTIONAL)):
        problem, _ = rig.produce(sent)
        assert problem is not None and problem.code == ErrorCode.INVALID_RECORD and problem.definite
        assert "no transaction" in problem.message
    assert rig.partition.log_end_offset == 0
