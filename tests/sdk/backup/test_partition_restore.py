"""The steps in which a partition is restored, at a leader that is scripted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quorumlog.sdk.backup.manifest import BackupFile, PartitionBackup, SegmentFile
from quorumlog.sdk.backup.partition_restore import PartitionRestore, StepOptions
from quorumlog.sdk.backup.segments import SegmentBuilder
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2
from quorumlog.wire.entry import parse_header
from tests.support.backed_up import stored

SIZE = len(stored(0, 5).entry)


class Leader:
    """Takes a restore in; as the cluster that its client has, it gives the runtime only."""

    runtime = SYSTEM_RUNTIME

    def __init__(self, next_offset: int | None = None) -> None:
        self.steps: list[admin_pb2.RestorePartitionRequest] = []
        self.next_offset = next_offset
        self.finished = False

    async def step(self, request: admin_pb2.RestorePartitionRequest) -> admin_pb2.RestorePartitionResponse:
        self.steps.append(request)
        if request.HasField("begin") and self.next_offset is None:
            self.next_offset = request.begin.next_offset
        if request.HasField("append"):
            self.next_offset = request.append.next_offset
        return admin_pb2.RestorePartitionResponse(next_offset=self.next_offset or 0, finished=self.finished)

    @property
    def appended(self) -> list[tuple[list[int], int]]:
        """The base offsets of each step, and where it says that the log ends then."""
        return [
            ([parse_header(entry).base_offset for entry in step.append.entries], step.append.next_offset)
            for step in self.steps
            if step.HasField("append")
        ]


class Backup:
    """A partition in a directory: segments of batches (base offset, count)."""

    def __init__(self, place: Path, *segments: list[tuple[int, int]], end: int, **more: Any) -> None:
        self.store = DirectoryStore(place)
        self.counted = 0
        made: list[SegmentFile] = []
        for batches in segments:
            builder = SegmentBuilder()
            for base, count in batches:
                builder.add(stored(base, count))
            segment, content = builder.build("t/0", 1)
            self.store.write(segment.file.name, content)
            made.append(segment)
        self.partition = replace(PartitionBackup(0, 0, end, 0, tuple(made), None, 0), **more)

    def producers(self, count: int) -> None:
        listed = admin_pb2.RestoredProducers()
        for number in range(count):
            listed.producers.add(producer_id=number + 1)
        file = BackupFile.of("t/0/producers-1.bin", listed.SerializeToString())
        self.store.write(file.name, listed.SerializeToString())
        self.partition = replace(self.partition, producers=file, producer_count=count)

    async def restore(self, leader: Leader, sizes: BackupSizes | None = None) -> None:
        def count(size: int) -> None:
            self.counted += size

        options = StepOptions(self.store, b"r" * 16, 30.0, count, sizes or BackupSizes())
        work = PartitionRestore(leader, TopicPartition("t", 0), b"i" * 16, options)  # type: ignore[arg-type]
        work._step = leader.step  # type: ignore[method-assign]
        await work.restore(self.partition)


async def test_a_restore_begins_and_ends_as_the_backup(tmp_path: Path) -> None:
    """The log may start within its first batch, and compaction may have come further."""
    backup = Backup(tmp_path, [(3, 5), (8, 5)], end=20, log_start_offset=5, compacted_offset=18)
    leader = Leader()
    await backup.restore(leader)
    begin, append, finish = leader.steps
    assert begin.begin == admin_pb2.BeginPartitionRestore(log_start_offset=3, next_offset=3, compacted_offset=18)
    assert leader.appended == [([3, 8], 20)], "what compaction has left out at the end counts as restored"
    assert append.HasField("append")
    assert finish.finish == admin_pb2.FinishPartitionRestore(log_start_offset=5, next_offset=20)


async def test_emptied_partitions_keep_their_offsets(tmp_path: Path) -> None:
    leader = Leader()
    await Backup(tmp_path, end=70, log_start_offset=70).restore(leader)
    begin, finish = leader.steps
    assert (begin.begin.log_start_offset, begin.begin.next_offset) == (70, 70)
    assert (finish.finish.log_start_offset, finish.finish.next_offset) == (70, 70)


async def test_gaps_between_segments_are_restored(tmp_path: Path) -> None:
    leader = Leader()
    await Backup(tmp_path, [(0, 5)], [(30, 5)], end=35, compacted_offset=35).restore(leader)
    assert leader.appended == [([0], 30), ([30], 35)]


@pytest.mark.parametrize(
    ("step_bytes", "sizes"), [(SIZE - 1, [1, 1, 1]), (2 * SIZE - 1, [1, 1, 1]), (2 * SIZE, [2, 1])]
)
async def test_steps_have_their_size_at_most(tmp_path: Path, step_bytes: int, sizes: list[int]) -> None:
    """Each has one batch at least, however large that is."""
    leader = Leader()
    backup = Backup(tmp_path, [(0, 5), (5, 5), (10, 5)], end=15)
    await backup.restore(leader, BackupSizes(step_bytes=step_bytes))
    assert [len(bases) for bases, _ in leader.appended] == sizes
    assert leader.appended[-1][1] == 15


@pytest.mark.parametrize(
    ("at", "appended"),
    [(5, [([5], 10), ([10], 15)]), (10, [([10], 15)]), (15, [])],
)
async def test_restores_go_on_where_they_were(tmp_path: Path, at: int, appended: list[Any]) -> None:
    """Records that exist already are counted, too, and not sent again."""
    backup = Backup(tmp_path, [(0, 5), (5, 5)], [(10, 5)], end=15)
    leader = Leader(next_offset=at)
    await backup.restore(leader)
    assert leader.appended == appended
    assert backup.counted == sum(segment.file.size_bytes for segment in backup.partition.segments)
    assert leader.steps[-1].HasField("finish")


async def test_finished_restores_send_nothing(tmp_path: Path) -> None:
    leader = Leader()
    leader.finished = True
    await Backup(tmp_path, [(0, 5)], end=5).restore(leader)
    assert len(leader.steps) == 1


async def test_short_backups_are_not_finished(tmp_path: Path) -> None:
    """A log that was added to since ends elsewhere."""
    with pytest.raises(IllegalStateError, match="came to offset 9, not to 5"):
        await Backup(tmp_path, [(0, 5)], end=5).restore(Leader(next_offset=9))


async def test_producers_are_sent_in_parts(tmp_path: Path) -> None:
    backup = Backup(tmp_path, [(0, 5)], end=5)
    backup.producers(7)
    leader = Leader()
    await backup.restore(leader, BackupSizes(step_producers=3))
    parts = [
        [each.producer_id for each in step.producers.producers] for step in leader.steps if step.HasField("producers")
    ]
    assert parts == [[1, 2, 3], [4, 5, 6], [7]]
    assert leader.steps[-1].HasField("finish"), "before the partition is served"
