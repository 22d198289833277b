"""Points come with the log, progress is the replica's own; two that should be equal and are not end the node."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import EntryId, Snapshot, SnapshotData
from quorumlog.server.partition.compaction_state import CompactionPoint, CompactionState
from quorumlog.storage.interface import DamageError
from quorumlog.v1.partition_log_pb2 import CompactLog
from tests.support.partition_rig import Rig

WHERE = "orders-0"


def command(end: int, reached: int = 0, content_hash: bytes = b"") -> CompactLog:
    return CompactLog(
        end_offset=end, timestamp_ms=end, delete_retention_ms=5, compacted_offset=reached, content_hash=content_hash
    )


def applied(state: CompactionState, *commands: CompactLog, next_offset: int = 1_000) -> CompactionState:
    for each in commands:
        state.apply(each, 2, next_offset, WHERE)
    return state


def test_points_wait_in_order_and_survive_in_the_row() -> None:
    state = applied(CompactionState(), command(10), command(20))
    assert state.pending == [CompactionPoint(10, 10, 5, 2), CompactionPoint(20, 20, 5, 2)]
    again = CompactionState(state.row())
    assert again.pending == state.pending
    again.reached(10, b"ten", WHERE)
    third = CompactionState(again.row())
    assert (third.pending, third.compacted_offset, third.content_hash) == (state.pending[1:], 10, b"ten")
    assert third.last_end_offset == 20


@pytest.mark.parametrize("end", [5, 10, 30, 31])
def test_a_point_that_does_not_follow_or_leaves_no_batch_above_it_changes_nothing(end: int) -> None:
    state = applied(CompactionState(), command(10))
    before = state.row()
    applied(state, command(end), next_offset=30)
    assert state.row() == before


def test_another_content_than_the_leaders_is_damage() -> None:
    state = applied(CompactionState(), command(10))
    state.reached(10, b"ours", WHERE)
    applied(state, command(20, 10, b"ours"))
    with pytest.raises(DamageError, match="compacted log of orders-0 below offset 10 differs from the leader's"):
        applied(state, command(30, 10, b"theirs"))


def test_what_the_leader_has_said_before_is_compared_when_this_replica_gets_there_also_after_a_restart() -> None:
    state = CompactionState(applied(CompactionState(), command(10), command(20, 10, b"theirs")).row())
    with pytest.raises(DamageError):
        state.reached(10, b"ours", WHERE)
    other = CompactionState(applied(CompactionState(), command(10), command(20, 10, b"theirs")).row())
    other.reached(20, b"ours", WHERE)
    assert other.pending == []


def test_an_unknown_hash_is_compared_with_nothing() -> None:
    state = applied(CompactionState(), command(10))
    state.reached(10, b"", WHERE)
    applied(state, command(20, 10, b"theirs"))


def test_a_log_without_compacted_batches_reads_no_slices() -> None:
    """A point waits, and the slices of the last known snapshot are gone: a newer one is durable already."""
    rig = Rig()
    rig.partition.compaction = applied(CompactionState(), command(10))
    rig.partition.snapshot = Snapshot(EntryId(1, 1, 0), rig.partition.raft.configuration, SnapshotData(5, 3, 100, 0))
    assert rig.partition.compacted_log is None
