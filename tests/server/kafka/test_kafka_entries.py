"""Entries that keep a Kafka client's batch as it came, and entries of any kind as Kafka's consumers get them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import (
    Attributes,
    Codec,
    CorruptEntryError,
    TimestampType,
    build_batch,
    build_compacted,
    parse_batch,
    parse_header,
    seal_batch,
    verify_batch,
)
from quorumlog.wire.kafka.batch import (
    KafkaBatchError,
    KafkaBatchFault,
    KafkaCodec,
    parse_kafka_header,
    verify_kafka_batch,
)
from quorumlog.wire.kafka.entry import check_kafka_entry, entry_of_kafka, is_kafka, kafka_batch_in, leader_epoch_of
from quorumlog.wire.kafka.translation import (
    find_time_in,
    kafka_batches_of,
    last_latest_in,
    served_batches,
)
from quorumlog.wire.payload import COMPACTED_SCHEMA, HEADERS_TYPE, LOG_SCHEMA, TIMESTAMP_TYPE, write_payload
from tests.support.kafka_batches import KafkaRow, changed, kafka_batch, stored_kafka_entry, with_checksum
from tests.support.stored_batches import stored_batch
from tests.support.unreadable_batches import UNREADABLE, unreadable_entry

KAFKA_UNREADABLE = [kind for kind in UNREADABLE if kind != "not Arrow"]
NOW_MS = 1_700_000_000_000
FAULT = KafkaBatchFault
ROWS: list[KafkaRow] = [
    (b"a", b"1", NOW_MS, []),
    (None, b"2", NOW_MS - 5, [("größe", b"x"), ("leer", None)]),
    (b"c", None, NOW_MS + 7, []),
]
#: Records with nulls, emptiness and headers.
some_bytes = st.none() | st.binary(max_size=70)
some_rows = st.lists(
    st.tuples(
        some_bytes,
        some_bytes,
        st.integers(0, 1 << 41),
        st.lists(st.tuples(st.text(st.characters(exclude_categories=("Cs",)), max_size=9), some_bytes), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def columns_of(rows: list[KafkaRow]) -> pa.RecordBatch:
    """Rows as one of our producers would send them."""
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


def arrow_entry(rows: list[KafkaRow], base_offset: int, codec: Codec, append_time_ms: int | None = None) -> bytes:
    times = [row[2] for row in rows]
    batch = build_batch(
        write_payload(columns_of(rows), codec),
        record_count=len(rows),
        codec=codec,
        base_timestamp_ms=min(times),
        max_timestamp_ms=max(times),
    )
    return seal_batch(
        batch, group=1_000, term=3, index=9, previous_hash=5, base_offset=base_offset, append_time_ms=append_time_ms
    )


def compacted_entry(
    rows: list[KafkaRow], base_offset: int, deltas: list[int], last_offset: int, codec: Codec = Codec.NONE
) -> bytes:
    columns = pa.RecordBatch.from_arrays(
        [*columns_of(rows).columns, pa.array(deltas, pa.uint32())], schema=COMPACTED_SCHEMA
    )
    return build_compacted(
        write_payload(columns, codec),
        group=1_000,
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=len(rows),
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME,
        append_time_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
    )


def batches_in(data: bytes) -> list[bytes]:
    """Returns the batches, which are stored one after the other."""
    found = []
    while data:
        size = struct.unpack_from(">i", data, 8)[0] + 12
        found.append(data[:size])
        data = data[size:]
    return found


def their_rows(data: bytes) -> tuple[list[int], list[KafkaRow]]:
    """Offsets and rows, as aiokafka reads them."""
    offsets, rows = [], []
    for batch in batches_in(data):
        reader = AiokafkaBatch(batch)
        assert reader.validate_crc()
        if not parse_count(batch):
            continue
        for each in reader:
            offsets.append(each.offset)
            rows.append((each.key, each.value, each.timestamp, [(name, value) for name, value in each.headers]))
    return offsets, rows


def parse_count(batch: bytes) -> int:
    return int(struct.unpack_from(">i", batch, 57)[0])


# -- kept as they came ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(some_rows, st.sampled_from(list(KafkaCodec)))
def test_a_kept_batch_is_read_the_same_by_ours_and_by_kafkas_readers(rows: list[KafkaRow], codec: KafkaCodec) -> None:
    entry = stored_kafka_entry(kafka_batch(rows, codec), 70)
    _, header = verify_batch(entry)
    columns = read_columns(entry, header)
    assert columns.equals(columns_of(rows))
    assert their_rows(kafka_batches_of(entry)) == ([*range(70, 70 + len(rows))], rows)


def test_a_consumer_gets_the_bytes_of_the_producer_with_offset_and_epoch_replaced() -> None:
    batch = kafka_batch(ROWS, KafkaCodec.GZIP)
    entry = stored_kafka_entry(batch, 1 << 40, term=12)
    assert is_kafka(entry) and len(entry) % 8 == 0
    assert bytes(kafka_batch_in(entry)) == batch
    found = kafka_batches_of(entry)
    header = parse_kafka_header(found)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 12)
    assert (found[8:12], found[16:]) == (batch[8:12], batch[16:])


def test_the_entry_says_what_the_batch_says() -> None:
    batch = kafka_batch(ROWS, KafkaCodec.SNAPPY, producer_id=77, producer_epoch=32_767, base_sequence=(1 << 31) - 1)
    entry = entry_of_kafka(batch, null_keys=True)
    _, header = parse_batch(entry)
    check_kafka_entry(entry, header)
    assert header.attributes == Attributes.KAFKA | Attributes.NULL_KEYS
    assert (header.record_count, header.codec) == (3, Codec.LZ4 if parse_kafka_header(batch).codec else Codec.NONE)
    assert (header.append_time_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 32_767, (1 << 31) - 1)
    assert header.next_sequence == 2
    assert parse_header(entry_of_kafka(batch, null_keys=False)).attributes == Attributes.KAFKA


def test_what_stands_beside_no_producer_id_is_not_looked_at() -> None:
    entry = entry_of_kafka(kafka_batch(ROWS, KafkaCodec.NONE, base_sequence=0), null_keys=True)
    _, header = parse_batch(entry)
    check_kafka_entry(entry, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_append_time_is_put_in_when_it_is_fetched_and_the_entry_stays() -> None:
    batch = kafka_batch(ROWS, KafkaCodec.LZ4)
    entry = stored_kafka_entry(batch, 5, append_time_ms=NOW_MS + 1_000)
    assert bytes(kafka_batch_in(entry)) == batch
    offsets, rows = their_rows(kafka_batches_of(entry))
    assert offsets == [5, 6, 7]
    assert [row[2] for row in rows] == [NOW_MS + 1_000] * 3
    assert parse_kafka_header(kafka_batches_of(entry)).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_offsets_that_a_restored_batch_covers_behind_it_are_covered_for_consumers() -> None:
    entry = stored_kafka_entry(kafka_batch(ROWS), 5, last_offset=99)
    header = parse_header(entry)
    assert header.last_offset == 99
    assert read_columns(entry, header).equals(columns_of(ROWS))
    found = kafka_batches_of(entry)
    assert parse_kafka_header(found).last_offset_delta == 94
    assert their_rows(found) == ([5, 6, 7], ROWS)


def test_more_missing_offsets_than_a_batch_of_kafkas_covers_are_covered_by_empty_ones() -> None:
    last = 5 + (1 << 32) - 1
    found = batches_in(kafka_batches_of(stored_kafka_entry(kafka_batch(ROWS), 5, last_offset=last)))
    assert their_rows(found[0]) == ([5, 6, 7], ROWS)
    expected = 5
    for batch in found:
        base, delta = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 23)[0]
        assert base == expected
        expected = base + delta + 1
    assert expected == last + 1
    assert [parse_count(batch) for batch in found] == [3, 0]


@pytest.mark.parametrize(("term", "epoch"), [(0, -1), (1, 1), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, -1)])
def test_a_term_is_a_leader_epoch_of_31_bits_or_none(term: int, epoch: int) -> None:
    assert leader_epoch_of(term) == epoch
    if term:
        found = kafka_batches_of(stored_kafka_entry(kafka_batch(ROWS), 0, term=term))
        assert parse_kafka_header(found).leader_epoch == epoch


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "form", "value", "fault", "match"),
    [
        pytest.param(16, ">b", 1, FAULT.MAGIC, "format 1", id="of another magic"),
        pytest.param(21, ">h", 5, FAULT.CODEC, "codec 5", id="of an unknown codec"),
        pytest.param(21, ">h", 1 << 3, FAULT.RECORD, "append time", id="with append time"),
        pytest.param(21, ">h", 1 << 4, FAULT.RECORD, "no producer id", id="of a transaction without a producer"),
        pytest.param(21, ">h", 3 << 4, FAULT.RECORD, "control", id="of control records"),
        pytest.param(21, ">h", 1 << 6, FAULT.RECORD, "delete horizon", id="with a delete horizon"),
        pytest.param(21, ">h", 1 << 7, FAULT.RECORD, "unknown", id="with an unknown attribute"),
        pytest.param(23, ">i", 3, FAULT.RECORD, "offset delta of 3", id="with a gap"),
        pytest.param(57, ">i", 0, FAULT.RECORD, "0 records", id="without records"),
        pytest.param(8, ">i", 10, FAULT.CORRUPT, "22 bytes", id="with too short a length"),
    ],
)
def test_a_batch_that_no_producer_may_send_is_refused(
    at: int, form: str, value: int, fault: KafkaBatchFault, match: str
) -> None:
    batch = changed(kafka_batch(ROWS), at, form, value)
    with pytest.raises(KafkaBatchError, match=match) as refused:
        entry_of_kafka(batch, null_keys=True)
    assert refused.value.fault is fault


def lying_entries() -> list[Any]:
    batch = kafka_batch(ROWS)
    padded = batch + bytes(-len(batch) % 8)
    right: dict[str, Any] = {
        "record_count": 3,
        "codec": Codec.NONE,
        "base_timestamp_ms": NOW_MS,
        "max_timestamp_ms": NOW_MS + 7,
        "attributes": Attributes.KAFKA,
    }
    lies: list[tuple[bytes, dict[str, Any], str]] = [
        (padded, {"record_count": 4}, "its entry has"),
        (padded, {"codec": Codec.ZSTD}, "its entry has"),
        (padded, {"base_timestamp_ms": 0}, "its entry has"),
        (padded, {"max_timestamp_ms": 0}, "its entry has"),
        (padded, {"producer_id": 5, "producer_epoch": 1, "base_sequence": 0}, "its entry has"),
        (padded, {"attributes": Attributes.KAFKA | Attributes.REPLAYABLE}, "attributes"),
        (padded + bytes(8), {}, "is in a payload"),
        (batch + b"\1" * (-len(batch) % 8 or 1), {}, "is in a payload"),
        (b"", {}, "0 bytes"),
        (batch[:60], {}, "60 bytes"),
        (batch[:61], {}, "is in a payload"),
    ]
    return [pytest.param(build_batch(payload, **{**right, **lie}), match) for payload, lie, match in lies]


@pytest.mark.parametrize(("entry", "match"), lying_entries())
def test_a_leader_refuses_an_entry_that_says_other_things_than_its_batch(entry: bytes, match: str) -> None:
    with pytest.raises(KafkaBatchError, match=match):
        check_kafka_entry(entry, parse_header(entry))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_kept_batch_of_damaged_records_is_an_error_and_never_another_exception(data: st.DataObject) -> None:
    batch = bytearray(kafka_batch(ROWS * 3, data.draw(st.sampled_from(list(KafkaCodec)))))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    entry = stored_kafka_entry(with_checksum(bytes(batch)), 70)
    problem = "the Kafka batch at offset 70"
    try:
        read_columns(entry, parse_header(entry)).validate(full=True)
    except CorruptEntryError as error:
        problem = str(error)
    assert "the Kafka batch at offset 70" in problem


# -- translated from Arrow ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(some_rows, st.sampled_from(list(Codec)))
def test_what_our_producers_write_kafkas_readers_read(rows: list[KafkaRow], codec: Codec) -> None:
    found = kafka_batches_of(arrow_entry(rows, 70, codec))
    assert their_rows(found) == ([*range(70, 70 + len(rows))], rows)
    header = parse_kafka_header(found)
    assert (header.leader_epoch, header.codec) == (3, KafkaCodec.NONE)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_append_time_of_what_our_producers_write_is_that_of_all_records() -> None:
    found = kafka_batches_of(arrow_entry(ROWS, 0, Codec.NONE, NOW_MS + 50), codec=KafkaCodec.GZIP)
    assert [row[2] for row in their_rows(found)[1]] == [NOW_MS + 50] * 3
    assert parse_kafka_header(found).codec is KafkaCodec.GZIP


def test_gaps_of_a_compacted_batch_stay() -> None:
    entry = compacted_entry(ROWS, 10, [0, 4, 90], 500)
    found = kafka_batches_of(entry)
    assert their_rows(found) == ([10, 14, 100], ROWS)
    header = parse_kafka_header(found)
    assert (header.last_offset_delta, header.leader_epoch) == (490, -1)


@pytest.mark.parametrize("deltas", [[0, 5, 6], [0, 1 << 31, (1 << 31) + 9], [0, 1, (1 << 32) - 1]])
def test_offsets_that_span_more_than_kafka_counts_become_several_batches(deltas: list[int]) -> None:
    last = (1 << 32) - 1
    found = kafka_batches_of(compacted_entry(ROWS, 10, deltas, 10 + last))
    offsets, rows = their_rows(found)
    assert (offsets, rows) == ([10 + delta for delta in deltas], ROWS)
    expected = 10
    for batch in batches_in(found):
        base, delta = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 23)[0]
        assert base == expected
        expected = base + delta + 1
    assert expected == 10 + last + 1, "the batches cover all offsets of the entry"


# -- in a codec that the reader has ----------------------------------------------------------------------------------


def codecs_in(data: bytes) -> list[KafkaCodec]:
    return [KafkaCodec(batch[22] & 7) for batch in batches_in(data)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("reads_zstd", [False, True])
def test_translated_batches_suit_every_client(codec: Codec, reads_zstd: bool) -> None:
    """Translated batches use gzip or no codec: KafkaJS, aiokafka and kafka-python have no other one by default."""
    deltas = [0, 4, 90]
    entries = [arrow_entry(ROWS, 70, codec), compacted_entry(ROWS, 73, deltas, 173, codec)]
    expected = ([70, 71, 72, *(73 + delta for delta in deltas)], ROWS + ROWS)
    plain = served_batches(entries, 1 << 20, reads_zstd=reads_zstd)
    assert (codecs_in(plain), their_rows(plain)) == ([KafkaCodec.NONE] * 2, expected)
    packed = served_batches(entries, 0, reads_zstd=reads_zstd)
    beyond = KafkaCodec.NONE if codec is Codec.NONE else KafkaCodec.GZIP
    assert (codecs_in(packed), their_rows(packed)) == ([beyond] * 2, expected)


def test_room_is_shared_by_all_batches() -> None:
    rows: list[KafkaRow] = [(b"k", b"v" * 1_000, NOW_MS, [])] * 10
    entries = [arrow_entry(rows, 10 * number, Codec.LZ4) for number in range(4)]
    found = served_batches(entries, 25_000, reads_zstd=True)
    assert codecs_in(found) == [KafkaCodec.NONE, KafkaCodec.NONE, KafkaCodec.GZIP, KafkaCodec.GZIP]
    assert len(found) < 25_000
    assert their_rows(found) == ([*range(40)], rows * 4)


@pytest.mark.parametrize("codec", list(KafkaCodec))
def test_producers_keep_their_codec(codec: KafkaCodec) -> None:
    entry = stored_kafka_entry(kafka_batch(ROWS, codec), 70)
    assert served_batches([entry], 0, reads_zstd=True) == kafka_batches_of(entry)
    assert codecs_in(kafka_batches_of(entry)) == [codec]
    older = served_batches([entry], 1 << 20, reads_zstd=False)
    assert codecs_in(older) == [KafkaCodec.NONE if codec is KafkaCodec.ZSTD else codec]
    assert their_rows(older) == their_rows(kafka_batches_of(entry)) == ([70, 71, 72], ROWS)


def test_zstd_with_gaps_is_translated() -> None:
    last = (1 << 31) + 7
    entry = stored_kafka_entry(kafka_batch(ROWS, KafkaCodec.ZSTD), 5, append_time_ms=NOW_MS + 50, last_offset=5 + last)
    found = served_batches([entry], 0, reads_zstd=False)
    assert codecs_in(found) == [KafkaCodec.GZIP, KafkaCodec.NONE], "the second one has no record"
    stored = kafka_batches_of(entry)
    assert their_rows(found) == their_rows(stored)
    assert [batch[:8] + batch[23:27] for batch in batches_in(found)] == [
        batch[:8] + batch[23:27] for batch in batches_in(stored)
    ]


def test_unreadable_zstd_is_reported() -> None:
    batch = kafka_batch([(b"k", b"v" * 500, NOW_MS, [])], KafkaCodec.ZSTD)
    entry = stored_kafka_entry(with_checksum(batch[:61] + bytes(len(batch) - 61)), 70)
    assert served_batches([entry], 0, reads_zstd=True) == kafka_batches_of(entry)
    with pytest.raises(CorruptEntryError, match="zstd"):
        served_batches([entry], 0, reads_zstd=False)


# -- looked up by time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(stored_kafka_entry(kafka_batch(ROWS, KafkaCodec.ZSTD), 70), id="kept"),
        pytest.param(arrow_entry(ROWS, 70, Codec.LZ4), id="Arrow"),
        pytest.param(compacted_entry(ROWS, 70, [0, 1, 2], 72), id="compacted"),
    ],
)
def test_times_are_looked_up_in_batches_of_every_kind(entry: bytes) -> None:
    assert find_time_in(entry, NOW_MS - 9, 0) == (70, NOW_MS)
    assert find_time_in(entry, NOW_MS - 9, 71) == (71, NOW_MS - 5)
    assert find_time_in(entry, NOW_MS + 1, 0) == (72, NOW_MS + 7)
    assert find_time_in(entry, NOW_MS + 8, 0) is None
    assert last_latest_in(entry) == (72, NOW_MS + 7)


@pytest.mark.parametrize("kind", KAFKA_UNREADABLE)
def test_consumers_get_an_unreadable_batch_as_written(kind: str) -> None:
    """An unreadable batch is served as written, except for base offset and leader epoch: its checksum stays valid."""
    written = UNREADABLE[kind]()
    served = kafka_batches_of(unreadable_entry(kind, 70))
    assert int.from_bytes(served[:8]) == 70
    assert served[8:12] == written[8:12]
    assert served[16:] == written[16:]
    assert verify_kafka_batch(served).record_count == parse_kafka_header(written).record_count


def test_records_before_an_unreadable_entry_are_served() -> None:
    """Records before an unreadable entry are served; the client gets the error when it fetches from that entry on."""
    sound = [stored_batch(0, 3), stored_batch(3, 2)]
    bad = unreadable_entry("not Arrow", 5)
    served = served_batches([*sound, bad, stored_batch(8, 1)], 1 << 20, reads_zstd=True)
    assert served == b"".join(map(kafka_batches_of, sound))
    with pytest.raises(CorruptEntryError):
        served_batches([bad, stored_batch(8, 1)], 1 << 20, reads_zstd=True)
