"""Entries of any format as Kafka batches, for consumers that use Kafka's protocol.

What a Kafka client wrote is served unchanged, unless the reader's version of Fetch lacks the codec. What is Arrow, from
our own clients or from compaction, is translated by Arrow's kernels: work for a separate thread, not for the one that
sends heartbeats.

Translated batches are uncompressed, or gzip where that would make a response too large. Every Kafka client reads these
two: the codecs of the log, lz4 and zstd, are optional packages for kafka-python and aiokafka, and missing in KafkaJS.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import BatchHeader, Codec, CorruptEntryError, TimestampType, parse_envelope, parse_header
from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    MOST_OFFSET_DELTA,
    Bytes,
    KafkaCodec,
    build_kafka_batch,
    empty_kafka_batches,
    parse_kafka_header,
)
from quorumlog.wire.kafka.compression import deflate, inflate
from quorumlog.wire.kafka.entry import fetched_kafka_parts, is_kafka, kafka_batch_in, leader_epoch_of
from quorumlog.wire.kafka.records import counting, milliseconds_of, write_kafka_batch
from quorumlog.wire.payload import COMPACTED_SCHEMA, OFFSET_DELTA, TIMESTAMP, has_gaps, read_payload

#: A batch starts with its base offset (8 bytes) and the length of what follows.
_LENGTH = struct.Struct(">8xi")


class _TransactionFields(TypedDict, total=False):
    """The producer of a batch that belongs to a transaction; empty for other batches."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool


def is_served_as_stored(entry: bytes, *, reads_zstd: bool) -> bool:
    """True if a Kafka consumer gets a stored entry's bytes as its producer wrote them.

    Arguments:
        reads_zstd: the consumer's version of Fetch supports zstd.

    Raises:
        CorruptEntryError: the entry claims to have a Kafka batch, and does not.
    """
    if not is_kafka(entry):
        return False
    return reads_zstd or parse_kafka_header(kafka_batch_in(entry)).codec is not KafkaCodec.ZSTD


def served_batches(entries: Sequence[bytes], room_bytes: int, *, reads_zstd: bool) -> bytes:
    """Returns stored entries of kind ``BATCH`` as the records of one fetch response, in codecs that its consumer reads.

    A Kafka client's batch keeps the codec of its producer, unless ``reads_zstd`` forbids it. Other batches are
    uncompressed while all of them fit into ``room_bytes``, and gzip beyond it: a megabyte of the log may inflate to
    hundreds.

    Arguments:
        entries: their checksums have been checked.
        room_bytes: how many bytes of batches may be served without compression.
        reads_zstd: as in ``is_served_as_stored``.

    Returns:
        The batches up to the first entry that cannot be read: its consumer gets what is before it, and the error when
        it requests the next ones.

    Raises:
        CorruptEntryError: the payload of the first entry is not what its header says.
    """
    parts: list[bytes] = []
    for entry in entries:
        try:
            batches = _served(entry, room_bytes, reads_zstd=reads_zstd)
        except CorruptEntryError:
            if not parts:
                raise
            break
        room_bytes -= len(batches)
        parts.append(batches)
    return b"".join(parts)


def _served(entry: bytes, room_bytes: int, *, reads_zstd: bool) -> bytes:
    batches, is_plain = kafka_batches_of(entry), parse_header(entry).codec is Codec.NONE
    if not is_served_as_stored(entry, reads_zstd=reads_zstd):
        if is_kafka(entry):
            batches = _recoded(batches, KafkaCodec.NONE)
        if len(batches) > room_bytes and not is_plain:
            batches = _recoded(batches, KafkaCodec.GZIP)
    return batches


def _recoded(batches: bytes, codec: KafkaCodec) -> bytes:
    """Returns batches with their records compressed by another codec."""
    parts: list[Bytes] = []
    rest = memoryview(batches)
    while rest:
        size = _LENGTH.size + _LENGTH.unpack_from(rest)[0]
        batch, rest = rest[:size], rest[size:]
        if size == HEADER_BYTES:  # Compaction left none of its records.
            parts.append(batch)
            continue
        header = parse_kafka_header(batch)
        records = inflate(batch[HEADER_BYTES:], header.codec)
        parts.append(build_kafka_batch(header._replace(codec=codec), deflate(records, codec)))
    return b"".join(parts)


def kafka_batches_of(entry: bytes, *, codec: KafkaCodec = KafkaCodec.NONE) -> bytes:
    """Returns a stored entry of kind ``BATCH`` as a Kafka consumer gets it, with the same offsets and gaps.

    Arguments:
        entry: its checksum has been checked.
        codec: for translated batches. What a Kafka client wrote keeps its own.

    Returns:
        One batch, or several, one after the other, if offsets span more than 31 bits; some may be empty, as Kafka's own
        compaction leaves them.

    Raises:
        CorruptEntryError: the payload does not match the header.
    """
    header = parse_header(entry)
    if header.is_kafka:
        return b"".join(fetched_kafka_parts(entry))
    columns = read_payload(entry, header)
    epoch = leader_epoch_of(parse_envelope(entry).term)
    return b"".join(_translated(columns, header, epoch, codec))


def _translated(columns: pa.RecordBatch, header: BatchHeader, epoch: int, codec: KafkaCodec) -> Iterator[bytes]:
    # A compacted batch has the timestamps of its records, for which Kafka's batches with append time have no field.
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME and not has_gaps(columns)
    begin, last = header.base_offset, header.last_offset
    # By them a consumer recognises the batches of an aborted transaction. Others need none, and the epochs of named
    # producers have more bits than Kafka's.
    writer: _TransactionFields = {}
    if header.is_transactional:
        writer = _TransactionFields(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=True,
        )
    while begin <= last:
        # A Kafka batch covers 31 bits of offsets; one that compaction left, 32.
        end = min(last, begin + MOST_OFFSET_DELTA)
        if end == last and begin == header.base_offset:
            rows = columns
        else:
            columns, rows = _cut(columns, end - begin)
        if rows.num_rows:
            yield write_kafka_batch(
                rows,
                base_offset=begin,
                last_offset=end,
                codec=codec,
                leader_epoch=epoch,
                timestamp_type=TimestampType(append_time),
                append_time_ms=header.max_timestamp_ms if append_time else -1,
                **writer,
            )
        else:
            yield from empty_kafka_batches(begin, end, epoch, header.max_timestamp_ms)
        begin = end + 1


def _cut(columns: pa.RecordBatch, last_delta: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Splits rows at a distance: returns those after it, counted from there on, and those up to it."""
    deltas: Any = columns.column(OFFSET_DELTA)
    limit: Any = pa.scalar(last_delta, pa.uint32())
    count = pc.less_equal(deltas, limit).true_count
    rest = columns.slice(count)
    moved = pc.subtract(rest.column(OFFSET_DELTA), pa.scalar(last_delta + 1, pa.uint32()))
    return (
        pa.RecordBatch.from_arrays([*rest.columns[:OFFSET_DELTA], moved], schema=COMPACTED_SCHEMA),
        columns.slice(0, count),
    )


def find_time_in(entry: bytes, timestamp_ms: int, first_offset: int) -> tuple[int, int] | None:
    """Returns offset and timestamp (ms) of the first record of a stored batch at or after a time and an offset.

    Raises:
        CorruptEntryError: the payload does not match the header.
    """
    header = parse_header(entry)
    columns = read_columns(entry, header)
    offsets, times = _offsets(columns, header), _times(columns, header)
    fits = pc.and_(
        pc.greater_equal(offsets, pa.scalar(first_offset, pa.int64())),
        pc.greater_equal(times, pa.scalar(timestamp_ms, pa.int64())),
    )
    row = pc.index(fits, True).as_py()
    return (offsets[row].as_py(), times[row].as_py()) if row >= 0 else None


def last_latest_in(entry: bytes) -> tuple[int, int]:
    """Returns offset and timestamp (ms) of the record with the latest timestamp in a stored batch.

    Of several such records, it is the first. For Kafka's lookup of the largest timestamp (-3).

    Raises:
        CorruptEntryError: the payload does not match the header.
    """
    header = parse_header(entry)
    columns = read_columns(entry, header)
    times = _times(columns, header)
    latest = pc.max(times)
    row = pc.index(times, latest).as_py()
    return _offsets(columns, header)[row].as_py(), latest.as_py()


def _offsets(columns: pa.RecordBatch, header: BatchHeader) -> Any:
    deltas = columns.column(OFFSET_DELTA).cast(pa.int64()) if has_gaps(columns) else counting(columns.num_rows)
    return pc.add(deltas, pa.scalar(header.base_offset, pa.int64()))


def _times(columns: pa.RecordBatch, header: BatchHeader) -> Any:
    """Returns timestamps as readers see them."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and not has_gaps(columns):
        return pa.repeat(pa.scalar(header.max_timestamp_ms, pa.int64()), columns.num_rows)
    return milliseconds_of(columns.column(TIMESTAMP))
