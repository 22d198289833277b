"""Batches of Kafka clients in a partition: those that are accepted, and what is kept of them."""

from __future__ import annotations

import pytest

from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header, verify_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka, kafka_batch_in
from tests.support.kafka_batches import KafkaRow, kafka_batch
from tests.support.partition_rig import NOW_MS, Rig, batch

ROWS: list[KafkaRow] = [(b"key", b"value", NOW_MS, [])] * 3


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def sequenced(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytes:
    made = kafka_batch(ROWS, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return entry_of_kafka(made, null_keys=False)


def test_a_kafka_batch_gets_the_next_offsets_and_stays_as_it_came(rig: Rig) -> None:
    sent = kafka_batch(ROWS, KafkaCodec.GZIP)
    rig.produce(batch(3))
    problem, result = rig.produce(entry_of_kafka(sent, null_keys=True))
    assert problem is None
    rig.settle()
    assert result.base_offset == 3
    _, stored = rig.partition.read(0, 1 << 20)
    _, header = verify_batch(stored)
    assert (header.base_offset, header.last_offset, header.is_kafka) == (3, 5, True)
    assert bytes(kafka_batch_in(stored)) == sent


def test_below_feature_level_two_a_kafka_batch_is_refused(rig: Rig) -> None:
    rig.level = FIRST_FEATURE_LEVEL
    problem, _ = rig.produce(entry_of_kafka(kafka_batch(ROWS), null_keys=True))
    assert problem is not None and problem.code == ErrorCode.UNSUPPORTED_VERSION
    assert "feature level 2" in problem.message and "upgrade" in problem.message
    assert rig.partition.log_end_offset == 0
    assert rig.produce(batch(3))[0] is None


def test_a_repeated_kafka_batch_is_there_once_and_one_out_of_order_is_refused(rig: Rig) -> None:
    rig.produce(sequenced(0))
    _, again = rig.produce(sequenced(0))
    problem, _ = rig.produce(sequenced(9))
    assert problem is not None and problem.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rig.produce(sequenced(3))[0] is None
    rig.settle()
    assert again.base_offset == 0
    assert rig.partition.high_watermark == 6


def test_a_producer_of_kafka_that_raises_its_epoch_begins_anew(rig: Rig) -> None:
    rig.produce(sequenced(0))
    assert rig.produce(sequenced(0, epoch=1))[0] is None
    problem, _ = rig.produce(sequenced(3, epoch=0))
    assert problem is not None and problem.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_checksum_of_a_kafka_batch_is_enough_and_its_entry_gets_one_when_it_is_sealed(rig: Rig) -> None:
    entry = bytearray(entry_of_kafka(kafka_batch(ROWS), null_keys=True))
    entry[8:12] = b"\x12\x34\x56\x78"
    assert rig.produce(bytes(entry))[0] is None
    rig.settle()
    (stored,) = rig.partition.read(0, 1 << 20)
    verify_batch(stored)
    # Bytes that the batch's own checksum does not cover are validated separately.
    for at in (1, 2, 16, 24, 40, 96 + 8, 96 + 16, len(entry) - 1):
        altered = bytearray(entry)
        altered[at] ^= 0x21
        problem, _ = rig.produce(bytes(altered))
        assert problem is not None, at


def test_a_kafka_batch_without_keys_is_refused_where_the_topic_is_compacted(rig: Rig) -> None:
    rig.partition.configure({"cleanup.policy": "compact"})
    problem, _ = rig.produce(entry_of_kafka(kafka_batch(ROWS), null_keys=True))
    assert problem is not None and problem.code == ErrorCode.INVALID_RECORD
    assert rig.produce(entry_of_kafka(kafka_batch(ROWS), null_keys=False))[0] is None


def test_the_largest_batch_is_one_of_so_many_bytes_of_kafkas(rig: Rig) -> None:
    def of_size(size: int) -> bytes:
        empty = len(kafka_batch([(None, bytes(1_000), NOW_MS, [])]))
        made = kafka_batch([(None, bytes(1_000 + size - empty), NOW_MS, [])])
        assert len(made) == size
        return entry_of_kafka(made, null_keys=True)

    rig.partition.configure({"max.message.bytes": "2000"})
    assert rig.produce(of_size(2_012))[0] is None, "Kafka's default has 12 bytes more than ours"
    problem, _ = rig.produce(of_size(2_020))
    assert problem is not None and problem.code == ErrorCode.RECORD_TOO_LARGE


def test_append_time_leaves_the_batch_as_it_came(rig: Rig) -> None:
    rig.partition.configure({"message.timestamp.type": "LogAppendTime"})
    sent = kafka_batch([(b"k", b"v", 5, [])])
    rig.produce(entry_of_kafka(sent, null_keys=False))
    rig.settle()
    [stored] = rig.partition.read(0, 1 << 20)
    assert parse_header(stored).max_timestamp_ms == NOW_MS
    assert bytes(kafka_batch_in(stored)) == sent
