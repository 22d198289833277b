"""The offset index of a directory that an older version wrote is repaired, once, when it is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, transaction

from quorumlog.raft.types import Entry, EntryId, EntryKind
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.storage import Storage
from quorumlog.wire.entry import entry_hash, seal_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.entry import entry_of_kafka
from tests.support.kafka_batches import KafkaRow, changed, kafka_batch

NOW_MS = 1_700_000_000_000
ROWS: list[KafkaRow] = [(b"k", b"v", NOW_MS, []), (b"k", b"w", NOW_MS + 9, []), (b"k", b"x", NOW_MS + 5, [])]
MAX_TIMESTAMP_AT = 35


def kafka_entry(previous: EntryId, base_offset: int, batch: bytes) -> Entry:
    """A batch as the former version took it: its header is the client's."""
    data = seal_batch(
        entry_of_kafka(batch, null_keys=False),
        group=1,
        term=1,
        index=previous.index + 1,
        previous_hash=previous.hash,
        base_offset=base_offset,
    )
    return Entry(previous.index + 1, 1, EntryKind.BATCH, entry_hash(data), data)


def stated(rows_: list[KafkaRow], largest_ms: int, codec: KafkaCodec = KafkaCodec.NONE) -> bytes:
    return changed(kafka_batch(rows_, codec), MAX_TIMESTAMP_AT, ">q", largest_ms)


def make_former(directory: Path, batches: list[bytes]) -> None:
    """A directory as the former version left it, with these batches of Kafka's clients."""
    with Storage(directory) as storage:
        builder = LogBuilder(1)
        entries = [builder.noop()]
        for place, batch in enumerate(batches):
            entries.append(kafka_entry(identity(entries[-1]), 3 * place, batch))
        storage.commit(transaction(create(1, entries)))
        index = storage._environment
        with index.writing() as txn:
            latest = -1 << 63
            for row in all_rows(storage):
                header_ms = int.from_bytes(entries[row.index - 1].data[64:72], "little", signed=True)
                latest = max(latest, header_ms)
                key = rows.position_key(1, row.last_offset)
                body = rows.pack_batch_row(row._replace(max_timestamp_ms=latest))
                txn.put(key, rows.seal_row(rows.OFFSETS, key, body), db=index.databases[rows.OFFSETS])
    (directory / "INDEX_BY_RECORDS").unlink()


def all_rows(storage: Storage) -> list[BatchRow]:
    found: list[BatchRow] = []
    row = storage.find_batch(1, 0, any_batch)
    while row is not None:
        found.append(row)
        row = storage.find_batch(1, row.last_offset + 1, any_batch)
    return found


@pytest.mark.parametrize("largest_ms", [-1, 0, NOW_MS, NOW_MS + 8])
@pytest.mark.parametrize("codec", [KafkaCodec.NONE, KafkaCodec.GZIP])
def test_missing_timestamps_come_from_the_records(tmp_path: Path, largest_ms: int, codec: KafkaCodec) -> None:
    make_former(tmp_path, [stated(ROWS, largest_ms, codec)])
    with Storage(tmp_path) as storage:
        assert [row.max_timestamp_ms for row in all_rows(storage)] == [NOW_MS + 9]
        assert storage.last_batch(1) == all_rows(storage)[0]


def test_old_batches_from_other_nodes_are_indexed_by_their_records(tmp_path: Path) -> None:
    """A replica that catches up gets batches that an older leader took unchecked."""
    with Storage(tmp_path) as storage:
        builder = LogBuilder(1)
        first = builder.noop()
        entry = kafka_entry(identity(first), 0, stated(ROWS, -1))
        storage.commit(transaction(create(1, [first, entry])))
        assert [row.max_timestamp_ms for row in all_rows(storage)] == [NOW_MS + 9]


def test_unreadable_batches_stay_as_they_are(tmp_path: Path) -> None:
    whole = kafka_batch(ROWS)
    unreadable = changed(whole, 61, ">b", 77)
    make_former(tmp_path, [unreadable, whole])
    with Storage(tmp_path) as storage:
        assert [row.max_timestamp_ms for row in all_rows(storage)] == [NOW_MS + 9] * 2


def test_an_upgrade_is_made_once_and_goes_on_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quorumlog.storage import upgrade

    monkeypatch.setattr(upgrade, "_ROWS_AT_ONCE", 2)
    earlier = [(key, value, time_ms - 1_000, headers) for key, value, time_ms, headers in ROWS]
    make_former(tmp_path, [stated(ROWS, -1), *[stated(earlier, -1)] * 4])
    largest = upgrade._largest_timestamp
    calls: list[int] = []

    def crash_at_the_fourth(reading: object, group: int, row: BatchRow) -> int:
        calls.append(row.index)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return largest(reading, group, row)  # type: ignore[arg-type]

    monkeypatch.setattr(upgrade, "_largest_timestamp", crash_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        Storage(tmp_path)
    with Storage(tmp_path) as storage:
        assert len(calls) == 4 + 5
        assert [row.max_timestamp_ms for row in all_rows(storage)] == [NOW_MS + 9] * 5
    with Storage(tmp_path):
        assert len(calls) == 4 + 5
