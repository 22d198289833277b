"""Markers: batches with one control record, which end a transaction in a partition.

The payload of a marker is the control batch that Kafka's consumers expect, and the place in the coordinator's log at
which the transaction was decided. Each replica learns the place from the marker alone, so writing the marker and ending
the transaction is one entry. Consumers see only Kafka's batch.

Source: Kafka's ``EndTransactionMarker``, ``ControlRecordType``, KIP-98.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quorumlog.wire.entry import (
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Codec,
    CorruptEntryError,
    TimestampType,
    build_batch,
    payload_of,
)
from quorumlog.wire.kafka.batch import KafkaBatchHeader, KafkaCodec, build_kafka_batch
from quorumlog.wire.kafka.entry import PLACE_BYTES, leader_epoch_of

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_PLACE = struct.Struct("<QQ")
assert _PLACE.size == PLACE_BYTES
_SCHEMA_VERSION = 0
_ABORT, _COMMIT = 0, 1
_ALIGNMENT = 8
#: No record of readers has the time of a marker: lookups by time and the largest timestamp of a log ignore it.
_NO_TIMESTAMP = -1
_MARKER = Attributes.KAFKA | Attributes.TRANSACTIONAL | Attributes.CONTROL


class LogPlace(NamedTuple):
    """A place in a coordinator's log. The term comes first: after a recovery indexes may go back, terms do not."""

    term: int
    index: int  # type: ignore[assignment]


def build_marker(producer_id: int, producer_epoch: int, decided: LogPlace, timestamp_ms: int, *, commit: bool) -> bytes:
    """Builds the unsealed batch that ends a producer's transaction.

    Arguments:
        producer_epoch: has 16 bits.
        decided: where the coordinator's log has the decision.
        timestamp_ms: milliseconds since the epoch; only Kafka's consumers see it.
    """
    key = _KEY.pack(_SCHEMA_VERSION, _COMMIT if commit else _ABORT)
    value = _VALUE.pack(_SCHEMA_VERSION, leader_epoch_of(decided.term))
    # Attributes, the distances of timestamp and offset, the key, the value, no headers; lengths are zigzag varints.
    body = b"".join((b"\0\0\0", bytes((2 * len(key),)), key, bytes((2 * len(value),)), value, b"\0"))
    kafka = KafkaBatchHeader(
        0, -1, KafkaCodec.NONE, TimestampType.CREATE_TIME, True, True, 0, timestamp_ms, timestamp_ms,
        producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    batch = build_kafka_batch(kafka, bytes((2 * len(body),)) + body)
    return build_batch(
        b"".join((batch, bytes(-len(batch) % _ALIGNMENT), _PLACE.pack(*decided))),
        record_count=1,
        codec=Codec.NONE,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=_NO_TIMESTAMP,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=_MARKER | Attributes.COMMIT if commit else _MARKER,
    )


def is_marker(header: BatchHeader) -> bool:
    """True if a batch ends a transaction."""
    return header.attributes & _MARKER == _MARKER


def decided_in(marker: bytes) -> LogPlace:
    """Returns where the coordinator decided the transaction that a marker ends.

    Raises:
        CorruptEntryError: the entry is too short.
    """
    payload = payload_of(marker)
    if len(payload) < PLACE_BYTES:
        raise CorruptEntryError(f"a marker of {len(marker)} bytes has no place")
    return LogPlace(*_PLACE.unpack_from(payload, len(payload) - PLACE_BYTES))
