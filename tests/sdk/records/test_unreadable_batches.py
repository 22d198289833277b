"""Batches that cannot be read are named, skipped where that is asked for, and distinguished from damage."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from stored_batches import stored_batch
from unreadable_batches import COUNT, NOW_MS, UNREADABLE, unreadable_entry

from quorumlog.sdk.cluster.offset_search import FoundOffset, OffsetSearch
from quorumlog.sdk.errors import CorruptRecordError, UnreadableBatchError
from quorumlog.sdk.records import record_batch
from quorumlog.sdk.records.fetched import FetchedRows, rows_from
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1.data_plane_pb2 import ListOffsetsResult
from quorumlog.wire import payload
from quorumlog.wire.entry import parse_header
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry

TP = TopicPartition("orders", 4)


def offsets(rows: list[FetchedRows]) -> list[int]:
    return [offset for part in rows for offset in part.offsets().to_pylist()]


def kafka_entry(offset: int, count: int) -> bytes:
    return stored_kafka_entry(kafka_batch([(None, b"v", NOW_MS, [])] * count), offset)


@pytest.mark.parametrize("kind", UNREADABLE)
def test_error_names_batch_and_next_offset(kind: str) -> None:
    rows = rows_from(TP, [stored_batch(0, 5), unreadable_entry(kind, 5), stored_batch(8, 2)], 0)
    assert offsets([next(rows)]) == [0, 1, 2, 3, 4]
    with pytest.raises(UnreadableBatchError) as raised:
        next(rows)
    error: UnreadableBatchError = pickle.loads(pickle.dumps(raised.value))
    assert error.partition == TP
    assert (error.first_offset, error.last_offset, error.next_offset, error.record_count) == (5, 7, 8, COUNT)
    assert error.message.startswith("orders-4: offsets 5 to 7 cannot be read: ")
    assert error.message.endswith('; seek to offset 8 to continue after the batch, or set on_corrupt="skip"')
    assert not error.retriable and error.reason in error.message


@pytest.mark.parametrize("kind", UNREADABLE)
def test_only_the_unreadable_batch_is_skipped(kind: str) -> None:
    entries = [kafka_entry(0, 5), kafka_entry(5, 2), unreadable_entry(kind, 7), kafka_entry(10, 2), stored_batch(12, 3)]
    rows = list(rows_from(TP, entries, 1, skip_unreadable=True))
    assert offsets(rows) == [1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14]
    (skipped,) = [part for part in rows if part.skipped is not None]
    assert skipped.skipped is not None and skipped.skipped.first_offset == 7
    assert (skipped.next_offset, skipped.size_bytes, skipped.stored_bytes) == (10, 0, len(entries[2]))
    assert sum(part.stored_bytes for part in rows) == sum(map(len, entries))


def test_many_unreadable_batches_cost_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry's checksum is verified once, however many batches of one answer are unreadable."""
    verified: list[int] = []
    verify = record_batch.verify_batch

    def counting(entry: bytes) -> Any:
        verified.append(1)
        return verify(entry)

    monkeypatch.setattr(record_batch, "verify_batch", counting)
    entries = [unreadable_entry("more records", COUNT * number) for number in range(50)]
    rows = list(rows_from(TP, entries, 0, skip_unreadable=True))
    assert [part.next_offset for part in rows] == [*range(COUNT, 51 * COUNT, COUNT)]
    assert len(verified) == 50


@pytest.mark.parametrize("kafka", [False, True])
def test_damage_is_never_skipped(kafka: bool) -> None:
    """A wrong checksum is the node's or the network's fault: what is stored can be read."""
    sound = kafka_entry(5, 2) if kafka else stored_batch(5, 2)
    damaged = bytearray(sound)
    damaged[-9] ^= 1
    rows = rows_from(TP, [kafka_entry(0, 5), bytes(damaged), kafka_entry(7, 2)], 0, skip_unreadable=True)
    assert offsets([next(rows)]) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecordError, match="checksum") as raised:
        next(rows)
    assert not isinstance(raised.value, UnreadableBatchError)


@pytest.mark.parametrize("base", [4, 9])
def test_missing_offsets_are_never_skipped(base: int) -> None:
    rows = rows_from(TP, [stored_batch(0, 5), unreadable_entry("cut off", base)], 0, skip_unreadable=True)
    next(rows)
    with pytest.raises(CorruptRecordError, match="offset 5 should come next") as raised:
        next(rows)
    assert not isinstance(raised.value, UnreadableBatchError)


def test_full_memory_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's error for exhausted memory is one of its errors for invalid data too."""

    def exhausted(*_: object) -> Any:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(payload.pa.ipc, "read_record_batch", exhausted)
    with pytest.raises(MemoryError):
        list(rows_from(TP, [stored_batch(0, 5)], 0, skip_unreadable=True))
    monkeypatch.setattr(pa, "CompressedInputStream", exhausted)
    with pytest.raises(MemoryError):
        list(rows_from(TP, [unreadable_entry("cut off", 0)], 0, skip_unreadable=True))


def test_time_search_ends_at_an_unreadable_batch() -> None:
    """Its header says that a record of that time is in it, so reading has to start there at the latest."""
    entry = unreadable_entry("compressed twice", 70, timestamp_ms=NOW_MS + 9)
    for first_offset, expected in ((0, 70), (71, 71)):
        search = OffsetSearch({TP: NOW_MS})
        search.take_answer(TP, ListOffsetsResult(offset=first_offset, timestamp_ms=-1, entry=entry))
        assert search.found == {TP: FoundOffset(expected, NOW_MS + 9)}
    assert parse_header(entry).max_timestamp_ms == NOW_MS + 9
