"""Batches that wait until their partition takes part in a transaction."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quorumlog.server.deciding import enlistment_queue
from quorumlog.server.requests.transactional_batches import TransactionalBatches, must_be_enlisted
from quorumlog.server.transactions.participants import OnEnlisted
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Attributes, Codec, build_batch, parse_header
from tests.support.partition_rig import NOW_MS, Rig

BUSY = errors_pb2.Error(code=ErrorCode.SERVER_BUSY)


class Coordinator:
    """Enlistments, answered when the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[peer_pb2.Enlistment, int, OnEnlisted]] = []

    def enlist(self, item: peer_pb2.Enlistment, term: int, on_enlisted: OnEnlisted) -> None:
        self.asked.append((item, term, on_enlisted))

    def answer(self, problem: errors_pb2.Error | None = None) -> None:
        self.asked.pop(0)[2](peer_pb2.EnlistmentResult(error=problem))


def batch(sequence: int = 0, *, producer: int = 7, epoch: int = 0, attributes: int = Attributes.TRANSACTIONAL) -> bytes:
    return build_batch(
        b"x" * 10, record_count=1, codec=Codec.NONE, base_timestamp_ms=NOW_MS, max_timestamp_ms=NOW_MS,
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=cast(Any, attributes),
    )  # fmt: skip


class Waiting:
    """A partition that this node leads, and the batches that wait for it."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.lead()
        self.coordinator = Coordinator()
        self.batches = TransactionalBatches(self.coordinator)
        self.settled: list[tuple[int, errors_pb2.Error | None]] = []

    def wait(
        self, sequence: int = 0, size_bytes: int = 100, *, adds: bool = True, epoch: int = 0
    ) -> errors_pb2.Error | None:
        request = data_plane_pb2.ProduceRequest(transactional_id="billing", adds_partitions=adds)
        header = parse_header(batch(sequence, epoch=epoch))
        return self.batches.wait(
            self.rig.partition, request, header, size_bytes, lambda problem: self.settled.append((sequence, problem))
        )


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_one_enlistment_for_a_queue(waiting: Waiting) -> None:
    for sequence in range(3):
        assert waiting.wait(sequence) is None
    ((item, term, _),) = waiting.coordinator.asked
    assert (item.transactional_id, item.identity.producer_id, item.only_confirm) == ("billing", 7, False)
    assert term == waiting.rig.partition.raft.term and not waiting.settled
    waiting.coordinator.answer()
    assert waiting.settled == [(0, None), (1, None), (2, None)]
    assert len(waiting.batches) == 0


def test_refusal_is_for_all(waiting: Waiting) -> None:
    for sequence in range(2):
        waiting.wait(sequence)
    waiting.coordinator.answer(BUSY)
    assert waiting.settled == [(0, BUSY), (1, BUSY)]
    waiting.wait(0)
    assert len(waiting.coordinator.asked) == 1, "the next batch asks again"


def test_next_epoch_has_its_own_queue(waiting: Waiting) -> None:
    waiting.wait(0)
    waiting.wait(1, epoch=1)
    assert [item.identity.producer_epoch for item, _, _ in waiting.coordinator.asked] == [0, 1]


def test_old_clients_confirm_only(waiting: Waiting) -> None:
    waiting.wait(adds=False)
    assert waiting.coordinator.asked[0][0].only_confirm


def test_waiting_bytes_are_bounded(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enlistment_queue, "MAX_WAITING_BYTES", 250)
    assert waiting.wait(0) is None and waiting.wait(1) is None
    refused = waiting.wait(2)
    assert refused is not None and (refused.code, refused.retriable, refused.definite) == (BUSY.code, True, True)
    waiting.coordinator.answer()
    assert waiting.wait(2, 250) is None, "the bytes are free again"


def test_only_unknown_transactions_wait(waiting: Waiting) -> None:
    partition = waiting.rig.partition
    assert must_be_enlisted(partition, batch()) is not None
    for made in (b"", batch(attributes=0), batch(epoch=1 << 15), batch()[:60], b"\xff" * 200):
        assert must_be_enlisted(partition, made) is None, made[:20]


def test_followers_refuse_at_once() -> None:
    assert must_be_enlisted(Rig().partition, batch()) is None
