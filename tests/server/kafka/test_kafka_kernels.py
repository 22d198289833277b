"""Many of Kafka's batches are decoded at once by Arrow's kernels to what they are one by one, record by record."""

from __future__ import annotations

import os
import struct
from random import Random

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.wire import columns as columns_module
from quorumlog.wire.columns import KafkaEntry, read_columns, read_kafka_entries
from quorumlog.wire.entry import CorruptEntryError, parse_header
from quorumlog.wire.kafka import kernels as kafka_kernels
from quorumlog.wire.kafka import records as kafka_records
from quorumlog.wire.kafka.batch import KafkaBatchError, KafkaCodec, build_kafka_batch, parse_kafka_header
from quorumlog.wire.kafka.compression import deflate
from quorumlog.wire.kafka.kernels import Inflated, plain_columns, plain_parts
from quorumlog.wire.kafka.records import inflated, read_kafka_columns
from tests.support.kafka_batches import KafkaRow, kafka_batch, stored_kafka_entry

NOW_MS = 1_700_000_000_000
#: Lengths on both sides of a varint's next byte, and nulls.
sized = st.sampled_from((None, None, 0, 1, 5, 5, 5, 62, 63, 64, 65, 8_190, 8_192)).map(
    lambda size: None if size is None else bytes(size)
)
plain_rows = st.lists(st.tuples(sized, sized, st.integers(0, 1 << 33), st.just([])), min_size=1, max_size=60)


@pytest.fixture(autouse=True)
def loops_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes single batches be read by the loop, as the reference for the kernels."""
    monkeypatch.setattr(kafka_records, "LEAST_FOR_KERNELS", 1 << 30)
    monkeypatch.setattr(columns_module, "LEAST_FOR_KERNELS", 2)


def by_kernels(batches: list[bytes]) -> pa.RecordBatch | None:
    return plain_columns([inflated(batch, parse_kafka_header(batch)) for batch in batches])


def by_the_loop(batches: list[bytes]) -> pa.RecordBatch:
    read = [read_kafka_columns(batch, parse_kafka_header(batch)) for batch in batches]
    return pa.Table.from_batches(read).combine_chunks().to_batches()[0]


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(plain_rows, st.sampled_from(list(KafkaCodec))), min_size=1, max_size=5))
def test_plain_batches_become_the_same_at_once(content: list[tuple[list[KafkaRow], KafkaCodec]]) -> None:
    loops_read = [kafka_batch(rows, codec) for rows, codec in content]
    found = by_kernels(loops_read)
    assert found is not None
    found.validate(full=True)
    assert found.equals(by_the_loop(loops_read))


@pytest.mark.parametrize("count", [1, 2, 23, 24, 25, 48, 49, 64, 65, 5_000, 9_000])
def test_records_of_one_size_are_found_in_strides(count: int) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"random seed {seed}")
    random = Random(seed)
    # Records of one size, of which the offsets and now and then a key make one longer.
    rows: list[KafkaRow] = [
        (b"k" if random.random() < 0.001 else b"", bytes(random.choice((60, 60, 600))), NOW_MS, [])
        for _ in range(count)
    ]
    same: list[KafkaRow] = [(b"key", b"value", NOW_MS, [])] * count
    batches = [kafka_batch(rows), kafka_batch(same), kafka_batch(rows[:1])]
    found = by_kernels(batches)
    assert found is not None and found.equals(by_the_loop(batches))


@pytest.mark.parametrize("count", [100, 101, 200, 1_000])
def test_a_batch_of_more_records_than_are_taken_at_once_is_read_in_parts(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_kernels, "MOST_FOR_KERNELS", 100)
    batch = kafka_batch(
        [(None if number % 7 == 0 else b"k" * (number % 70), b"v", NOW_MS + number, []) for number in range(count)]
    )
    parts = plain_parts(inflated(batch, parse_kafka_header(batch)))
    assert parts is not None and [each.num_rows for each in parts[:-1]] == [100] * ((count - 1) // 100)
    found = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    found.validate(full=True)
    assert found.equals(by_the_loop([batch]))
    headers = kafka_batch([(b"k", b"v", NOW_MS, [])] * count + [(b"k", b"v", NOW_MS, [("h", b"x")])])
    assert plain_parts(inflated(headers, parse_kafka_header(headers))) is None


def repeated_record(count: int) -> bytes:
    """Returns a batch of a few kilobytes that repeats its first record: the offsets of all others are wrong."""
    header = parse_kafka_header(kafka_batch([(b"", b"", NOW_MS, [])]))._replace(
        record_count=count, last_offset_delta=count - 1, codec=KafkaCodec.ZSTD
    )
    records = kafka_batch([(b"", b"", NOW_MS, [])])[61:]
    return build_kafka_batch(header, deflate(records * count, KafkaCodec.ZSTD))


@pytest.mark.parametrize("by", ["kernels", "loop"])
def test_a_record_that_a_few_kilobytes_repeat_ten_million_times_is_looked_at_a_few_times(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is repeated millions of times is refused after few reads: it would occupy the node's only thread
    for such work for half a minute, and half a gigabyte."""
    if by == "kernels":
        monkeypatch.setattr(kafka_records, "LEAST_FOR_KERNELS", 256)
    looked_at = 0
    read = kafka_records._read_record

    def counted(data: bytes, at: int):  # type: ignore[no-untyped-def]
        nonlocal looked_at
        looked_at += 1
        return read(data, at)

    monkeypatch.setattr(kafka_records, "_read_record", counted)
    bomb = repeated_record(9_000_000)
    assert len(bomb) < 16 << 10
    with pytest.raises(KafkaBatchError, match="offsets that are not consecutive"):
        read_kafka_columns(bomb, parse_kafka_header(bomb))
    assert looked_at <= 1 << 16


def test_what_has_headers_is_left_to_the_loop() -> None:
    assert by_kernels([kafka_batch([(b"k", b"v", NOW_MS, [("h", b"x")])])]) is None


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_is_altered_is_read_the_same_or_left_to_the_loop(data: st.DataObject) -> None:
    rows: list[KafkaRow] = [(b"key", bytes(number % 4), NOW_MS + number, []) for number in range(40)]
    records = bytearray(kafka_batch(rows)[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(records) - 1))
        records[place] = data.draw(st.sampled_from((0, 1, 2, 6, 7, 8, 0x7F, 0x80, 0x81, 0xFF)) | st.integers(0, 255))
    batch = kafka_batch(rows)[:61] + bytes(records)
    header = parse_kafka_header(batch)
    other = kafka_batch(rows[:3])
    found = plain_columns([Inflated(header, bytes(records)), inflated(other, parse_kafka_header(other))])
    if found is None:
        return
    found.validate(full=True)
    try:
        expected = read_kafka_columns(batch, header)
    except KafkaBatchError as error:
        raise AssertionError("the loop refuses what the kernels take") from error
    assert found.slice(0, 40).equals(expected)


@pytest.mark.parametrize("poisonous", [None, 0, 3, 6])
@pytest.mark.parametrize("together_bytes", [1, 2_000, 1 << 20])
@pytest.mark.parametrize("codec", [KafkaCodec.NONE, KafkaCodec.GZIP])
def test_entries_are_decoded_together_up_to_the_first_that_cannot_be_read(
    poisonous: int | None, together_bytes: int, codec: KafkaCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "_TOGETHER_BYTES", together_bytes)
    entries = []
    for number in range(7):
        batch = bytearray(kafka_batch([(b"k", b"%0200d" % number, NOW_MS + number, [])] * (number + 1), codec))
        if number == poisonous:
            batch[61] ^= 2
            batch[17:21] = struct.pack(">I", google_crc32c.value(bytes(batch[21:])))
        entry = stored_kafka_entry(bytes(batch), 100 * number)
        entries.append(KafkaEntry(entry, parse_header(entry)))
    found = []
    problem = ""
    try:
        found.extend(read_kafka_entries(entries))
    except CorruptEntryError as error:
        problem = str(error)
    sound = entries if poisonous is None else entries[:poisonous]
    for columns, (entry, header) in zip(found, sound, strict=True):
        assert columns.equals(read_columns(entry, header))
    assert problem.startswith(
        "" if poisonous is None else f"the Kafka batch at offset {100 * poisonous} cannot be read"
    )


def test_records_beyond_what_kernels_may_take_are_left_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_kernels, "MOST_FOR_KERNELS", 3)
    rows: list[KafkaRow] = [(b"key", b"value", NOW_MS, [])] * 2
    assert by_kernels([kafka_batch(rows)]) is not None
    assert by_kernels([kafka_batch(rows)] * 2) is None
