"""Copies that a produce request makes of its batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bench.node_trio import EPOCH_MS, NODES, Trio
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import Codec, build_batch


class CountedBatch:
    """A batch in a request, which counts how often it is copied out."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.partition = 0
        self.copies = 0

    @property
    def batch(self) -> bytes:
        """The bytes: protobuf copies them at each access."""
        self.copies += 1
        return build_batch(
            b"record", record_count=1, codec=Codec.NONE, base_timestamp_ms=EPOCH_MS, max_timestamp_ms=EPOCH_MS
        )


def test_batches_are_copied_once() -> None:
    """A batch that is appended is copied out of its request once, although its size is checked before."""
    trio = Trio(1)
    [leader] = [node for node in NODES if trio.led_by(node)]
    member = trio._machines[leader].node._member
    assert member is not None
    batch = CountedBatch(trio.topic_id)
    request = SimpleNamespace(
        correlation_id=1, timeout_ms=1_000, acks=-1, trace=False, transactional_id="", batches=[batch]
    )
    time = StepTime(trio.now, EPOCH_MS)
    log = next(iter(member.services.replicas.partitions.logs.values()))
    before = log.log_end_offset
    asked = ClientRequest(1 << 40, data_plane_pb2.ProduceRequest())
    member.services.logs.produce.produce(time, asked, cast("Any", request))
    assert log.log_end_offset == before + 1
    assert batch.copies == 1
