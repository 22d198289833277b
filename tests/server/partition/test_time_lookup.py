"""The first offset at or after a time, against a plain search through all records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest

from quorumlog.server.partition import time_lookup
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.time_lookup import find_time
from quorumlog.storage.batch_row import BatchRow, next_row
from quorumlog.storage.interface import StorageReader
from quorumlog.wire.entry import Codec, TimestampType, build_batch, parse_header, seal_batch
from tests.support.kafka_batches import changed, kafka_batch, stored_kafka_entry

Batch = list[int]


class Log:
    """A partition and its offset index; each batch is a list of its records' timestamps."""

    def __init__(self, batches: list[Batch], *, append_time: bool = False) -> None:
        self.group = 1
        self.log_start_offset = self.high_watermark = self.compacted_offset = 0
        self.compacted_log: CompactedLog | None = None
        self.rows: list[BatchRow] = []
        self.entries: list[bytes] = []
        self.times: list[int] = []
        self.read_bytes = 0
        for times in batches:
            unsealed = build_batch(
                b"x" * 100,
                record_count=len(times),
                codec=Codec.NONE,
                base_timestamp_ms=min(times),
                max_timestamp_ms=max(times),
            )
            entry = seal_batch(
                unsealed,
                group=1,
                term=1,
                index=1,
                previous_hash=0,
                base_offset=self.high_watermark,
                append_time_ms=max(times) if append_time else None,
            )
            row = next_row(
                self.rows[-1] if self.rows else None,
                len(self.entries) + 1,
                self.high_watermark,
                len(times),
                max(times),
                len(entry),
            )
            assert row is not None
            self.rows.append(row)
            self.entries.append(entry)
            self.times += [max(times)] * len(times) if append_time else times
            self.high_watermark += len(times)

    def trim(self, offset: int, sweep: bool) -> None:
        """Moves the log start; ``sweep`` deletes what lies before it for good."""
        self.log_start_offset = offset
        if sweep:
            kept = [number for number, row in enumerate(self.rows) if row.last_offset >= offset]
            self.rows = [self.rows[number] for number in kept]
            self.entries = [self.entries[number] for number in kept]

    def last_batch(self, group: int) -> BatchRow | None:
        return self.rows[-1] if self.rows else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        return next((row for row in self.rows if row.last_offset >= first_offset and reached(row)), None)

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        found: list[bytes] = []
        for entry in self.entries:
            header = parse_header(entry)
            if header.last_offset >= offset and header.base_offset < self.high_watermark:
                if found and sum(map(len, found)) + len(entry) > max_bytes:
                    break
                found.append(entry)
        self.read_bytes += sum(map(len, found))
        return found

    def search(self, timestamp_ms: int) -> int | None:
        """Returns the offset that a client finds: it continues where an answer ends, and looks into the batch."""
        first = 0
        while True:
            found = find_time(cast(Partition, self), cast(StorageReader, self), timestamp_ms, first)
            if found is None:
                return None
            if found.header is None:
                assert found.offset > first
                first = found.offset
                continue
            inside = range(found.offset, found.header.last_offset + 1)
            match = next((offset for offset in inside if self.times[offset] >= timestamp_ms), None)
            if match is not None:
                return match
            first = found.header.last_offset + 1

    def expected(self, timestamp_ms: int) -> int | None:
        kept = range(self.log_start_offset, self.high_watermark)
        return next((offset for offset in kept if self.times[offset] >= timestamp_ms), None)


@pytest.mark.parametrize("seed", range(40))
def test_any_time_is_found_where_a_plain_search_finds_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(time_lookup, "SCAN_BYTES", rng.choice((1, 500, 4 << 20)))
    disorder = rng.choice((0, 3, 40))
    batches = [
        [number * 10 + rng.randint(-disorder, disorder) * 10 for _ in range(rng.randint(1, 5))]
        for number in range(rng.randint(1, 60))
    ]
    log = Log(batches)
    if rng.random() < 0.5:
        log.trim(rng.randint(0, log.high_watermark), sweep=rng.random() < 0.5)
    if log.rows and rng.random() < 0.3:
        log.high_watermark = max(log.log_start_offset, rng.choice(log.rows).last_offset + 1)
    if len(log.rows) > 3 and rng.random() < 0.3:
        del log.rows[-2:]  # Committed by the followers, not yet durable here.
    for timestamp in range(-450, 1100, 7):
        assert log.search(timestamp) == log.expected(timestamp), timestamp


def test_by_append_time_the_batchs_time_counts_and_is_told() -> None:
    log = Log([[5, 10], [20, 20], [30]], append_time=True)
    found = find_time(cast(Partition, log), cast(StorageReader, log), 11, 0)
    assert found is not None and found.header is not None
    assert found.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (found.offset, found.append_time_ms) == (2, 20)


@pytest.mark.parametrize("stated_ms", [-1, 0])
def test_old_batches_are_searched_by_their_records(stated_ms: int) -> None:
    """Versions before this one took a client's word for the largest timestamp."""
    log = Log([[1_000], [2_000], [3_000]])
    for place in range(3):
        batch = changed(kafka_batch([(b"k", b"v", 1_000 * (place + 1), [])]), 35, ">q", stated_ms)
        log.entries[place] = stored_kafka_entry(batch, place)
    for timestamp in (1, 1_000, 1_001, 2_500, 3_000, 3_001):
        assert log.search(timestamp) == log.expected(timestamp), timestamp


def test_where_the_index_serves_one_batch_is_read() -> None:
    log = Log([[number] for number in range(1000)])
    for timestamp in (0, 1, 500, 999):
        log.read_bytes = 0
        assert log.search(timestamp) == timestamp
        assert log.read_bytes == len(log.entries[0])
    assert log.search(1000) is None


def test_a_removed_record_of_the_future_costs_many_answers_but_none_of_them_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_lookup, "SCAN_BYTES", 4_000)
    log = Log([[10_000], *([number] for number in range(1000))])
    log.trim(1, sweep=True)
    found = find_time(cast(Partition, log), cast(StorageReader, log), 900, 0)
    assert found is not None and found.header is None
    assert log.read_bytes <= 4_000 + 2 * len(log.entries[0])
    assert log.search(900) == 901
