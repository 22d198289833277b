"""Batches as Kafka's clients write them, and the entries that keep them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import google_crc32c
import grpc
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from quorumlog.local import LocalCluster
from quorumlog.server.kafka.codec import produce_requests as kafka_messages
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.primitives import decode, encode
from quorumlog.server.kafka.codec.produce_requests import PartitionProduceData, TopicProduceData
from quorumlog.server.kafka.codec.produce_responses import PartitionProduceResponse, ProduceResponse
from quorumlog.v1 import admin_pb2, admin_pb2_grpc, data_plane_pb2_grpc
from quorumlog.v1.admin_pb2 import RestorePartitionRequest
from quorumlog.v1.data_plane_pb2 import MetadataRequest
from quorumlog.wire.entry import seal_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
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
        magic=2,
        compression_type=int(codec),
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    for offset, (key, value, time_ms, headers) in enumerate(rows):
        assert builder.append(offset, time_ms, key, value, headers)
    return bytes(builder.build())


def with_checksum(batch: bytes) -> bytes:
    """An altered batch whose checksum is right again."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def changed(batch: bytes, at: int, form: str, value: int) -> bytes:
    """A batch with another value in its header, and the checksum of that."""
    made = bytearray(batch)
    struct.pack_into(form, made, at, value)
    return with_checksum(bytes(made))


def produce_kafka(cluster: LocalCluster, topic: str, batch: bytes, partition: int = 0) -> tuple[int, int]:
    """Sends a batch to its leader at the port for Kafka's clients, and returns error code and base offset."""
    answers: list[PartitionProduceResponse] = []

    def answered() -> bool:
        """True if a leader has accepted the batch, or refused it permanently."""
        leader = cluster.leader(topic, partition)
        if leader is None:
            return False
        address = cluster.kafka_bootstrap_servers.split(",")[cluster.node_ids.index(leader)]
        answers[:] = [_produce_once(address, topic, batch, partition)]
        return answers[0].error_code not in _RETRIABLE

    until(answered, f"{topic} takes the batch, or refuses it")
    return answers[0].error_code, answers[0].base_offset


#: Unknown topic, no leader yet, not the leader.
_RETRIABLE = (3, 5, 6)


def _produce_once(address: str, topic: str, batch: bytes, partition: int) -> PartitionProduceResponse:
    return produce_at_once(address, topic, {partition: batch})[0]


def produce_at_once(address: str, topic: str, batches: Mapping[int, bytes]) -> list[PartitionProduceResponse]:
    """Sends batches for several partitions to a node in one request; returns the response of each.

    Raises:
        ConnectionError, struct.error: the node closes the connection instead.
    """
    every = [PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
    data = TopicProduceData(name=topic, partition_data=every)
    request = kafka_messages.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    version = 7
    header = pack_request_header(RequestHead(request.API_KEY, version, 1), "test", flexible=False)
    content = b"".join((header, *encode(request, version)))
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(content)) + content)
        (size,) = struct.unpack(">i", answer.read(4))
        response = decode(ProduceResponse, answer.read(size)[4:], version)
    return list(response.responses[0].partition_responses)


def restore_log(cluster: LocalCluster, topic: str, entries: Sequence[bytes], next_offset: int) -> None:
    """Fills an empty partition 0 with stored entries, as a restore does: also with those that nodes no longer accept
    from a producer.

    Arguments:
        entries: sealed, in the order of their offsets, from offset 0 on.
        next_offset: behind the last record.
    """
    leader = cluster.leader(topic, 0)
    assert leader is not None
    with _channel(cluster, leader) as channel:
        described = data_plane_pb2_grpc.DataPlaneStub(channel).Metadata(MetadataRequest(topics=[topic]), timeout=30)
        stub = admin_pb2_grpc.AdminStub(channel)
        for step in (
            RestorePartitionRequest(begin=admin_pb2.BeginPartitionRestore()),
            RestorePartitionRequest(append=admin_pb2.RestoreBatches(entries=entries, next_offset=next_offset)),
            RestorePartitionRequest(finish=admin_pb2.FinishPartitionRestore(next_offset=next_offset)),
        ):
            step.topic_id, step.restore_id, step.timeout_ms = described.topics[0].topic_id, bytes(16), 10_000
            answer = stub.RestorePartition(step, timeout=30)
            assert not answer.HasField("error"), answer


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
    """The entry of a batch as it is in a log."""
    return seal_batch(
        entry_of_kafka(batch, null_keys=False),
        group=1_000,
        term=term,
        index=9,
        previous_hash=5,
        base_offset=base_offset,
        append_time_ms=append_time_ms,
        last_offset=last_offset,
    )
