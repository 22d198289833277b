"""Findings of a verification in a backup, to the offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from quorumlog.sdk.backup.manifest import (
    MANIFEST,
    BackupFile,
    CommittedBackup,
    GroupBackup,
    Manifest,
    PartitionBackup,
    SegmentFile,
    TopicBackup,
)
from quorumlog.sdk.backup.segments import SegmentBuilder
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.sdk.backup.verification import BackupVerification, VerificationReport
from quorumlog.v1 import admin_pb2
from tests.support.backed_up import stored

FOLDER = "topics/t.00/0"


class Backup:
    """A backup of one partition whose segments have these batches: (base offset, count)."""

    def __init__(self, place: Path, *segments: Iterable[tuple[int, int]], start: int = 0, end: int) -> None:
        self.store = DirectoryStore(place)
        self.progress: list[int] = []
        made: list[SegmentFile] = []
        for batches in segments:
            builder = SegmentBuilder()
            for base, count in batches:
                builder.add(stored(base, count))
            segment, content = builder.build(FOLDER, 1)
            self.store.write(segment.file.name, content)
            made.append(segment)
        self.partition = PartitionBackup(0, start, end, 0, tuple(made), None, 0)
        self.committed: int | None = None

    def producers(self, *base_offsets: int, count: int | None = None) -> None:
        """One producer whose batches start there."""
        listed = admin_pb2.RestoredProducers()
        record = listed.producers.add(producer_id=7)
        for offset in base_offsets:
            record.batches.add(base_offset=offset)
        file = BackupFile.of(f"{FOLDER}/producers-1.bin", listed.SerializeToString())
        self.store.write(file.name, listed.SerializeToString())
        self.partition = replace(self.partition, producers=file, producer_count=1 if count is None else count)

    def verify(self) -> VerificationReport:
        groups = ()
        if self.committed is not None:
            groups = (GroupBackup("g", (CommittedBackup("t", 0, self.committed, -1, ""),)),)
        manifest = Manifest(1, "c", 2, 5, (TopicBackup("t", "00", 3, {}, (self.partition,)),), groups)
        self.store.write(MANIFEST, manifest.encode())
        return BackupVerification(self.store, "here", self.progress.append).verify()


def test_whole_backups_are_counted(tmp_path: Path) -> None:
    backup = Backup(tmp_path, [(0, 5), (5, 5)], [(10, 3)], end=13)
    backup.producers(5, 12)
    backup.committed = 13
    report = backup.verify()
    assert report.problems == ()
    assert (report.files, report.batches, report.records) == (3, 3, 13)
    sizes = [segment.file.size_bytes for segment in backup.partition.segments]
    assert report.size_bytes == sum(sizes)
    assert backup.progress == [sizes[0], sum(sizes)]


@pytest.mark.parametrize(("compacted", "found"), [(0, True), (5, True), (6, False)])
def test_gaps_are_for_compaction_only(tmp_path: Path, compacted: int, found: bool) -> None:
    """Below the compacted offset records may be missing."""
    backup = Backup(tmp_path, [(0, 5)], [(7, 3)], end=10)
    backup.partition = replace(backup.partition, compacted_offset=compacted)
    problems = backup.verify().problems
    assert [problem.partition(" before")[0] for problem in problems] == ["t-0: offsets 5 to 6 are missing"] * found


@pytest.mark.parametrize(("compacted", "found"), [(0, True), (10, True), (11, False)])
def test_ends_are_for_compaction_only(tmp_path: Path, compacted: int, found: bool) -> None:
    backup = Backup(tmp_path, [(0, 10)], end=12)
    backup.partition = replace(backup.partition, compacted_offset=compacted)
    assert backup.verify().problems == ("t-0: offsets 10 to 11 are missing at the end",) * found


def test_repeated_offsets_are_found(tmp_path: Path) -> None:
    assert "offset 4 comes again" in Backup(tmp_path, [(0, 5)], [(4, 6)], end=10).verify().problems[0]


def test_a_log_may_start_within_a_batch(tmp_path: Path) -> None:
    assert Backup(tmp_path, [(0, 10)], start=4, end=10).verify().problems == ()
    (problem,) = Backup(tmp_path / "later", [(5, 5)], start=4, end=10).verify().problems
    assert problem.startswith("t-0: offsets 4 to 4 are missing before")


@pytest.mark.parametrize(("offset", "found"), [(9, False), (10, True), (11, True)])
def test_producers_end_within_the_backup(tmp_path: Path, offset: int, found: bool) -> None:
    backup = Backup(tmp_path, [(0, 10)], end=10)
    backup.producers(3, offset)
    assert backup.verify().problems == ("t-0: producer 7 has written beyond the end of the backup",) * found


def test_producers_are_counted(tmp_path: Path) -> None:
    backup = Backup(tmp_path, [(0, 10)], end=10)
    backup.producers(3, count=2)
    assert "has 1 producers, not 2" in backup.verify().problems[0]


@pytest.mark.parametrize(("offset", "found"), [(-1, True), (0, False), (10, False), (11, True)])
def test_committed_offsets_are_within_the_backup(tmp_path: Path, offset: int, found: bool) -> None:
    backup = Backup(tmp_path, [(0, 10)], end=10)
    backup.committed = offset
    assert len(backup.verify().problems) == found


def test_batches_of_a_segment_are_counted(tmp_path: Path) -> None:
    backup = Backup(tmp_path, [(0, 5), (5, 5)], end=10)
    (segment,) = backup.partition.segments
    for wrong in (replace(segment, batches=3), replace(segment, end_offset=11)):
        backup.partition = replace(backup.partition, segments=(wrong,))
        assert "has 2 batches up to 10" in backup.verify().problems[0]
