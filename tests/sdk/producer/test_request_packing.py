"""Batches that share a produce request: within every limit, and each alone if they were refused together."""

from __future__ import annotations

import random

from hand_driven_cluster import TOPIC_ID, Code, HandDrivenNode
from scripted_cluster import error as refusal

from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.request_packing import (
    MAX_BATCHES,
    NODE_REQUEST_BYTES,
    ProduceAttempt,
    RequestPacking,
    refused_together,
    request_bytes,
)
from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import Codec

NODE, OTHER = HandDrivenNode("127.0.0.1:1"), HandDrivenNode("127.0.0.1:2")


def batch_of(size_bytes: int, partition: int = 0) -> ProducerBatch:
    batch = ProducerBatch("t", partition, 0.0, 0)
    batch.entry = bytes(size_bytes)
    return batch


def attempt_of(batches: list[ProducerBatch], node: HandDrivenNode = NODE) -> ProduceAttempt:
    return ProduceAttempt(node, batches, request_bytes(batches), 0.0)


def on_wire(batches: list[ProducerBatch]) -> int:
    """The most bytes that a request with these batches can have."""
    return len(
        OutgoingProduce(
            acks=-1,
            timeout_ms=2**31 - 1,
            batches=[(TOPIC_ID, 2**31 - 1, batch.entry or b"") for batch in batches],
            correlation_id=2**63 - 1,
        ).to_bytes()
    )


def sizes(packing: RequestPacking, batches: list[ProducerBatch], node: HandDrivenNode = NODE) -> list[int]:
    """Returns the number of batches of each request."""
    return [len(part) for part in packing.pack(node, batches)]


def test_requests_as_they_are_sent_stay_within_the_largest_size() -> None:
    rng = random.Random(3)
    for _ in range(200):
        limit = rng.randint(1024, 20_000)
        batches = [batch_of(rng.choice((0, 1, 100, 127, 128, 5000)), number) for number in range(rng.randint(1, 60))]
        parts = list(RequestPacking(limit).pack(NODE, batches))
        assert [batch for part in parts for batch in part] == batches
        for part in parts:
            assert len(part) == 1 or on_wire(part) <= request_bytes(part) <= limit


def test_requests_stay_within_what_a_node_usually_takes_whatever_the_producer_allows() -> None:
    batches = [batch_of(4_000_000, number) for number in range(12)]
    parts = list(RequestPacking(64 << 20).pack(NODE, batches))
    assert [len(part) for part in parts] == [8, 4]
    assert all(on_wire(part) <= NODE_REQUEST_BYTES == 32 << 20 for part in parts)
    assert sizes(RequestPacking(64 << 20), [batch_of(40 << 20), batch_of(1)]) == [1, 1], "one alone is tried"


def test_requests_name_no_more_partitions_than_a_node_takes() -> None:
    assert sizes(RequestPacking(64 << 20), [batch_of(1, number) for number in range(25_000)]) == [10_000, 10_000, 5_000]
    assert MAX_BATCHES == 10_000


def test_what_was_refused_together_goes_alone_and_others_still_share() -> None:
    packing = RequestPacking(1 << 20)
    batches = [batch_of(1000, number) for number in range(6)]
    packing.part(attempt_of(batches[2:4]))
    assert [[batch.partition for batch in part] for part in packing.pack(NODE, batches)] == [[0, 1], [2], [3], [4, 5]]


def test_what_was_taken_alone_after_that_says_that_the_node_takes_less() -> None:
    packing = RequestPacking(1 << 20)
    batches = [batch_of(10_000, number) for number in range(8)]
    packing.part(attempt_of(batches))
    packing.taken(attempt_of([batches[0]], NODE))
    fresh = [batch_of(10_000, number) for number in range(8)]
    assert sizes(packing, fresh) == [3, 3, 2], "half of what was too much"
    assert sizes(packing, fresh, OTHER) == [8], "another node may take more"
    packing.taken(attempt_of([batches[1]], NODE))
    assert sizes(packing, fresh) == [3, 3, 2], "it is the same word"
    packing.taken(attempt_of([fresh[0]], OTHER))
    packing.taken(attempt_of(batches[:2], OTHER))
    assert sizes(packing, fresh, OTHER) == [8], "what it took was not refused, or is not alone"


def test_a_request_is_refused_as_a_whole_when_every_one_of_several_batches_is_too_large() -> None:
    def results(*codes: int) -> list[data_plane_pb2.ProduceResult]:
        refused = {code: refusal(code, retriable=False) for code in codes if code}
        return [data_plane_pb2.ProduceResult(error=refused[code] if code else None) for code in codes]

    large = Code.RECORD_TOO_LARGE
    assert refused_together(results(large, large))
    assert not refused_together(results(large)), "alone it is the batch that is too large"
    assert not refused_together(results(large, 0)), "one batch is too large for its topic"
    assert not refused_together(results(large, Code.INVALID_RECORD))


def test_a_batch_is_known_by_its_bytes() -> None:
    batch = ProducerBatch("t", 0, 0.0, 0)
    batch.add(None, b"v", 0, None)
    batch.reserved_bytes = 100
    batch.room = 10
    batch.close()
    batch.seal(Codec.NONE, None, -1)
    assert request_bytes([batch]) >= on_wire([batch])
