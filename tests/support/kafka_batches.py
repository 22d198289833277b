"""Batches as Kafka's clients write them, and the entries that keep them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import grpc
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from quorumlog.server.local import LocalCluster
from quorumlog.v1 import data_plane_pb2_grpc
from quorumlog.v1.data_plane_pb2 import MetadataRequest, PartitionBatch, ProduceRequest, ProduceResult
from quorumlog.v1.entry import seal_batch
from quorumlog.v1.kafka_batch import KafkaCodec
from quorumlog.v1.kafka_entry import entry_of_kafka
from tests.support.command_line import until

#: Key, value, timestamp in milliseconds, headers.
KafkaRow: TypeAlias = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def kafka_batch(
    rows: Sequence[KafkaRow],
    codec: KafkaCodec = KafkaCodec.NONE,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch as aiokafka writes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=int(transactional), producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence, batch_size=1 << 30,
    )  # fmt: skip
    for offset, (key, value, time_ms, headers) in enumerate(rows):
        assert builder.append(offset, time_ms, key, value, headers)
    return bytes(builder.build())


def produce_kafka(
    cluster: LocalCluster, topic: str, batch: bytes, partition: int = 0, *, null_keys: bool = True
) -> ProduceResult:
    """Sends a Kafka client's batch to its leader, as the listener does, and returns what became of it."""
    entry = entry_of_kafka(batch, null_keys=null_keys)
    results: list[ProduceResult] = []

    def answered() -> bool:
        """Whether a leader has taken it, or refused it for good."""
        leader = cluster.leader(topic, partition)
        if leader is None:
            return False
        with _channel(cluster, leader) as channel:
            stub = data_plane_pb2_grpc.DataPlaneStub(channel)
            described = stub.Metadata(MetadataRequest(topics=[topic]), timeout=30)
            sent = PartitionBatch(topic_id=described.topics[0].topic_id, partition=partition, batch=entry)
            request = ProduceRequest(correlation_id=1, acks=-1, timeout_ms=10_000, batches=[sent])
            results[:] = next(stub.Produce(iter([request]), timeout=30)).results
        return not results[0].error.retriable

    until(answered, f"{topic} takes the batch")
    return results[0]


def _channel(cluster: LocalCluster, node: int) -> grpc.Channel:
    """A connection to a node, by the certificate of the operator where there are any."""
    if cluster.certificates is None:
        return grpc.insecure_channel(cluster.address(node))
    names = ("ssl_ca_location", "ssl_key_location", "ssl_certificate_location")
    files = (Path(cluster.client_tls[name]).read_bytes() for name in names)
    return grpc.secure_channel(cluster.address(node), grpc.ssl_channel_credentials(*files))


def stored_kafka_entry(
    batch: bytes, base_offset: int, *, term: int = 3, append_time_ms: int | None = None, last_offset: int | None = None
) -> bytes:
    """The entry of a batch as it stands in a log."""
    return seal_batch(
        entry_of_kafka(batch, null_keys=False), group=1_000, term=term, index=9, previous_hash=5,
        base_offset=base_offset, append_time_ms=append_time_ms, last_offset=last_offset,
    )  # fmt: skip
