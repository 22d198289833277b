"""Markers and covers: entries that end transactions, or stand for what a reader does not get, and have no records."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch

from quorumlog.sdk.records.record_batch import DecodedRun, decode_runs
from quorumlog.wire.columns import KafkaEntry, read_columns, read_kafka_entries
from quorumlog.wire.entry import (
    Attributes,
    Codec,
    CorruptEntryError,
    build_batch,
    build_cover,
    is_of_transaction,
    parse_header,
    seal_batch,
    verify,
)
from quorumlog.wire.kafka.batch import KafkaBatchError, KafkaCodec, verify_kafka_batch
from quorumlog.wire.kafka.control import LogPlace, build_marker, decided_in, is_marker
from quorumlog.wire.kafka.entry import check_kafka_entry, kafka_batch_in
from quorumlog.wire.kafka.produced import entry_of_produced
from quorumlog.wire.kafka.translation import kafka_batches_of, served_batches
from quorumlog.wire.payload import LOG_SCHEMA, write_payload
from tests.support.kafka_batches import kafka_batch
from tests.support.partition_rig import NOW_MS

DECIDED = LogPlace(5, 123)


def marker(*, commit: bool = True, offset: int = 40, epoch: int = 7) -> bytes:
    """Returns a sealed marker."""
    unsealed = build_marker(9_000, epoch, DECIDED, NOW_MS, commit=commit)
    place = {"group": 1_000, "term": 3, "index": 17, "previous_hash": 5}
    return seal_batch(unsealed, **place, base_offset=offset, append_time_ms=NOW_MS, stamps_records=False)


def sealed(unsealed: bytes, offset: int) -> bytes:
    """Returns a batch at an offset."""
    return seal_batch(
        unsealed, group=1_000, term=3, index=1, previous_hash=5, base_offset=offset, append_time_ms=NOW_MS
    )


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_control_batches(commit: bool) -> None:
    """Kafka's consumers read a marker as the control batch that a broker writes."""
    entry = marker(commit=commit)
    verify(entry)
    (batch,) = [DefaultRecordBatch(kafka_batches_of(entry))]
    assert batch.validate_crc()
    assert (batch.is_control_batch, batch.is_transactional) == (True, True)
    header = verify_kafka_batch(kafka_batches_of(entry))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9_000, 7, -1)
    (record,) = batch
    assert (record.offset, record.timestamp) == (40, NOW_MS)
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if commit else ABORT_MARKER)
    assert record.value == b"\0\0\0\0\0\5"  # version 0, and the term of the decision as the coordinator's epoch
    assert served_batches([entry], 1_000, reads_zstd=True) == kafka_batches_of(entry)


def test_markers_keep_the_decision() -> None:
    """The place of the decision follows Kafka's batch, and is not part of it."""
    entry = marker()
    header = parse_header(entry)
    assert decided_in(entry) == DECIDED and is_marker(header) and header.is_control and is_of_transaction(entry)
    assert (
        header.attributes & Attributes.COMMIT and not parse_header(marker(commit=False)).attributes & Attributes.COMMIT
    )
    assert (header.base_offset, header.last_offset, header.max_timestamp_ms) == (40, 40, -1)
    assert header.append_time_ms == NOW_MS
    assert verify_kafka_batch(kafka_batch_in(entry)).is_control
    with pytest.raises(CorruptEntryError, match="no place"):
        decided_in(entry[:100])


def test_markers_without_a_place_are_damaged() -> None:
    """A marker without its place is not read as one whose batch is its place."""
    entry = marker()
    whole = bytes(kafka_batch_in(entry))
    cut = build_batch(
        whole + bytes(-len(whole) % 8), record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=-1,
        producer_id=1, producer_epoch=1, attributes=parse_header(entry).attributes,
    )  # fmt: skip
    with pytest.raises(KafkaBatchError):
        kafka_batch_in(cut)


def test_markers_and_covers_have_no_rows() -> None:
    """Readers of our own format find no record in them."""
    for entry in (marker(), build_cover(1_000, 40, 59)):
        columns = read_columns(entry, parse_header(entry))
        assert columns.num_rows == 0 and columns.schema == LOG_SCHEMA


def test_runs_with_markers_keep_their_rows() -> None:
    """Batches around a marker are decoded as if they were neighbours."""
    rows = [(b"k%d" % number, b"v", NOW_MS, []) for number in range(2)]
    batches = [sealed(entry_of_produced(kafka_batch(rows)), offset) for offset in (38, 41)]
    entries = [batches[0], marker(), batches[1]]
    runs = list(decode_runs(entries))
    assert all(isinstance(run, DecodedRun) for run in runs)
    assert [run.columns.num_rows for run in runs if isinstance(run, DecodedRun)] == [2, 0, 2]
    read = read_kafka_entries([KafkaEntry(entry, parse_header(entry)) for entry in entries])
    assert [columns.num_rows for columns in read] == [2, 0, 2]


def test_covers_name_their_offsets() -> None:
    """A cover has the offsets that it stands for, also a single one, and nothing else."""
    for last in (40, 41, 1_000):
        cover = build_cover(1_000, 40, last)
        verify(cover)
        header = parse_header(cover)
        assert (header.base_offset, header.last_offset, header.is_control) == (40, last, True)
        assert not is_marker(header) and is_of_transaction(cover)


def test_transactional_kafka_batches_say_so() -> None:
    """The entry of a transactional batch has its attribute; an entry that contradicts its batch is refused."""
    rows = [(b"k", b"v", NOW_MS, [])]
    batch = kafka_batch(rows, producer_id=5, producer_epoch=1, base_sequence=0, transactional=True)
    entry = entry_of_produced(batch)
    assert parse_header(entry).is_transactional and is_of_transaction(entry)
    check_kafka_entry(entry, parse_header(entry))
    plain = entry_of_produced(kafka_batch(rows, producer_id=5, producer_epoch=1, base_sequence=0))
    assert not parse_header(plain).is_transactional and not is_of_transaction(plain)
    for wrong in (entry, plain):
        lying = bytearray(wrong)
        lying[54] ^= Attributes.TRANSACTIONAL
        with pytest.raises(KafkaBatchError, match="contradicts"):
            check_kafka_entry(bytes(lying), parse_header(bytes(lying)))
    with pytest.raises(KafkaBatchError, match="no producer id"):
        entry_of_produced(kafka_batch(rows, transactional=True))


def test_translated_batches_name_their_transaction() -> None:
    """A transactional batch of our own clients has its producer in Kafka's format; others have none."""
    import pyarrow as pa

    columns = pa.RecordBatch.from_pylist([{"key": b"k", "value": b"v"}] * 3, LOG_SCHEMA)
    options = {"record_count": 3, "codec": Codec.NONE, "base_timestamp_ms": NOW_MS, "max_timestamp_ms": NOW_MS}
    writer = {"producer_id": 77, "producer_epoch": 4, "base_sequence": 12}
    payload = write_payload(columns, Codec.NONE)
    entry = sealed(build_batch(payload, **options, **writer, attributes=Attributes.TRANSACTIONAL), 40)
    for codec in (KafkaCodec.NONE, KafkaCodec.GZIP):
        header = verify_kafka_batch(kafka_batches_of(entry, codec=codec))
        assert (header.is_transactional, header.is_control) == (True, False)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 4, 12)
        assert (header.base_offset, header.record_count) == (40, 3)
    header = verify_kafka_batch(kafka_batches_of(sealed(build_batch(payload, **options, **writer), 40)))
    assert (header.producer_id, header.is_transactional) == (-1, False)
