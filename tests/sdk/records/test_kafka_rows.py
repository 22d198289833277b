"""Fetched batches of Kafka's clients are rows like any others."""

from __future__ import annotations

import google_crc32c
import pytest

from quorumlog.sdk.cluster.offset_search import FoundOffset, OffsetSearch
from quorumlog.sdk.errors import CorruptRecordError
from quorumlog.sdk.records.fetched import FetchedRows, rows_from, to_records, to_table
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1.data_plane_pb2 import ListOffsetsResult
from quorumlog.wire.entry import Codec
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.server.kafka.test_kafka_entries import arrow_entry
from tests.support.kafka_batches import KafkaRow, kafka_batch, stored_kafka_entry

TP = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
ROWS: list[KafkaRow] = [
    (b"a", b"1", NOW_MS, []),
    (None, b"2", NOW_MS - 5, [("größe", b"x"), ("leer", None)]),
    (b"c", None, NOW_MS + 7, []),
]


@pytest.mark.parametrize("codec", list(KafkaCodec))
@pytest.mark.parametrize("append_time_ms", [None, NOW_MS + 99])
def test_a_log_of_both_kinds_reads_as_one(codec: KafkaCodec, append_time_ms: int | None) -> None:
    both = [
        stored_kafka_entry(kafka_batch(ROWS, codec), 5, append_time_ms=append_time_ms),
        arrow_entry(ROWS, 8, Codec.NONE, append_time_ms),
        stored_kafka_entry(kafka_batch(ROWS, codec), 11, append_time_ms=append_time_ms),
    ]
    ours = [arrow_entry(ROWS, base_offset, Codec.NONE, append_time_ms) for base_offset in (5, 8, 11)]
    assert to_table(rows_from(TP, both, 6)).equals(to_table(rows_from(TP, ours, 6)))
    records = [record for rows in rows_from(TP, both, 6) for record in to_records(rows)]
    assert records == [record for rows in rows_from(TP, ours, 6) for record in to_records(rows)]
    assert [record.offset for record in records] == [*range(6, 14)]


def test_a_poisonous_batch_is_an_error_that_says_how_to_go_on() -> None:
    batch = bytearray(kafka_batch(ROWS))
    batch[61] ^= 2
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4)
    rows = rows_from(TP, [stored_kafka_entry(kafka_batch(ROWS), 0), stored_kafka_entry(bytes(batch), 3)], 0)
    assert len(to_records(next(rows))) == 3
    said = r"orders-0: offsets 3 to 5 cannot be read: the Kafka batch at offset 3 .*; seek to offset 6 to continue"
    with pytest.raises(CorruptRecordError, match=said):
        next(rows)


PLAIN: list[KafkaRow] = [(None, b"%d" % number, NOW_MS + number, []) for number in range(200)]


def test_small_batches_that_follow_one_another_are_rows_of_one() -> None:
    batch = kafka_batch(PLAIN)
    entries = [stored_kafka_entry(batch, 200 * number) for number in range(5)]
    (rows,) = rows_from(TP, entries, 150)
    assert (rows.offset, rows.next_offset, rows.columns.num_rows) == (150, 1_000, 850)
    assert rows.stored_bytes == sum(map(len, entries))
    assert rows.leader_epoch == 3
    assert [record.offset for record in to_records(rows)] == [*range(150, 1_000)]
    head, rest = rows.split(60)
    assert (head.next_offset, rest.offset, rest.next_offset) == (210, 210, 1_000)


def test_batches_of_other_leaders_with_the_leaders_time_or_with_gaps_stay_apart() -> None:
    batch = kafka_batch(PLAIN)
    for entries, begins in (
        ([stored_kafka_entry(batch, 200 * n, term=3 + n // 2) for n in range(4)], [0, 400]),
        ([stored_kafka_entry(batch, 200 * n, append_time_ms=NOW_MS + n) for n in range(3)], [0, 200, 400]),
        (
            [
                stored_kafka_entry(batch, 0),
                stored_kafka_entry(batch, 200, last_offset=499),
                stored_kafka_entry(batch, 500),
                stored_kafka_entry(batch, 700),
            ],
            [0, 500],
        ),
    ):
        parts = list(rows_from(TP, entries, 0, compacted_offset=1_000))
        assert [rows.offset for rows in parts] == begins
        assert sum(rows.stored_bytes for rows in parts) == sum(map(len, entries))
        alone = [record for entry in entries for record in to_records(FetchedRows.of_entry(TP, entry))]
        assert [record for rows in parts for record in to_records(rows)] == alone
        assert [rows.leader_epoch for rows in parts] == sorted(rows.leader_epoch for rows in parts)


@pytest.mark.parametrize("damaged", range(4))
def test_what_comes_before_an_entry_that_was_altered_is_read(damaged: int) -> None:
    entries = [stored_kafka_entry(kafka_batch(ROWS), 3 * number) for number in range(4)]
    altered = bytearray(entries[damaged])
    altered[-9] ^= 1
    entries[damaged] = bytes(altered)
    rows = rows_from(TP, entries, 0)
    seen = [record.offset for _ in range(damaged) for record in to_records(next(rows))]
    assert seen == [*range(3 * damaged)]
    with pytest.raises(CorruptRecordError, match=f"orders-0 at offset {3 * damaged}: checksum of entry"):
        next(rows)


def test_a_search_by_time_finds_the_record_in_a_kafka_batch() -> None:
    search = OffsetSearch({TP: NOW_MS + 1})
    entry = stored_kafka_entry(kafka_batch(ROWS, KafkaCodec.GZIP), 70)
    search.take_answer(TP, ListOffsetsResult(offset=70, timestamp_ms=-1, entry=entry))
    assert search.found == {TP: FoundOffset(72, NOW_MS + 7)}


def test_a_search_by_time_goes_on_behind_a_kafka_batch_that_promised_more_than_it_has() -> None:
    promising = bytearray(kafka_batch(ROWS))
    promising[35:43] = (NOW_MS + 10_000).to_bytes(8)
    promising[17:21] = google_crc32c.value(bytes(promising[21:])).to_bytes(4)
    search = OffsetSearch({TP: NOW_MS + 5_000})
    search.take_answer(
        TP, ListOffsetsResult(offset=70, timestamp_ms=-1, entry=stored_kafka_entry(bytes(promising), 70))
    )
    assert search.missing == {TP}
    assert search.questions([], 1).takes_kafka_batches
