"""Kafka's record batches: what aiokafka and kafka-python write is read, and the other way round."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from quorumlog.wire.entry import TimestampType
from quorumlog.wire.kafka import compression as kafka_compression
from quorumlog.wire.kafka import records as kafka_records
from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    KafkaBatchError,
    KafkaBatchFault,
    KafkaCodec,
    parse_kafka_header,
    placed,
    verify_kafka_batch,
)
from quorumlog.wire.kafka.records import read_kafka_columns, write_kafka_batch
from quorumlog.wire.payload import COMPACTED_SCHEMA, HEADERS_TYPE, LOG_SCHEMA, TIMESTAMP_TYPE, null_headers
from tests.support.kafka_batches import changed, with_checksum

#: Key, value, timestamp in milliseconds, headers.
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
CODECS = list(KafkaCodec)
NAMES = [codec.name.lower() for codec in CODECS]
#: Codecs that kafka-python has without other libraries.
KAFKA_PYTHON_CODECS = [KafkaCodec.NONE, KafkaCodec.GZIP]
NOW_MS = 1_700_000_000_000
#: Headers of one record.
MOST_HEADERS = 1 << 16
FAULT = KafkaBatchFault


def random_rows(random: Random, count: int) -> list[Row]:
    """Rows with everything that a record can have: nulls, emptiness, lengths on both sides of a varint's next byte."""

    def some_bytes() -> bytes | None:
        size = (
            random.choice((None, 0, 1, 62, 63, 64, 65, 8191, 8192)) if random.random() < 0.3 else random.randrange(40)
        )
        return None if size is None else random.randbytes(size)

    def headers() -> list[tuple[str, bytes | None]]:
        return [(f"größe-{number}", some_bytes()) for number in range(random.choice((0, 0, 0, 0, 1, 3)))]

    return [(some_bytes(), some_bytes(), NOW_MS + random.randrange(-(10**6), 10**9), headers()) for _ in range(count)]


def rows_of(columns: pa.RecordBatch) -> list[Row]:
    """Columns as rows."""
    rows: list[Row] = []
    for key, value, time, headers in zip(
        columns.column(0).to_pylist(),
        columns.column(1).to_pylist(),
        columns.column(2).cast(pa.int64()).to_pylist(),
        columns.column(3).to_pylist(),
        strict=True,
    ):
        assert time % 1000 == 0
        rows.append((key, value, time // 1000, [(pair["key"], pair["value"]) for pair in headers or ()]))
    return rows


def columns_of(rows: list[Row]) -> pa.RecordBatch:
    """Rows as columns."""
    pairs = [[{"key": name, "value": value} for name, value in headers] or None for _, _, _, headers in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.binary()),
            pa.array([row[1] for row in rows], pa.binary()),
            pa.array([row[2] * 1000 for row in rows], pa.int64()).cast(TIMESTAMP_TYPE),
            pa.array(pairs, HEADERS_TYPE),
        ],
        schema=LOG_SCHEMA,
    )


def built(builder: Any, rows: list[Row]) -> bytes:
    """Returns a batch by another client's builder."""
    for offset, (key, value, time_ms, headers) in enumerate(rows):
        assert builder.append(offset, time_ms, key, value, headers)
    return bytes(builder.build())


def aiokafka_batch(rows: list[Row], codec: KafkaCodec) -> bytes:
    return built(
        AiokafkaBuilder(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=77,
            producer_epoch=3,
            base_sequence=1_000,
            batch_size=1 << 30,
        ),
        rows,
    )


def kafka_python_batch(rows: list[Row], codec: KafkaCodec) -> bytes:
    return built(
        KafkaPythonBuilder(
            magic=2,
            compression_type=int(codec),
            is_transactional=False,
            producer_id=77,
            producer_epoch=3,
            base_sequence=1_000,
            batch_size=1 << 30,
        ),
        rows,
    )


def their_rows(batch: Any) -> tuple[list[int], list[Row]]:
    """Offsets and rows, by another client's reader."""
    assert batch.validate_crc()
    records = list(batch)
    found = [
        (each.key, each.value, each.timestamp, [(name, value) for name, value in each.headers]) for each in records
    ]
    return [each.offset for each in records], found


@pytest.mark.parametrize(
    ("write", "codec"),
    [
        *(
            pytest.param(aiokafka_batch, codec, id=f"aiokafka-{name}")
            for codec, name in zip(CODECS, NAMES, strict=True)
        ),
        *(pytest.param(kafka_python_batch, codec, id=f"kafka-python-{codec.name}") for codec in KAFKA_PYTHON_CODECS),
    ],
)
def test_what_clients_write_is_read(
    write: Callable[[list[Row], KafkaCodec], bytes], codec: KafkaCodec, random: Random
) -> None:
    for count in (1, 2, 100):
        rows = random_rows(random, count)
        if count == 100:
            rows[50] = (b"key", bytes(100_000), NOW_MS, [])  # Otherwise all data may be too random to compress.
        batch = write(rows, codec)
        header = verify_kafka_batch(batch)
        # Clients leave data uncompressed if it would not become smaller.
        assert header.codec is codec or (count < 100 and header.codec is KafkaCodec.NONE)
        assert (header.record_count, header.last_offset_delta) == (count, count - 1)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 1_000)
        assert header.max_timestamp_ms == max(row[2] for row in rows)
        columns = read_kafka_columns(batch, header)
        assert columns.schema == LOG_SCHEMA
        columns.validate(full=True)
        assert rows_of(columns) == rows


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_what_is_written_clients_read(codec: KafkaCodec, random: Random) -> None:
    for count in (1, 2, 100):
        rows = random_rows(random, count)
        batch = write_kafka_batch(
            columns_of(rows),
            base_offset=70,
            last_offset=70 + count - 1,
            codec=codec,
            leader_epoch=5,
            producer_id=9,
            producer_epoch=1,
            base_sequence=4,
        )
        readers = [AiokafkaBatch(batch)] + [KafkaPythonBatch(batch)] * (codec in KAFKA_PYTHON_CODECS)
        for reader in readers:
            assert their_rows(reader) == ([*range(70, 70 + count)], rows)
            assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (9, 1, 4)
        header = verify_kafka_batch(batch)
        assert (header.base_offset, header.leader_epoch) == (70, 5)
        assert rows_of(read_kafka_columns(batch, header)) == rows


def test_a_batch_at_another_place_is_the_same_to_its_checksum(random: Random) -> None:
    rows = random_rows(random, 5)
    sent = aiokafka_batch(rows, KafkaCodec.GZIP)
    head, rest = placed(sent, 1 << 40, 12)
    assert rest.obj is sent, "nothing but the head is copied"
    stored = bytes(head) + bytes(rest)
    header = verify_kafka_batch(stored)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 12)
    offsets, found = their_rows(KafkaPythonBatch(stored))
    assert offsets == [(1 << 40) + number for number in range(5)] and found == rows


def test_a_slice_of_columns_is_written_as_what_it_shows(random: Random) -> None:
    rows = random_rows(random, 50)
    batch = write_kafka_batch(columns_of(rows).slice(20, 10), base_offset=0, last_offset=9)
    assert their_rows(AiokafkaBatch(batch)) == ([*range(10)], rows[20:30])


def test_gaps_between_offsets_stay(random: Random) -> None:
    rows = random_rows(random, 3)
    columns = pa.RecordBatch.from_arrays(
        [*columns_of(rows).columns, pa.array([0, 4, 1_000], pa.uint32())], schema=COMPACTED_SCHEMA
    )
    batch = write_kafka_batch(columns, base_offset=10, last_offset=2_000)
    assert their_rows(KafkaPythonBatch(batch)) == ([10, 14, 1_010], rows)
    header = verify_kafka_batch(batch)
    assert header.last_offset_delta == 1_990
    assert read_kafka_columns(batch, header).equals(columns)


def test_times_are_whole_milliseconds_and_those_of_the_append_where_the_batch_says_so() -> None:
    times = pa.array([None, -1, 1_999, 2_000], pa.int64()).cast(TIMESTAMP_TYPE)
    columns = pa.RecordBatch.from_arrays(
        [pa.nulls(4, pa.binary()), pa.array([b"v"] * 4, pa.binary()), times, null_headers(4)], schema=LOG_SCHEMA
    )
    batch = write_kafka_batch(columns, base_offset=0, last_offset=3)
    assert [row[2] for row in their_rows(KafkaPythonBatch(batch))[1]] == [-1, -1, 1, 2]
    appended = write_kafka_batch(
        columns, base_offset=0, last_offset=3, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=NOW_MS
    )
    assert [row[2] for row in their_rows(KafkaPythonBatch(appended))[1]] == [NOW_MS] * 4
    header = verify_kafka_batch(appended)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [row[2] for row in rows_of(read_kafka_columns(appended, header))] == [NOW_MS] * 4


def test_times_as_far_apart_as_can_be_come_back() -> None:
    ends_ms = [-(1 << 63) // 1000 + 2, 0, (1 << 63) // 1000 - 2]
    rows: list[Row] = [(None, b"v", time_ms, []) for time_ms in (*ends_ms, *reversed(ends_ms))]
    batch = write_kafka_batch(columns_of(rows), base_offset=0, last_offset=5)
    assert their_rows(KafkaPythonBatch(batch))[1] == rows
    assert rows_of(read_kafka_columns(batch, verify_kafka_batch(batch))) == rows


def test_a_large_batch_is_read_in_chunks() -> None:
    count = 70_000
    columns = pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            pa.array([b"%d" % number for number in range(count)], pa.binary()),
            pa.array([NOW_MS * 1000] * count, pa.int64()).cast(TIMESTAMP_TYPE),
            null_headers(count),
        ],
        schema=LOG_SCHEMA,
    )
    batch = write_kafka_batch(columns, base_offset=0, last_offset=count - 1, codec=KafkaCodec.ZSTD)
    assert read_kafka_columns(batch, verify_kafka_batch(batch)).equals(columns)


@pytest.mark.parametrize(
    ("at", "form", "value", "fault"),
    [
        pytest.param(8, ">i", 10_000, FAULT.CORRUPT, id="longer than it is"),
        pytest.param(8, ">i", 20, FAULT.CORRUPT, id="shorter than a header"),
        pytest.param(8, ">i", -1, FAULT.CORRUPT, id="of negative length"),
        pytest.param(8, ">i", 60, FAULT.RECORD, id="with another one behind it"),
        pytest.param(16, ">b", 1, FAULT.MAGIC, id="of magic 1"),
        pytest.param(16, ">b", 0, FAULT.MAGIC, id="of magic 0"),
        pytest.param(21, ">H", 5, FAULT.CODEC, id="of codec 5"),
        pytest.param(21, ">H", 1 << 9, FAULT.RECORD, id="of unknown attributes"),
        pytest.param(23, ">i", 0, FAULT.RECORD, id="of fewer offsets than records"),
        pytest.param(23, ">i", -1, FAULT.RECORD, id="of negative offsets"),
        pytest.param(57, ">i", 0, FAULT.RECORD, id="without records"),
        pytest.param(57, ">i", -1, FAULT.RECORD, id="of negative records"),
        pytest.param(57, ">i", 2**31 - 1, FAULT.RECORD, id="of two billion records"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(at: int, form: str, value: int, fault: KafkaBatchFault) -> None:
    batch = kafka_python_batch([(b"k", b"v", NOW_MS, [])] * 3, KafkaCodec.NONE)
    with pytest.raises(KafkaBatchError) as refused:
        parse_kafka_header(changed(batch, at, form, value))
    assert refused.value.fault is fault


def test_a_batch_that_is_cut_or_altered_on_its_way_is_refused(random: Random) -> None:
    batch = aiokafka_batch(random_rows(random, 5), KafkaCodec.NONE)
    step = max(1, len(batch) // 200)
    for end in range(0, len(batch), step):
        with pytest.raises(KafkaBatchError):
            verify_kafka_batch(batch[:end])
    for at in range(21, len(batch), step):
        with pytest.raises(KafkaBatchError):
            verify_kafka_batch(batch[:at] + bytes((batch[at] ^ 1 << random.randrange(8),)) + batch[at + 1 :])
    with pytest.raises(KafkaBatchError) as refused:
        verify_kafka_batch(batch + batch)
    assert refused.value.fault is FAULT.RECORD


def test_messages_of_the_old_formats_are_told_apart() -> None:
    message = struct.pack(">qiIbbii", 0, 14, 0, 1, 0, -1, -1)
    with pytest.raises(KafkaBatchError, match="format 1") as refused:
        parse_kafka_header(message)
    assert refused.value.fault is FAULT.MAGIC


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_records_that_lie_under_a_right_checksum_raise_one_error(codec: KafkaCodec, random: Random) -> None:
    batch = aiokafka_batch(
        [(b"key-%d" % number, b"v" * number, NOW_MS, [("name", b"x")]) for number in range(20)], codec
    )
    refused = 0
    for _ in range(150):
        changed = bytearray(batch)
        for _ in range(random.randrange(1, 4)):
            changed[random.randrange(HEADER_BYTES, len(changed))] = random.choice(
                (0, 1, 0x80, 0xFF, random.randrange(256))
            )
        refused += not is_read(with_checksum(bytes(changed)))
    for end in range(HEADER_BYTES, len(batch), max(1, len(batch) // 30)):
        cut = struct.pack(">qi", 0, end - 12) + batch[12:end]
        assert not is_read(with_checksum(cut)), f"cut at {end}"
    assert refused


def is_read(batch: bytes) -> bool:
    """True if a batch can be read; false if it is refused. Any other error fails the test."""
    header = verify_kafka_batch(batch)
    try:
        read_kafka_columns(batch, header).validate(full=True)
    except KafkaBatchError:
        return False
    return True


def with_records(records: bytes, count: int, codec: KafkaCodec = KafkaCodec.NONE) -> bytes:
    """Returns a batch that has these bytes as its records, and this record count."""
    head = struct.pack(
        ">qiibIHiqqqhii", 0, 49 + len(records), -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count
    )
    return with_checksum(head + records)


@pytest.mark.parametrize(
    ("record", "match"),
    [
        pytest.param(b"\x0e" + b"\0" * 7, "takes 6", id="longer than its fields"),
        pytest.param(b"\x0a" + b"\0" * 6, "takes 6", id="shorter than its fields"),
        pytest.param(b"\x01" + b"\0" * 6, "cut off", id="of negative length"),
        pytest.param(b"\x0c\0\0\0\x03\x01\0", "length of -2", id="with a key of length -2"),
        pytest.param(b"\x0c\0\0\0\x01\x01\x01", "-1 headers", id="with negative headers"),
        pytest.param(b"\x10\0\0\0\x01\x01\x7e\0\0", "63 headers", id="with more headers than bytes"),
        pytest.param(b"\x10\0\0\0\x01\x01\x02\x01\x01", "without a key", id="with a header without a key"),
        pytest.param(b"\x0c\0\0\x02\x01\x01\0", "not consecutive", id="at another offset"),
        pytest.param(b"\x0c\0\0\0\x01\x01\0\0", "bytes behind", id="with something behind it"),
        pytest.param(b"\x1c\0\0\x80\x80\x80\x80\x80\x80\x80\x80\0\x01\x01\0", "varint", id="with an endless varint"),
        pytest.param(b"\x1e\0" + b"\xff" * 9 + b"\x01\0\x01\x01\0", "timestamp out of range", id="at the end of time"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(record: bytes, match: str) -> None:
    batch = with_records(record, 1)
    with pytest.raises(KafkaBatchError, match=match) as refused:
        read_kafka_columns(batch, verify_kafka_batch(batch))
    assert refused.value.fault is FAULT.RECORD


def test_a_headers_key_that_is_no_text_reads_as_in_kafkas_consumer() -> None:
    batch = with_records(b"\x14\0\0\0\x01\x01\x02\x04\xff\xfe\x01", 1)
    ((_, _, _, headers),) = rows_of(read_kafka_columns(batch, verify_kafka_batch(batch)))
    assert headers == [("\ufffd\ufffd", None)]


@pytest.mark.parametrize("codec", CODECS[1:], ids=NAMES[1:])
def test_a_batch_that_would_become_too_large_is_refused_without_becoming_it(
    codec: KafkaCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_compression, "MOST_DECODED_BYTES", 1 << 20)
    whole = bytes(32 << 20)
    if codec is KafkaCodec.GZIP:
        made = zlib.compressobj(1, wbits=31)
        records = made.compress(whole) + made.flush()
    else:
        records = pa.compress(whole, codec=codec.name.lower(), asbytes=True)
    del whole
    batch = with_records(records, 1, codec)
    tracemalloc.start()
    allocated_before = pa.total_allocated_bytes()
    with pytest.raises(KafkaBatchError, match="when decompressed"):
        read_kafka_columns(batch, verify_kafka_batch(batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20
    assert pa.total_allocated_bytes() <= allocated_before + (1 << 20)


def with_headers(count: int, *, records: int = 1) -> bytes:
    """Returns a batch of records with ``count`` headers of two bytes each: an empty name, and a null value."""
    batch = b""
    for place in range(records):
        body = b"\0\0" + varint(place) + b"\x01\x01" + varint(count) + b"\0\x01" * count
        batch += varint(len(body)) + body
    return with_records(pa.compress(batch, codec="zstd", asbytes=True), records, KafkaCodec.ZSTD)


def varint(number: int) -> bytes:
    found, rest = b"", number << 1
    while rest >= 0x80:
        found, rest = found + bytes((rest & 0x7F | 0x80,)), rest >> 7
    return found + bytes((rest,))


def test_a_record_of_more_headers_than_objects_may_be_is_refused_before_they_are() -> None:
    batch = with_headers(MOST_HEADERS + 1)
    assert len(batch) < 1_000
    tracemalloc.start()
    with pytest.raises(KafkaBatchError, match="65537 headers, the maximum is 65536") as refused:
        read_kafka_columns(batch, verify_kafka_batch(batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.fault is FAULT.RECORD
    assert peak < 2 << 20, "its bytes, and no more"


def test_records_with_many_headers_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_records, "_CHUNK_HEADERS", 4 * 4_096)

    def peak_of(records: int) -> int:
        batch = with_headers(4_096, records=records)
        tracemalloc.start()
        columns = read_kafka_columns(batch, verify_kafka_batch(batch))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert pc.list_value_length(columns.column("headers")).to_pylist() == [4_096] * records
        return peak

    assert peak_of(32) < 2 * peak_of(4), "of eight chunks, and of one"


def test_snappy_of_both_framings_is_read() -> None:
    record = b"\x0c\0\0\0\x01\x01\0"
    plain = pa.compress(record, codec="snappy", asbytes=True)
    # The format of snappy-java: a header, and any number of blocks.
    halves = [pa.compress(half, codec="snappy", asbytes=True) for half in (record[:3], record[3:])]
    framed = (
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(each)) + each for each in halves)
    )
    for records in (plain, framed):
        batch = with_records(records, 1, KafkaCodec.SNAPPY)
        assert rows_of(read_kafka_columns(batch, verify_kafka_batch(batch))) == [(None, None, NOW_MS, [])]


@pytest.mark.parametrize(
    "records",
    [
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 100),
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 0),
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1),
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0",
        b"\xff\xff\xff\xff\xff\xff",
        b"",
    ],
)
def test_snappy_that_is_none_is_refused(records: bytes) -> None:
    assert not is_read(with_records(records, 1, KafkaCodec.SNAPPY))
