"""Fetched batches of Kafka's clients are rows like any others."""

from __future__ import annotations

import google_crc32c
import pytest

from quorumlog.sdk.cluster.offset_search import FoundOffset, OffsetSearch
from quorumlog.sdk.errors import CorruptRecordError
from quorumlog.sdk.records.fetched import rows_from, to_records, to_table
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1.data_plane_pb2 import ListOffsetsResult
from quorumlog.v1.entry import Codec
from quorumlog.v1.kafka_batch import KafkaCodec
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
    with pytest.raises(CorruptRecordError, match=r"orders-0 at offset 3: the Kafka batch .* seek beyond the batch"):
        next(rows)


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
