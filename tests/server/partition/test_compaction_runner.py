"""Start of compaction passes over a partition's log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from quorumlog.raft.types import EntryId
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.compaction_runner import CompactionRunner
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.storage.batch_row import BatchRow

GROUP = 7
BATCH = BatchRow(47, 0, 9, 1_000, 1)


class Begun(Exception):
    """A pass has been started."""


class Raft:
    """A replica whose disk has the batch as entry 47."""

    applied_index = 52
    durable_index = 50

    def __init__(self, anchor: int) -> None:
        self.anchor = EntryId(anchor, 1, 0)

    def entry_id(self, index: int) -> EntryId:
        assert index > self.anchor.index, "that entry is gone"
        raise Begun


def look(anchor: int) -> CompactionRunner:
    """Looks at the partition once, with a log that starts behind ``anchor``."""
    point = CompactionPoint(10, 1, 0, 0)
    partition: Any = SimpleNamespace(
        group=GROUP,
        compaction=SimpleNamespace(pending=[point], compacted_offset=0),
        raft=Raft(anchor),
        high_watermark=20,
        log_start_offset=0,
        snapshot=None,
    )
    parts: Any = SimpleNamespace(
        find_batch=lambda group, offset, wanted: BATCH, may_checkpoint=lambda group: True, start=lambda job: None
    )
    runner = CompactionRunner(
        NodeLimits(), parts, parts, {GROUP: partition}, parts, parts.start, lambda: 1 << 40, parts.start, parts.start
    )
    runner.consider(1, partition)
    runner.on_time(1, 1)
    return runner


def test_a_pass_begins_with_a_log_that_has_the_entries_of_its_batches() -> None:
    try:
        look(anchor=46)
    except Begun:
        return
    raise AssertionError("nothing was started")


def test_a_pass_waits_while_a_snapshot_takes_the_place_of_the_log() -> None:
    """A pass waits while a snapshot replaces the log: the log in memory already starts behind the snapshot, but the
    disk still has the earlier entries."""
    assert look(anchor=52).next_deadline is not None
