"""A producer's batch is accepted only if every reader can read it, and its entry describes its records."""

from __future__ import annotations

import gzip
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import Attributes, parse_header
from quorumlog.wire.kafka import produced as kafka_produced
from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    KafkaBatchError,
    KafkaBatchFault,
    KafkaCodec,
    parse_kafka_header,
    verify_kafka_batch,
)
from quorumlog.wire.kafka.compression import deflate
from quorumlog.wire.kafka.entry import check_kafka_entry, entry_of_kafka, kafka_batch_in
from quorumlog.wire.kafka.produced import check_records_in_python, entry_of_produced, is_checked_quickly
from quorumlog.wire.kafka.records import inflated, read_inflated
from quorumlog.wire.payload import KEY
from tests.support.kafka_batches import KafkaRow, changed, kafka_batch, with_checksum

FAULT = KafkaBatchFault
NOW_MS = 1_700_000_000_000
ROWS: list[KafkaRow] = [
    (b"k", b"v", NOW_MS, []),
    (b"", b"", NOW_MS + 7, [("h", b"x"), ("", None)]),
    (b"key", None, NOW_MS + 3, []),
]
MAX_TIMESTAMP_AT, COUNT_AT, DELTA_AT = 35, 57, 23


@pytest.fixture(params=["native", "python"])
def check(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with each implementation of the check."""
    if request.param == "python":
        monkeypatch.setattr(kafka_produced, "_check_natively", None)
    else:
        pytest.importorskip("quorumlog.wire.kafka._records", reason="the C loop is not compiled")


pytestmark = pytest.mark.usefixtures("check")


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    found = bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes((*found, raw))


def record(time: int = 0, offset: int = 0, key: bytes = b"\1", value: bytes = b"\1", headers: bytes = b"\0") -> bytes:
    """Returns a record of raw parts; by default, -1 as the lengths of key and value, and no headers."""
    body = b"\0" + varint(time) + varint(offset) + key + value + headers
    return varint(len(body)) + body


def header_record(name: bytes) -> bytes:
    """Returns a record with one header, whose value is null."""
    return record(headers=varint(1) + varint(len(name)) + name + b"\1")


def batch_of(records: bytes, count: int, codec: KafkaCodec = KafkaCodec.NONE, base_ms: int = NOW_MS) -> bytes:
    """Returns a batch with a valid checksum around any bytes."""
    one = kafka_batch([(None, None, base_ms, [])])
    head = bytearray(one[:HEADER_BYTES])
    struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(records))
    struct.pack_into(">h", head, 21, codec)
    struct.pack_into(">i", head, DELTA_AT, count - 1)
    struct.pack_into(">i", head, COUNT_AT, count)
    return with_checksum(bytes(head) + records)


# -- what is derived ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(KafkaCodec))
@pytest.mark.parametrize(
    "stated_ms", [-1, 0, NOW_MS, NOW_MS + 1, NOW_MS + 8, NOW_MS + 10**11, (1 << 63) - 1, -(1 << 63)]
)
def test_largest_timestamp_is_that_of_the_records(codec: KafkaCodec, stated_ms: int) -> None:
    batch = changed(kafka_batch(ROWS, codec), MAX_TIMESTAMP_AT, ">q", stated_ms)
    entry = entry_of_produced(batch)
    header = parse_header(entry)
    assert header.max_timestamp_ms == NOW_MS + 7
    check_kafka_entry(entry, header)
    kept = kafka_batch_in(entry)
    assert verify_kafka_batch(kept).max_timestamp_ms == NOW_MS + 7
    assert kept[HEADER_BYTES:] == batch[HEADER_BYTES:]


def test_a_right_batch_is_kept_byte_for_byte() -> None:
    batch = kafka_batch(ROWS, KafkaCodec.ZSTD)
    assert kafka_batch_in(entry_of_produced(batch)) == batch


def test_records_without_timestamps_have_none() -> None:
    batch = batch_of(record(offset=0) + record(offset=1), 2, base_ms=-1)
    assert parse_header(entry_of_produced(changed(batch, MAX_TIMESTAMP_AT, ">q", NOW_MS))).max_timestamp_ms == -1


@pytest.mark.parametrize("rows", [ROWS, [(None, b"v", NOW_MS, []), *ROWS], [*ROWS * 100, (None, b"v", NOW_MS, [])]])
def test_null_keys_are_noticed(rows: list[KafkaRow]) -> None:
    attributes = parse_header(entry_of_produced(kafka_batch(rows))).attributes
    assert bool(attributes & Attributes.NULL_KEYS) is any(row[0] is None for row in rows)


@pytest.mark.parametrize("name", ["", "h", "\u00e9", "\u20ac", "\ud7ff", "\ue000", "\U0001f600", "\U0010ffff"])
def test_header_keys_are_any_text(name: str) -> None:
    assert parse_header(entry_of_produced(batch_of(header_record(name.encode()), 1))).record_count == 1


# -- what is refused ---------------------------------------------------------------------------------------------------

PLAIN = b"".join(record(offset=place) for place in range(4))
GZIP = KafkaCodec.GZIP


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch_of(gzip.compress(gzip.compress(PLAIN)), 4, GZIP), id="compressed-twice"),
        pytest.param(batch_of(gzip.compress(PLAIN)[:-9], 4, GZIP), id="cut-off-gzip"),
        pytest.param(batch_of(PLAIN, 4, KafkaCodec.LZ4), id="another-codec"),
        pytest.param(batch_of(deflate(PLAIN, KafkaCodec.ZSTD), 4), id="compressed-and-says-not"),
        pytest.param(batch_of(PLAIN, 5), id="count-too-large"),
        pytest.param(batch_of(PLAIN, 3), id="count-too-small"),
        pytest.param(batch_of(PLAIN, 1 << 30), id="count-huge"),
        pytest.param(batch_of(record() * 4, 4), id="offset-repeated"),
        pytest.param(batch_of(record(offset=1) + record(), 2), id="offsets-swapped"),
        pytest.param(batch_of(record(offset=1), 1), id="offset-not-zero"),
        pytest.param(batch_of(record(offset=-1), 1), id="offset-negative"),
        pytest.param(batch_of(PLAIN + b"\0", 4), id="bytes-behind"),
        pytest.param(batch_of(PLAIN[:-1], 4), id="cut-off"),
        pytest.param(batch_of(b"", 1), id="no-records"),
        pytest.param(batch_of(record(key=varint(-2)), 1), id="key-length"),
        pytest.param(batch_of(record(value=varint(100)), 1), id="value-length"),
        pytest.param(batch_of(record(headers=varint(-1)), 1), id="header-count-negative"),
        pytest.param(batch_of(record(headers=varint(9)), 1), id="header-count-too-large"),
        pytest.param(batch_of(record(headers=varint(1) + varint(-1) + varint(0)), 1), id="header-without-key"),
        pytest.param(batch_of(header_record(b"\xff"), 1), id="header-key-not-utf8"),
        pytest.param(batch_of(header_record("\u20ac".encode()[:2]), 1), id="header-key-cut-off"),
        pytest.param(batch_of(header_record(b"\xed\xa0\x80"), 1), id="header-key-surrogate"),
        pytest.param(batch_of(header_record(b"\xc0\x80"), 1), id="header-key-overlong"),
        pytest.param(batch_of(header_record(b"\xf4\x90\x80\x80"), 1), id="header-key-beyond-unicode"),
        pytest.param(batch_of(varint(50) + record()[1:], 1), id="record-length"),
        pytest.param(batch_of(varint(-1) + record()[1:], 1), id="record-length-negative"),
        pytest.param(batch_of(record(time=1 << 62), 1), id="timestamp-out-of-range"),
        pytest.param(batch_of(b"\x80" * 40, 1), id="endless-varint"),
        pytest.param(batch_of(deflate(bytes(65 << 20), GZIP), 4, GZIP), id="bomb"),
    ],
)
def test_an_unreadable_batch_is_refused(batch: bytes) -> None:
    with pytest.raises(KafkaBatchError) as refused:
        entry_of_produced(batch)
    assert refused.value.fault is FAULT.RECORD


@pytest.mark.parametrize("codec", list(KafkaCodec))
def test_a_damaged_batch_is_to_be_sent_again(codec: KafkaCodec) -> None:
    batch = bytearray(kafka_batch(ROWS, codec))
    batch[-1] ^= 1
    with pytest.raises(KafkaBatchError, match="checksum") as refused:
        entry_of_produced(bytes(batch))
    assert refused.value.fault is FAULT.CORRUPT


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_is_taken_is_what_readers_read(data: st.DataObject) -> None:
    """The check accepts a batch if and only if the reader can read it, and both report the same about its records."""
    times = st.integers(-(1 << 40), 1 << 42)
    rows = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from((None, b"", b"key", bytes(70))),
                st.sampled_from((None, b"", b"value", bytes(9_000))),
                times,
                st.sampled_from(([], [("h", b"x")], [("", None), ("long", bytes(100))])),
            ),
            min_size=1,
            max_size=12,
        )
    )
    batch = bytearray(kafka_batch(rows * data.draw(st.sampled_from((1, 1, 30)))))
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(
            st.sampled_from((0, 1, 2, 0x7F, 0x80, 255))
        )
    whole = with_checksum(bytes(batch))
    header = parse_kafka_header(whole)
    try:
        columns = read_inflated(inflated(whole, header))
    except KafkaBatchError:
        with pytest.raises(KafkaBatchError):
            entry_of_produced(whole)
        return
    names = [each["key"] for pairs in columns.column("headers").to_pylist() for each in pairs or ()]
    if any("\ufffd" in name for name in names):
        with pytest.raises(KafkaBatchError, match="not UTF-8"):
            entry_of_produced(whole)
        return
    facts = kafka_produced.check_kafka_records(whole, header)
    assert facts.has_null_keys is (columns.column(KEY).null_count > 0)
    entry = entry_of_produced(whole)
    stored = parse_header(entry)
    assert read_columns(entry, stored).num_rows == header.record_count
    assert (
        stored.max_timestamp_ms
        == facts.max_timestamp_ms
        == check_records_in_python(whole[HEADER_BYTES:], header).max_timestamp_ms
    )


def test_compressed_batches_are_checked_beside_all_else() -> None:
    assert is_checked_quickly(kafka_batch(ROWS))
    assert not is_checked_quickly(kafka_batch(ROWS, KafkaCodec.ZSTD))
    many = kafka_batch(ROWS * 50)
    assert is_checked_quickly(many) is (kafka_produced._check_natively is not None)
    assert parse_header(entry_of_kafka(many, null_keys=False)).record_count == 150
