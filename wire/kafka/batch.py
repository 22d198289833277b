"""Kafka's record batches, version 2, the only one that clients have written since 2017: their header and its checks.

A batch is a header of 61 bytes and its records, compressed together. All integers of the header are big-endian::

    0  i64  base_offset
    8  i32  length             of what follows
   12  i32  leader_epoch
   16  i8   magic              2
   17  u32  crc32c             over all that follows
   21  u16  attributes         bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
   23  i32  last_offset_delta
   27  i64  base_timestamp_ms  of the first record
   35  i64  max_timestamp_ms   the append time, where bit 3 says so
   43  i64  producer_id
   51  i16  producer_epoch
   53  i32  base_sequence
   57  i32  record_count
   61       records

The checksum does not cover what precedes it: a node sets a batch's offset and leader epoch, and the producer's checksum
stays valid. Records are read and written by ``records``, and checked by ``produced``.

Source: Kafka's ``DefaultRecordBatch``, KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

import google_crc32c

from quorumlog.wire.entry import CorruptEntryError, TimestampType

#: Bytes that may be a part of a larger buffer.
Bytes: TypeAlias = bytes | memoryview

MAGIC = 2
HEADER_BYTES = 61
#: Maximum distance between the first and last offset of a batch.
MOST_OFFSET_DELTA = (1 << 31) - 1

_HEADER = struct.Struct(">qiibIHiqqqhii")
_CRC = struct.Struct(">I")
_PLACE = struct.Struct(">qii")
_CHECKED = struct.Struct(">Hiqqqhii")
assert _HEADER.size == HEADER_BYTES
_LAST_OFFSET_DELTA, _MAX_TIMESTAMP = struct.Struct(">i"), struct.Struct(">q")
_LENGTH_COUNTS_FROM = 12
_ATTRIBUTES_LOW_AT, _LAST_OFFSET_DELTA_AT, _MAX_TIMESTAMP_AT = 22, 23, 35
_CRC_AT, _CRC_COVERS_FROM = 17, 21
_CODEC_BITS, _APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 7, 1 << 3, 1 << 4, 1 << 5, 1 << 6
_KNOWN_BITS = _CODEC_BITS | _APPEND_TIME | _TRANSACTIONAL | _CONTROL | _DELETE_HORIZON


class KafkaCodec(IntEnum):
    """Compression of a batch's records."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class KafkaBatchFault(Enum):
    """Reasons for which a batch is invalid. Kafka has an error code for each."""

    CORRUPT = "corrupt"  #: a length or the checksum is wrong
    MAGIC = "magic"  #: of another version than 2
    CODEC = "codec"  #: compressed with an unknown codec
    RECORD = "record"  #: its header or a record contradicts itself
    TRANSACTION = "transaction"  #: it belongs to a transaction


class KafkaBatchError(CorruptEntryError):
    """Raised for bytes that are not a valid record batch. The message says what is wrong."""

    def __init__(self, message: str, fault: KafkaBatchFault) -> None:
        super().__init__(message)
        self.fault = fault


class KafkaBatchHeader(NamedTuple):
    """The header of a batch. Timestamps are milliseconds since the epoch; -1 means no leader epoch or no producer.

    Arguments:
        last_offset_delta: the last record's offset minus the first one's, including records that compaction removed.
        is_transactional, is_control: it belongs to a transaction, or ends one.
    """

    base_offset: int
    leader_epoch: int
    codec: KafkaCodec
    timestamp_type: TimestampType
    is_transactional: bool
    is_control: bool
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def parse_kafka_header(batch: Bytes) -> KafkaBatchHeader:
    """Decodes the header of a whole batch and checks everything except the checksum and the records.

    Raises:
        KafkaBatchError: the bytes are not a batch, or more than one.
    """
    if len(batch) < HEADER_BYTES:
        if len(batch) > 16 and batch[16] != MAGIC:
            raise _other_magic(batch[16])
        raise KafkaBatchError(f"a batch of {len(batch)} bytes is shorter than its header", KafkaBatchFault.CORRUPT)
    (
        base_offset, length, leader_epoch, magic, _, attributes, last_offset_delta, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, count,
    ) = _HEADER.unpack_from(batch)  # fmt: skip
    if magic != MAGIC:
        raise _other_magic(magic)
    if not HEADER_BYTES <= length + _LENGTH_COUNTS_FROM <= len(batch):
        raise KafkaBatchError(
            f"a batch states a length of {length + _LENGTH_COUNTS_FROM} bytes, of {len(batch)}", KafkaBatchFault.CORRUPT
        )
    if length + _LENGTH_COUNTS_FROM < len(batch):
        raise KafkaBatchError("there is more than one batch", KafkaBatchFault.RECORD)
    if attributes & _CODEC_BITS >= len(_CODECS):
        raise KafkaBatchError(f"codec {attributes & _CODEC_BITS} is unknown", KafkaBatchFault.CODEC)
    if attributes & ~_KNOWN_BITS:
        raise KafkaBatchError(f"attributes {attributes:#x} are unknown", KafkaBatchFault.RECORD)
    if count < 1 or last_offset_delta < count - 1:
        raise KafkaBatchError(
            f"a batch of {count} records with a last offset delta of {last_offset_delta}", KafkaBatchFault.RECORD
        )
    return KafkaBatchHeader(
        base_offset, leader_epoch, _CODECS[attributes & _CODEC_BITS], _TIMESTAMP_TYPES[bool(attributes & _APPEND_TIME)],
        bool(attributes & _TRANSACTIONAL), bool(attributes & _CONTROL), last_offset_delta, base_timestamp_ms,
        max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip


def has_delete_horizon(batch: Bytes) -> bool:
    """True if a batch's base timestamp is the delete horizon that Kafka's compaction has set for its tombstones."""
    return bool(batch[_ATTRIBUTES_LOW_AT] & _DELETE_HORIZON)


def impossible(what: str) -> KafkaBatchError:
    """Returns the error for a batch that contradicts itself."""
    return KafkaBatchError(f"a batch with {what}", KafkaBatchFault.RECORD)


def _other_magic(magic: int) -> KafkaBatchError:
    return KafkaBatchError(f"a batch of format {magic}, which is not {MAGIC}", KafkaBatchFault.MAGIC)


def verify_kafka_batch(batch: Bytes) -> KafkaBatchHeader:
    """Does the same as ``parse_kafka_header``, and checks the checksum.

    Raises:
        KafkaBatchError: the batch is not what its producer sent.
    """
    header = parse_kafka_header(batch)
    (stored,) = _CRC.unpack_from(batch, _CRC_AT)
    computed = google_crc32c.value(bytes(batch[_CRC_COVERS_FROM:]))
    if computed != stored:
        raise KafkaBatchError(
            f"the checksum of a batch is {computed:#010x}, stored {stored:#010x}", KafkaBatchFault.CORRUPT
        )
    return header


def placed(batch: Bytes, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """Returns a batch at its position in a log, in two parts: the second is not copied and keeps its checksum."""
    place = _PLACE.pack(base_offset, len(batch) - _LENGTH_COUNTS_FROM, leader_epoch)
    return place, memoryview(batch)[_PLACE.size :]


def restamped(batch: Bytes, last_offset_delta: int, append_time_ms: int | None) -> bytes:
    """Returns a batch with another last offset and optionally append time, and a new checksum.

    Arguments:
        last_offset_delta: the distance of the last offset that it covers.
        append_time_ms: the new timestamp of all of its records; None: they keep theirs.
    """
    head = bytearray(batch[:HEADER_BYTES])
    _LAST_OFFSET_DELTA.pack_into(head, _LAST_OFFSET_DELTA_AT, last_offset_delta)
    if append_time_ms is not None:
        head[_ATTRIBUTES_LOW_AT] |= _APPEND_TIME
        _MAX_TIMESTAMP.pack_into(head, _MAX_TIMESTAMP_AT, append_time_ms)
    return _resealed(head, batch)


def with_max_timestamp(batch: Bytes, max_timestamp_ms: int) -> bytes:
    """Returns a batch with another largest timestamp in its header, and a new checksum."""
    head = bytearray(batch[:HEADER_BYTES])
    _MAX_TIMESTAMP.pack_into(head, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    return _resealed(head, batch)


def _resealed(head: bytearray, batch: Bytes) -> bytes:
    """Returns a changed header with the records of a batch, and the checksum of both."""
    records = bytes(batch[HEADER_BYTES:])
    _CRC.pack_into(head, _CRC_AT, google_crc32c.extend(google_crc32c.value(bytes(head[_CRC_COVERS_FROM:])), records))
    return b"".join((head, records))


def build_kafka_batch(header: KafkaBatchHeader, records: bytes) -> bytes:
    """Builds a whole batch, including its checksum.

    Arguments:
        records: compressed as the header states.
    """
    attributes = (
        header.codec
        | _APPEND_TIME * header.timestamp_type
        | _TRANSACTIONAL * header.is_transactional
        | _CONTROL * header.is_control
    )
    checked = _CHECKED.pack(attributes, *header[6:])
    place = _PLACE.pack(header.base_offset, HEADER_BYTES - _LENGTH_COUNTS_FROM + len(records), header.leader_epoch)
    crc = google_crc32c.extend(google_crc32c.value(checked), records)
    return b"".join((place, bytes((MAGIC,)), _CRC.pack(crc), checked, records))


def empty_kafka_batches(first_offset: int, last_offset: int, leader_epoch: int, timestamp_ms: int) -> Iterator[bytes]:
    """Yields batches without records that cover removed offsets, as Kafka's own compaction leaves them.

    None if the last offset is before the first one.
    """
    while first_offset <= last_offset:
        delta = min(last_offset - first_offset, MOST_OFFSET_DELTA)
        header = KafkaBatchHeader(
            first_offset, leader_epoch, KafkaCodec.NONE, TimestampType.CREATE_TIME, False, False, delta, timestamp_ms,
            timestamp_ms, -1, -1, -1, 0,
        )  # fmt: skip
        yield build_kafka_batch(header, b"")
        first_offset += delta + 1


_CODECS = tuple(KafkaCodec)
_TIMESTAMP_TYPES = tuple(TimestampType)
