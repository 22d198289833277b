"""The codecs of what a fetch returns: of the producer, or of every client."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec import fetch_requests, topic_requests
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.topic_responses import CreateTopicsResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.simulation.kafka.test_kafka_mapping import WALL_MS, Rig, creation
from tests.support.kafka_batches import KafkaRow, kafka_batch

COMPACTED = "compacted"


def rows_of(key: bytes, values: str) -> list[KafkaRow]:
    return [(key, b"%s %d" % (values.encode(), number) * 20, WALL_MS, []) for number in range(100)]


def fetched(rig: Rig, topic: str, version: int, *, offset: int = 0, max_bytes: int = 1 << 20) -> bytes:
    """Returns the batches of one fetch."""
    partition = fetch_requests.FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = fetch_requests.FetchRequest(
        max_bytes=max_bytes,
        max_wait_ms=0,
        min_bytes=1,
        topics=[fetch_requests.FetchTopic(topic, partitions=[partition])],
    )
    (answer,) = rig.ask(request, version, FetchResponse, rig.topic_leader(topic)).responses[0].partitions
    assert answer.error_code == KafkaError.NONE
    return bytes(answer.records or b"")


def codecs_in(batches: bytes) -> list[KafkaCodec]:
    codecs = []
    while batches:
        codecs.append(KafkaCodec(batches[22] & 7))
        batches = batches[12 + int.from_bytes(batches[8:12]) :]
    return codecs


@pytest.fixture(scope="module", params=[KafkaCodec.GZIP, KafkaCodec.SNAPPY], ids=lambda codec: codec.name)
def compacted(request: pytest.FixtureRequest) -> tuple[Rig, KafkaCodec]:
    """A topic whose first batches were compacted, and the codec of its producer."""
    rig = Rig()
    configs = [
        topic_requests.CreatableTopicConfig(key, value)
        for key, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0"))
    ]
    wanted = creation(topic_requests.CreatableTopic(COMPACTED, 1, 3, configs=configs))
    assert rig.ask(wanted, 7, CreateTopicsResponse).topics[0].error_code == KafkaError.NONE
    rig.until(lambda: rig.topic_leader(COMPACTED) is not None, 20)
    rig.run(0.5)
    for number in range(5):
        batch = kafka_batch(rows_of(b"key %d" % (number % 2), f"{request.param.name} {number}"), request.param)
        answer = rig.produce(batch, COMPACTED, node=rig.topic_leader(COMPACTED))
        assert answer.error_code == KafkaError.NONE
    whole = len(codecs_in(fetched(rig, COMPACTED, 12)))
    assert whole == 5
    rig.until(lambda: len(codecs_in(fetched(rig, COMPACTED, 12))) < whole, 120)
    return rig, request.param


@pytest.mark.parametrize("version", [4, 9, 10, 12])
def test_compaction_leaves_readable_codecs(compacted: tuple[Rig, KafkaCodec], version: int) -> None:
    """Compaction keeps gzip as zstd and snappy as lz4, which the topic's clients need not have."""
    rig, codec = compacted
    assert set(codecs_in(fetched(rig, COMPACTED, version))) == {KafkaCodec.NONE}
    newest = codecs_in(fetched(rig, COMPACTED, version, offset=400))
    assert newest == [codec], "it is not compacted, and as its producer sent it"


def test_small_fetches_get_gzip(compacted: tuple[Rig, KafkaCodec]) -> None:
    """A small fetch of compacted records is answered in gzip: uncompressed, they could exceed the requested size."""
    rig, _ = compacted
    assert codecs_in(fetched(rig, COMPACTED, 12, max_bytes=1))[0] is KafkaCodec.GZIP


@pytest.mark.parametrize(("version", "codec"), [(4, KafkaCodec.NONE), (9, KafkaCodec.NONE), (10, KafkaCodec.ZSTD)])
def test_zstd_is_served_from_version_ten(version: int, codec: KafkaCodec) -> None:
    """KIP-110: before that, a client need not support it."""
    rig = Rig()
    rows = rows_of(b"key", "zstd")
    assert rig.produce(kafka_batch(rows, KafkaCodec.ZSTD)).error_code == KafkaError.NONE
    found = fetched(rig, "t", version)
    assert codecs_in(found) == [codec]
    if codec is KafkaCodec.NONE:
        assert rows[-1][1] is not None and rows[-1][1] in found
