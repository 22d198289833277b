"""The simulation's records inside batches: text if the content is irrelevant, Arrow if records have keys, and in some
seeds batches as Kafka clients write them.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

from quorumlog.wire.entry import BatchHeader, Flags, TimestampType, parse_envelope, parse_header, payload_of

#: The first bytes of every Arrow message.
ARROW = b"\xff\xff\xff\xff"
#: The value of a record without one, of which there may be many.
TOMBSTONE = "hope-tombstone"


#: The value that Kafka's clients write if a record has no timestamp.
NO_TIMESTAMP_MS = -1
DAY_MS = 86_400_000


class Record(NamedTuple):
    """A record in the log; text has no keys."""

    offset: int
    key: str | None
    value: str


def text_payload(values: list[str], padding: int = 0) -> bytes:
    """Returns the payload of records without keys."""
    payload = ",".join(values).encode()
    return payload + b"\0" * (padding + -(len(payload) + padding) % 8)


def arrow_payload(keys: list[str] | None, values: list[str], at_ms: int) -> bytes:
    """Returns the payload of records as the SDK creates it.

    Arguments:
        keys: None for records without keys.
    """
    import pyarrow as pa

    from quorumlog.wire.entry import Codec
    from quorumlog.wire.payload import LOG_SCHEMA, TIMESTAMP_TYPE, null_headers, write_payload

    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([None] * len(values) if keys is None else [key.encode() for key in keys], pa.binary()),
            pa.array([None if value == TOMBSTONE else value.encode() for value in values], pa.binary()),
            pa.array([at_ms * 1_000] * len(values), pa.int64()).view(TIMESTAMP_TYPE),
            null_headers(len(values)),
        ],
        schema=LOG_SCHEMA,
    )
    return write_payload(columns, Codec.NONE)


def kafka_entry(
    keys: list[str] | None,
    values: list[str],
    at_ms: int,
    *,
    codec: int,
    producer: tuple[int, int, int],
    is_transactional: bool = False,
) -> bytes:
    """Returns the unsealed entry of a batch as a Kafka client creates it. Old clients state a wrong largest timestamp,
    or send records without any: here some do, depending on their first value.

    Arguments:
        keys: None for records without keys.
        codec: Kafka's codec, by number.
        producer: its id, epoch, and the batch's base sequence; -1 for none.
        is_transactional: it belongs to a transaction.
    """
    import pyarrow as pa

    from quorumlog.wire.kafka.batch import KafkaCodec, with_max_timestamp
    from quorumlog.wire.kafka.produced import entry_of_produced
    from quorumlog.wire.kafka.records import write_kafka_batch
    from quorumlog.wire.payload import LOG_SCHEMA, TIMESTAMP_TYPE, null_headers

    kind = crc32(values[0].encode()) % 8
    if kind == 0:
        at_ms = NO_TIMESTAMP_MS
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([None] * len(values) if keys is None else [key.encode() for key in keys], pa.binary()),
            pa.array([None if value == TOMBSTONE else value.encode() for value in values], pa.binary()),
            pa.array([at_ms * 1_000] * len(values), pa.int64()).view(TIMESTAMP_TYPE),
            null_headers(len(values)),
        ],
        schema=LOG_SCHEMA,
    )
    producer_id, producer_epoch, base_sequence = producer
    batch = write_kafka_batch(
        columns,
        base_offset=0,
        last_offset=len(values) - 1,
        codec=KafkaCodec(codec),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    stated_ms = {1: NO_TIMESTAMP_MS, 2: 0, 3: at_ms - DAY_MS, 4: at_ms + 365 * DAY_MS}
    if kind in stated_ms:
        batch = with_max_timestamp(batch, stated_ms[kind])
    return entry_of_produced(batch)


def largest_timestamp_ms(entry: bytes, header: BatchHeader) -> int:
    """Returns the largest timestamp of a batch's records as readers see them: -1 if none has any."""
    if not header.is_kafka or header.is_control:
        return header.max_timestamp_ms
    import pyarrow.compute as pc

    from quorumlog.wire.columns import read_columns
    from quorumlog.wire.kafka.records import milliseconds_of
    from quorumlog.wire.payload import TIMESTAMP

    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp_ms
    return int(pc.max(milliseconds_of(read_columns(entry, header).column(TIMESTAMP))).as_py())


def timestamps_ms_of(entry: bytes, header: BatchHeader) -> list[int]:
    """Returns the timestamp of each record of a batch as readers see it: -1 without one."""
    compacted = is_compacted(entry)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and not compacted:
        return [header.max_timestamp_ms] * header.record_count
    if payload_of(entry)[:4] != ARROW and not header.is_kafka:
        return [header.max_timestamp_ms] * header.record_count
    from quorumlog.wire.columns import read_columns
    from quorumlog.wire.kafka.records import milliseconds_of
    from quorumlog.wire.payload import TIMESTAMP

    column = milliseconds_of(read_columns(entry, header).column(TIMESTAMP))
    return [-1 if each is None else each for each in column.to_pylist()]


def is_compacted(entry: bytes) -> bool:
    """True if a batch is the result of compaction."""
    return parse_envelope(entry).flags is Flags.GAPS


def records_of(entry: bytes) -> list[Record]:
    """Returns the records in a batch."""
    header = parse_header(entry)
    if header.is_control:
        return []
    if payload_of(entry)[:4] != ARROW and not header.is_kafka:
        values = bytes(payload_of(entry)).rstrip(b"\0").decode().split(",")
        return [Record(header.base_offset + place, None, value) for place, value in enumerate(values)]
    from quorumlog.wire.columns import read_columns
    from quorumlog.wire.payload import KEY, OFFSET_DELTA, VALUE, has_gaps

    columns = read_columns(entry, header)
    deltas: Any = columns.column(OFFSET_DELTA).to_pylist() if has_gaps(columns) else range(columns.num_rows)
    return [
        Record(
            header.base_offset + delta,
            key.decode() if key is not None else None,
            TOMBSTONE if value is None else value.decode(),
        )
        for delta, key, value in zip(
            deltas, columns.column(KEY).to_pylist(), columns.column(VALUE).to_pylist(), strict=True
        )
    ]


def values_of(entry: bytes) -> list[str]:
    """Returns the values in a batch, unique except for tombstones."""
    return [record.value for record in records_of(entry)]
