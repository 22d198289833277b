"""Kafka's record batches in entries, unchanged.

An entry with ``Attributes.KAFKA`` has a whole record batch of Kafka's as its payload, padded with zeros to a multiple
of 8 bytes. Its header repeats what nodes need of the batch's own: sequences, counts and times. Kafka's checksum does
not cover base offset and leader epoch, so a Kafka consumer gets the producer's bytes with those replaced, and the
producer's checksum stays valid.

Nodes need no Arrow for any of this. Records are read by ``columns``; entries whose payload is Arrow become batches of
Kafka's in ``translation``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from quorumlog.wire.entry import (
    BATCH_OVERHEAD_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Codec,
    Flags,
    TimestampType,
    build_around,
    parse_envelope,
    parse_header,
    payload_of,
)
from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    MOST_OFFSET_DELTA,
    Bytes,
    KafkaBatchError,
    KafkaBatchFault,
    KafkaBatchHeader,
    KafkaCodec,
    empty_kafka_batches,
    has_delete_horizon,
    impossible,
    parse_kafka_header,
    placed,
    restamped,
)

#: Maximum overhead of an entry over its Kafka batch, plus what Kafka does not count of a batch: base offset and length.
#: Limits are those of a Kafka broker, whose clients have no notion of entries.
KAFKA_ALLOWANCE_BYTES = BATCH_OVERHEAD_BYTES + 7 + 12
#: Leader epochs have 31 bits in Kafka. A larger term becomes "none".
NO_LEADER_EPOCH = -1
_MOST_LEADER_EPOCH = (1 << 31) - 1
#: Bytes of a place in a coordinator's log, which follows the Kafka batch of a marker (``control``).
PLACE_BYTES = 16
_ALIGNMENT = 8
_ATTRIBUTES_AT = 54
#: Attributes that no entry of a producer's batch has.
_NOT_PRODUCED = ~(Attributes.KAFKA.value | Attributes.NULL_KEYS.value | Attributes.TRANSACTIONAL.value)
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _LENGTH_COUNTS_FROM = 8, 12
#: Codecs that compaction uses for the records instead: the nearest of ours.
_COMPACTED_WITH = {
    KafkaCodec.NONE: Codec.NONE,
    KafkaCodec.GZIP: Codec.ZSTD,
    KafkaCodec.SNAPPY: Codec.LZ4,
    KafkaCodec.LZ4: Codec.LZ4,
    KafkaCodec.ZSTD: Codec.ZSTD,
}


def is_kafka(entry: bytes) -> bool:
    """True if the payload of an entry of kind ``BATCH`` is a Kafka record batch. Reads one byte."""
    return len(entry) > _ATTRIBUTES_AT and bool(entry[_ATTRIBUTES_AT] & Attributes.KAFKA.value)


def entry_of_kafka(batch: Bytes, *, null_keys: bool) -> bytes:
    """Returns a producer's batch as an unsealed entry of a ``ProduceRequest``. The entry has no checksum of its own.

    Arguments:
        batch: one whole record batch whose checksum and records have been checked (``produced``).
        null_keys: some record has no key, which a compacted topic refuses.

    Raises:
        KafkaBatchError: nodes refuse it; ``fault`` has the reason.
    """
    header = parse_kafka_header(batch)
    check_produced_header(batch, header)
    attributes = Attributes.KAFKA | Attributes.NULL_KEYS if null_keys else Attributes.KAFKA
    if header.is_transactional:
        attributes |= Attributes.TRANSACTIONAL
    producer_id, producer_epoch, base_sequence = _place_in_epoch(header)
    return build_around(
        batch,
        record_count=header.record_count,
        codec=_COMPACTED_WITH[header.codec],
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
    )


def check_kafka_entry(entry: bytes, header: BatchHeader) -> None:
    """Checks that an unsealed entry is what ``entry_of_kafka`` makes of its batch.

    The listener for Kafka's clients has checked the batch's checksum and records before it made the entry.

    Arguments:
        header: of the entry.

    Raises:
        KafkaBatchError: it is not.
    """
    batch = kafka_batch_in(entry)
    kafka = parse_kafka_header(batch)
    check_produced_header(batch, kafka)
    if header.attributes.value & _NOT_PRODUCED:
        raise impossible(f"attributes {header.attributes!r}, which no Kafka batch has")
    if header.is_transactional is not kafka.is_transactional:
        raise impossible("an attribute of transactions that its entry contradicts")
    stated = (
        header.record_count, header.codec, header.append_time_ms, header.max_timestamp_ms, header.producer_id,
        header.producer_epoch, header.base_sequence,
    )  # fmt: skip
    expected = (
        kafka.record_count, _COMPACTED_WITH[kafka.codec], kafka.base_timestamp_ms, kafka.max_timestamp_ms,
        *_place_in_epoch(kafka),
    )  # fmt: skip
    if stated != expected:
        raise impossible(f"a header with {expected} where its entry has {stated}")


def _place_in_epoch(header: KafkaBatchHeader) -> tuple[int, int, int]:
    """Returns producer id, epoch and sequence. Without a producer id Kafka ignores the others, as aiokafka expects."""
    if header.producer_id == NO_PRODUCER_ID:
        return NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    return header.producer_id, header.producer_epoch, header.base_sequence


def check_produced_header(batch: Bytes, header: KafkaBatchHeader) -> None:
    """Checks that a batch's header is valid for a batch from a producer.

    Raises:
        KafkaBatchError: only brokers write such a batch, or it contradicts itself.
    """
    if has_delete_horizon(batch):
        raise impossible("a delete horizon, which only brokers set")
    if header.is_control:
        raise impossible("the attribute of control batches, which only brokers write")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        raise impossible("the attribute of transactions and no producer id")
    if header.timestamp_type is not TimestampType.CREATE_TIME:
        raise impossible("append time, which only brokers set")
    if header.last_offset_delta != header.record_count - 1:
        raise impossible(f"{header.record_count} records and a last offset delta of {header.last_offset_delta}")


def kafka_batch_in(entry: bytes) -> memoryview:
    """Returns the Kafka batch in an entry with ``Attributes.KAFKA``, as its producer sent it, without copying.

    Raises:
        KafkaBatchError: it has none, or something other than padding follows it.
    """
    payload = payload_of(entry)
    if len(payload) < HEADER_BYTES:
        raise KafkaBatchError(f"{len(payload)} bytes are not a Kafka record batch", KafkaBatchFault.CORRUPT)
    size = _LENGTH.unpack_from(payload, _LENGTH_AT)[0] + _LENGTH_COUNTS_FROM
    padding = payload[max(0, size) :]
    if entry[_ATTRIBUTES_AT] & Attributes.CONTROL.value:
        if len(padding) < PLACE_BYTES:
            raise KafkaBatchError("a marker without the place of its decision", KafkaBatchFault.CORRUPT)
        padding = padding[:-PLACE_BYTES]
    if not HEADER_BYTES <= size <= len(payload) or len(padding) >= _ALIGNMENT or any(padding):
        raise KafkaBatchError(
            f"a batch with a stated length of {size} bytes is in a payload of {len(payload)} bytes",
            KafkaBatchFault.CORRUPT,
        )
    return payload[:size]


def kept_kafka_header(entry: bytes, header: BatchHeader) -> tuple[memoryview, KafkaBatchHeader]:
    """Returns the Kafka batch in a stored entry and its header, checked against that of the entry.

    Arguments:
        header: of the entry, whose checksum has been checked.

    Raises:
        KafkaBatchError: they contradict each other.
    """
    batch = kafka_batch_in(entry)
    kafka = parse_kafka_header(batch)
    if kafka.record_count != header.record_count:
        raise impossible(f"{kafka.record_count} records where its entry has {header.record_count}")
    return batch, kafka


def fetched_kafka_parts(entry: bytes) -> Sequence[Bytes]:
    """Returns a stored entry with ``Attributes.KAFKA`` as a Kafka consumer gets it, in parts to be joined.

    It has its offset, and its term as leader epoch. Costs no copy, except one and a checksum if the topic has append
    time.

    Returns:
        The parts of one batch, followed by empty batches if the entry covers more than 31 bits of offsets.

    Raises:
        CorruptEntryError: it is not such an entry.
    """
    envelope, header = parse_envelope(entry), parse_header(entry)
    batch = kafka_batch_in(entry)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME or envelope.flags is Flags.GAPS:
        # A batch with gaps that comes from a backup may cover further missing offsets behind it. Its consumer has to
        # detect that, or it would request the first of them forever.
        last = header.last_offset - header.base_offset
        append_time = header.max_timestamp_ms if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        batch = memoryview(restamped(batch, min(last, MOST_OFFSET_DELTA), append_time))
    epoch = leader_epoch_of(envelope.term)
    beyond = header.base_offset + MOST_OFFSET_DELTA + 1
    return (
        *placed(batch, header.base_offset, epoch),
        *empty_kafka_batches(beyond, header.last_offset, epoch, header.max_timestamp_ms),
    )


def leader_epoch_of(term: int) -> int:
    """Returns a Raft term as a Kafka leader epoch; -1 for none, which compacted batches have, too."""
    return term if 0 < term <= _MOST_LEADER_EPOCH else NO_LEADER_EPOCH
