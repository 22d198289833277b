"""Compaction and retention of logs with transactions: what they wait for, and what they leave out."""

from __future__ import annotations

from typing import Any, cast

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.aborted_ranges import AbortedRange
from quorumlog.server.partition.compaction_proposals import CompactionProposals
from quorumlog.server.partition.compaction_runner import _CompactionRun, _Section
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.server.partition.retention import LogRetention
from quorumlog.server.partition.time_lookup import find_latest
from quorumlog.server.partition.transaction_steps import open_transaction
from quorumlog.v1.partition_log_pb2 import CompactLog, PartitionCommand
from quorumlog.wire.entry import parse_header
from quorumlog.wire.kafka.control import LogPlace
from tests.server.requests.test_isolation import TransactionalRig
from tests.support.partition_rig import NOW_MS

REST = cast(Any, None)


def made() -> TransactionalRig:
    """0-1 plain, 2-3 aborted, 4-5 committed, 6 commits, 7-8 aborted, 9-10 plain, 11 aborts, 12-13 open, 14-15 plain."""
    rig = TransactionalRig()
    rig.plain()
    rig.write(1)
    rig.write(2)
    rig.end(2, commit=True)
    rig.write(1)
    rig.plain()
    rig.end(1, commit=False)
    rig.write(3)
    rig.plain()
    return rig


def proposed(rig: TransactionalRig) -> int | None:
    """Returns the end of the compaction point that a leader would propose."""
    proposals = CompactionProposals(0, NodeLimits(), 1, REST, cast(Any, rig.log), {})
    return proposals._end(NOW_MS, rig.partition)


def kept(rig: TransactionalRig, end: int) -> list[int]:
    """Returns the base offsets of the batches that a pass up to an offset takes."""
    indexes = [index for index, entry in rig.log.log.items() if entry.kind.name == "BATCH"]
    last = next(index for index in indexes if parse_header(rig.log.log[index].data).last_offset == end - 1)
    section = _Section([CompactionPoint(end, NOW_MS, 1, 0)], rig.raft.entry_id(last), known=True)
    run = _CompactionRun(rig.partition, section, REST, cast(Any, rig.log), NodeLimits(), 0)
    return [parse_header(entry).base_offset for entry in run._dirty()]


def compact(rig: TransactionalRig, end: int) -> None:
    """Commits a compaction point."""
    command = CompactLog(end_offset=end, timestamp_ms=NOW_MS, delete_retention_ms=1)
    assert rig.partition.propose_command(3, PartitionCommand(compact_log=command))
    rig.settle()


def ranges(rig: TransactionalRig) -> list[AbortedRange]:
    """Returns the aborted transactions that are remembered."""
    assert rig.partition.transactions is not None
    return [*rig.partition.transactions.aborted.between(0, 1 << 40)]


def test_points_end_before_open_transactions() -> None:
    """No point covers what a transaction may still abort; once it has ended, the next point does."""
    rig = made()
    assert rig.partition.last_stable_offset == 12 and proposed(rig) == 11
    rig.end(3, commit=True)
    assert proposed(rig) == 16
    alone = TransactionalRig()
    alone.write(1)
    alone.plain()
    assert proposed(alone) is None


def test_passes_leave_out_aborted_batches_and_markers() -> None:
    """Only committed records are compacted, whatever the transactions that ended behind the point."""
    rig = made()
    assert kept(rig, 12) == [0, 4, 9]
    assert kept(rig, 9) == [0, 4], "its marker is behind the point"


def test_passes_use_what_was_known_when_they_began() -> None:
    """A pass is not disturbed by ranges that are forgotten while it runs."""
    rig = made()
    section = _Section([CompactionPoint(12, NOW_MS, 1, 0)], rig.raft.entry_id(rig.raft.applied_index), known=True)
    run = _CompactionRun(rig.partition, section, REST, cast(Any, rig.log), NodeLimits(), 0)
    rig.trim(12)
    assert ranges(rig) == []
    assert [parse_header(entry).base_offset for entry in run._dirty()][:3] == [0, 4, 9]


def test_ranges_are_forgotten_with_their_batches() -> None:
    """Ranges go when the log start has passed their markers, or the replica's own compaction has."""
    rig = made()
    assert ranges(rig) == [AbortedRange(1, 2, 11)]
    rig.trim(11)
    assert ranges(rig) == [AbortedRange(1, 2, 11)]
    rig.trim(12)
    assert ranges(rig) == []
    rig = made()
    compact(rig, 9)
    rig.partition.compacted(9, b"", None)
    assert ranges(rig) == [AbortedRange(1, 2, 11)], "a batch of it is behind the point"
    compact(rig, 12)
    rig.partition.compacted(12, b"", None)
    assert ranges(rig) == []


def test_pending_points_keep_ranges() -> None:
    """A replica that is late with its compaction leaves out what the others have left out, although the log start has
    passed it in the meantime: otherwise their content would differ."""
    rig = made()
    compact(rig, 12)
    rig.trim(12)
    assert ranges(rig) == [AbortedRange(1, 2, 11)]
    assert kept(rig, 12) == [0, 4, 9]
    rig.partition.compacted(12, b"", None)
    assert ranges(rig) == []


class Compacted:
    """A compacted log of one batch of two records."""

    end_offset = 2

    def __init__(self, batch: bytes) -> None:
        self._batch = batch

    def first_reaching(self, timestamp_ms: int) -> int | None:
        return 0 if timestamp_ms <= NOW_MS else None

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        return [self._batch] if offset < self.end_offset else []


def test_the_latest_record_may_be_compacted() -> None:
    """The latest record is in the compacted log: the batch after it was aborted, and only markers follow."""
    rig = TransactionalRig()
    rig.plain()
    rig.write(1, 2, NOW_MS + 90)
    rig._origins[2] = LogPlace(1, 1)
    assert open_transaction(3, rig.partition, 2, 0, 0, rig._origins[2]) is None
    rig.end(1, commit=False)
    rig.end(2, commit=False)
    compact(rig, 5)
    rig.partition.compacted(5, b"", cast(Any, Compacted(rig.partition.read(0, 1)[0])))
    found = find_latest(rig.partition, cast(Any, rig.log))
    assert found is not None and found.header is not None and found.offset == found.header.last_offset == 1
    rig.partition.compacted(5, b"", None)
    assert find_latest(rig.partition, cast(Any, rig.log)) is None


def test_retention_stops_at_open_transactions() -> None:
    """Neither size nor age removes records of an open transaction, or what follows."""
    rig = made()
    retention = LogRetention(REST, cast(Any, rig.log), {})
    for configs in ({"retention.bytes": "0"}, {"retention.ms": "0"}):
        rig.partition.configure(configs)
        assert retention._log_start(NOW_MS + 1_000_000, rig.partition) == 12
    rig.end(3, commit=False)
    assert retention._log_start(NOW_MS + 1_000_000, rig.partition) == rig.partition.high_watermark == 17
