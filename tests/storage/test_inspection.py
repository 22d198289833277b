"""A data directory can be looked at from outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, staged, transaction

from quorumlog.raft.types import ORIGIN, Entry, EntryKind, HardState
from quorumlog.storage.inspection import EntryRow, Inspection, RaftGroupRow, dump
from quorumlog.storage.interface import DataDirectoryLockedError, StorageEngineError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify
from quorumlog.wire.entry import Attributes, Codec, build_batch, entry_hash, seal_batch
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.kafka_batches import KafkaRow, kafka_batch, stored_kafka_entry


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    log = LogBuilder(1000)
    entries = [log.noop(), *log.batches(300, records=2), log.batch(100_000), log.noop()]
    with Storage(tmp_path, max_deletes=7) as storage:
        storage.commit(transaction(create(0, LogBuilder(0).batches(5), table={b"k": b"v"}), create(1000, entries)))
        checkpoint, slices = staged(identity(entries[99]), b"image")
        compaction = RaftGroupWrite(1000, stage=slices, checkpoint=checkpoint, compact_to=checkpoint.last)
        storage.commit(transaction(compaction, node_state={b"directory": b"d"}))
    return tmp_path


def test_a_dump_shows_groups_and_entries(data_dir: Path) -> None:
    found = list(dump(data_dir))
    groups = [row for row in found if isinstance(row, RaftGroupRow)]
    entries = [row for row in found if isinstance(row, EntryRow) and row.group == 1000]
    assert [(row.group, row.first_index, row.last_index, row.table_rows) for row in groups] == [
        (0, 1, 5, 1),
        (1000, 101, 303, 0),
    ]
    assert groups[1].snapshot is not None
    assert (groups[1].snapshot.last, groups[1].snapshot.data.size_bytes) == (groups[1].anchor, 5)
    assert groups[1].hard_state == HardState(1, 1, 302)
    assert [row.index for row in entries] == list(range(101, 304))
    assert all(row.problem is None for row in entries)
    assert entries[0].header is not None
    assert entries[0].header.base_offset == 198
    assert entries[-1].header is None


def test_a_batch_of_a_kafka_client_shows_its_own_header(tmp_path: Path) -> None:
    rows: list[KafkaRow] = [(b"k", bytes(100), 1_000, [])] * 9
    first = stored_kafka_entry(kafka_batch(rows, KafkaCodec.SNAPPY), 0)
    poisonous = bytearray(kafka_batch(rows))
    poisonous[57:61] = (8).to_bytes(4)
    log, previous = [], ORIGIN
    for base_offset, unsealed in ((0, first), (9, build_lying_entry(bytes(poisonous)))):
        index = previous.index + 1
        data = seal_batch(
            unsealed, group=1000, term=1, index=index, previous_hash=previous.hash, base_offset=base_offset
        )
        log.append(Entry(index, 1, EntryKind.BATCH, entry_hash(data), data))
        previous = identity(log[-1])
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1000, log)))
    kept, lying = [row for row in dump(tmp_path) if isinstance(row, EntryRow)]
    assert kept.kafka is not None and kept.problem is None
    assert (kept.kafka.codec, kept.kafka.record_count) == (KafkaCodec.SNAPPY, 9)
    assert lying.problem is not None and "8 records where its entry has 9" in lying.problem


def build_lying_entry(batch: bytes) -> bytes:
    """An entry that says nine records, whatever its batch says."""
    return build_batch(
        batch + bytes(-len(batch) % 8),
        record_count=9,
        codec=Codec.NONE,
        base_timestamp_ms=1_000,
        max_timestamp_ms=1_000,
        attributes=Attributes.KAFKA,
    )


def test_a_range_of_entries_can_be_asked_for(data_dir: Path) -> None:
    with Inspection(data_dir) as inspection:
        assert [row.index for row in inspection.entries(1000, 150, 152)] == [150, 151, 152]
        assert [row.index for row in inspection.entries(1000, 1, 102)] == [101, 102]
        assert list(inspection.entries(77)) == []


def test_a_sound_directory_verifies(data_dir: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(data_dir, lambda done, total: seen.append((done, total)))
    assert report.problems == ()
    assert report.sound
    assert (report.groups, report.entries) == (2, 5 + 203)
    assert seen[-1] == (208, 208)


def test_a_running_node_is_not_disturbed(data_dir: Path) -> None:
    with Storage(data_dir), pytest.raises(DataDirectoryLockedError, match="stop that node"):
        verify(data_dir)


def test_a_directory_without_data_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StorageEngineError, match=r"has no data\.mdb"):
        verify(tmp_path)
