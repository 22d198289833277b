"""A produce request that is put together by hand is what protobuf would have written."""

import pytest

from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.v1 import data_plane_pb2


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("sizes", [(1,), (0, 127, 128), (16_383, 16_384, 200_000)])
@pytest.mark.parametrize("trace", [False, True])
def test_the_bytes_are_protobufs(acks: int, sizes: tuple[int, ...], trace: bool) -> None:
    batches = [(bytes([place]) * 16, place * 100, b"x" * size) for place, size in enumerate(sizes)]
    request = OutgoingProduce(acks=acks, timeout_ms=30_000, batches=batches, trace=trace)
    request.correlation_id = 1 << 33
    expected = data_plane_pb2.ProduceRequest(
        correlation_id=1 << 33,
        acks=acks,
        timeout_ms=30_000,
        trace=trace,
        batches=[
            data_plane_pb2.PartitionBatch(topic_id=topic_id, partition=partition, batch=batch)
            for topic_id, partition, batch in batches
        ],
    )
    assert data_plane_pb2.ProduceRequest.FromString(request.to_bytes()) == expected
