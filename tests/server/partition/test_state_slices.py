"""The state of a partition in slices: each small, together what it was, and states of one slice as they always were."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from quorumlog.raft.types import SnapshotData
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.epoch_digests import MAX_EPOCH_BATCHES
from quorumlog.server.partition.producer_table import ProducerTable
from quorumlog.server.partition.state_slices import cut_state, snapshot_state
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot, TableRow
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, Attributes, BatchHeader, Codec, TimestampType

SLICE = NodeLimits().snapshot_slice_bytes


@dataclass
class Slices:
    """The slices of a snapshot, as storage gives them."""

    slices: list[bytes]

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        return self.slices[number]

    @property
    def data(self) -> SnapshotData:
        return SnapshotData(1, len(self.slices), sum(map(len, self.slices)), 0)


def state_with(rows: dict[bytes, bytes], batches: int = 0) -> PartitionSnapshot:
    return PartitionSnapshot(
        next_offset=70,
        log_start_offset=3,
        table_index=90,
        rows=[TableRow(key=key, value=value) for key, value in sorted(rows.items())],
        batch_end_offsets=range(1, batches + 1),
        batch_max_timestamps_ms=[1_700_000_000_000 + number for number in range(batches)],
    )


def put_together(slices: list[bytes]) -> PartitionSnapshot:
    stored = Slices(slices)
    state = snapshot_state(stored, 7, stored.data)
    state.ClearField("state_slices")
    return state


def full_table(producers: int) -> dict[bytes, bytes]:
    """Returns the rows of named producers whose epochs have as many batches as they may have."""
    table = ProducerTable(5_000)
    for producer in range(FIRST_NAMED_PRODUCER_ID, FIRST_NAMED_PRODUCER_ID + producers):
        for sequence in range(MAX_EPOCH_BATCHES):
            header = BatchHeader(
                sequence, 1, Codec.NONE, TimestampType.CREATE_TIME, 0, 0, producer, 0, sequence, Attributes.REPLAYABLE
            )
            table.apply(header, sequence + 1, 1 << 63)
    return table.rows()


def test_a_large_table_of_producers_has_no_slice_larger_than_any_other_snapshots() -> None:
    rows = full_table(12)
    slices = cut_state(state_with(rows), SLICE)
    assert len(slices) > 2
    assert max(map(len, slices)) <= SLICE
    restored = ProducerTable(5_000)
    restored.load({row.key: row.value for row in put_together(slices).rows})
    assert restored.rows() == rows


@pytest.mark.parametrize("slice_bytes", [1, 50, 333, 2_000])
def test_the_slices_are_together_what_was_cut(slice_bytes: int) -> None:
    rows = {b"row-%d" % number: b"v" * number for number in range(60)}
    slices = cut_state(state_with(rows, batches=100), slice_bytes)
    assert len(slices) > 1
    assert put_together(slices) == state_with(rows, batches=100)


def test_a_state_of_one_slice_is_as_it_always_was() -> None:
    state = state_with({b"a": b"1"}, batches=2)
    assert cut_state(state, SLICE) == [state.SerializeToString(deterministic=True)]
    assert put_together([b"a batch", b"another", state.SerializeToString()]) == state


@pytest.mark.parametrize("slice_bytes", [60, SLICE])
def test_the_compacted_log_is_what_comes_before_the_state(slice_bytes: int) -> None:
    batches = [b"batch-%d" % number for number in range(9)]
    slices = cut_state(state_with({b"row-%d" % number: b"v" * 40 for number in range(9)}, batches=9), slice_bytes)
    stored = Slices([*batches, *slices])
    log = CompactedLog.of_snapshot(stored, 7, stored.data)
    assert list(log.batches()) == batches
    assert log.read(4, 1) == [b"batch-4"]


def test_slices_of_a_state_alone_are_no_compacted_log() -> None:
    stored = Slices(cut_state(state_with({b"row-%d" % number: b"v" * 40 for number in range(9)}), 60))
    assert len(CompactedLog.of_snapshot(stored, 7, stored.data)) == 0
