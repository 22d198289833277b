"""Backups of one partition, from a leader that is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from quorumlog.sdk.backup import partition_copy
from quorumlog.sdk.backup.manifest import BackupFile, PartitionBackup, SegmentFile
from quorumlog.sdk.backup.partition_copy import CopyOptions, PartitionCopy
from quorumlog.sdk.backup.segments import SegmentBuilder
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.offset_search import FoundOffset
from quorumlog.sdk.errors import IllegalStateError, QuorumlogError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2
from tests.support.backed_up import stored

Page = admin_pb2.DescribePartitionLogResponse


def page(index: int, *producers: int, more: bool = False, end: int = 10, restoring: bool = False) -> Page:
    """One page of the description, with producers named by their ids."""
    made = Page(applied_index=index, high_watermark=end, more=more, restoring=restoring)
    for number in producers:
        made.producers.add(producer_id=number)
    return made


@pytest_asyncio.fixture
async def copy(tmp_path: Path) -> AsyncIterator[Callable[..., PartitionCopy]]:
    cluster = Cluster(
        ["nowhere:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    cluster.request_refresh = lambda: None  # type: ignore[method-assign]

    def scripted(pages: list[Page], asked: list[int], limit_s: float = 30.0) -> PartitionCopy:
        options = CopyOptions(open_store(str(tmp_path)), 1, limit_s, lambda size: None, BackupSizes())
        made = PartitionCopy(cluster, TopicPartition("t", 0), b"i" * 16, "t/0", 1000, options)

        async def ask(after: int) -> Page:
            asked.append(after)
            return pages.pop(0)

        made._ask = ask  # type: ignore[method-assign]
        return made

    yield scripted
    await cluster.close()


async def test_producers_are_of_one_index(copy: Callable[..., PartitionCopy]) -> None:
    """A client writes between two pages: the listing starts again."""
    requests: list[int] = []
    pages = [
        page(5, 1, 2, more=True),
        page(6, 3, 4),
        page(7, 1, 9, more=True),
        page(7, 11, more=True),
        page(8, 12),
        page(9, 1, 2, more=True),
        page(9, 7),
    ]
    log, producers = await copy(pages, requests)._describe(10)
    assert (log.applied_index, [each.producer_id for each in producers]) == (9, [1, 2, 7])
    assert requests == [-1, 2, -1, 9, 11, -1, 2]
    assert pages == []


async def test_constant_writes_fail_the_listing(copy: Callable[..., PartitionCopy]) -> None:
    copying = copy([], [], limit_s=2.0)
    indexes = count()

    async def ask(after: int) -> Page:
        return page(next(indexes), 1, more=True)

    copying._ask = ask  # type: ignore[method-assign]
    with pytest.raises(QuorumlogError, match="written to faster than its producers can be listed"):
        await copying._describe(10)


async def test_deposed_leaders_are_not_believed(copy: Callable[..., PartitionCopy]) -> None:
    """A description that ends before the end that was confirmed is of a leader that was replaced."""
    pages = [page(5, 1, end=9), page(6, 2, end=10)]
    log, producers = await copy(pages, [])._describe(10)
    assert (log.applied_index, [each.producer_id for each in producers]) == (6, [2])


async def test_restored_partitions_are_not_copied(copy: Callable[..., PartitionCopy]) -> None:
    with pytest.raises(IllegalStateError, match="is being restored"):
        await copy([page(5, restoring=True)], [])._describe(10)


def segment(base: int, end: int) -> SegmentFile:
    return SegmentFile(BackupFile(f"{base}-{end}", 1, "00"), base, end, 1)


def before(*segments: SegmentFile, end: int, gaps: tuple[tuple[int, int], ...] = ()) -> PartitionBackup:
    """Returns what the backup has of the partition."""
    return PartitionBackup(0, 0, end, 0, segments, None, 0, gaps)


class Log:
    """A partition as its leader describes it, and where a copy reads it from.

    Arguments:
        start, end, compacted: of the log.
        took_s: how long reading it takes.
    """

    def __init__(self, start: int, end: int, compacted: int = 0, read_compacted: int = 0, took_s: float = 0.0) -> None:
        self.description = Page(log_start_offset=start, high_watermark=end, compacted_offset=compacted)
        self.read_compacted = max(read_compacted, compacted)
        self.took_s = took_s
        self.read_from: list[int] = []
        self.was_read = False

    async def copy(
        self, copying: PartitionCopy, known: PartitionBackup | None, monkeypatch: pytest.MonkeyPatch
    ) -> PartitionBackup:
        """Copies it, with time standing still but for reading."""
        now = 100.0

        async def found(*_: object) -> dict[TopicPartition, FoundOffset]:
            return {copying._tp: FoundOffset(0, -1)}

        async def describe(end: int) -> tuple[Page, list[admin_pb2.ProducerRecord]]:
            described = Page()
            described.CopyFrom(self.description)
            if self.was_read:
                described.compacted_offset, self.was_read = self.read_compacted, False
            return described, []

        async def read(
            position: int, end: int, gaps_before: int, left_open: Mapping[int, int]
        ) -> tuple[list[SegmentFile], int]:
            nonlocal now
            now += self.took_s
            self.read_from.append(position)
            self.was_read = True
            new = [segment(position, end)] if position < end else []
            return new, self.read_compacted

        monkeypatch.setattr(partition_copy, "find_offsets", found)
        copying._runtime = replace(copying._runtime, monotonic_s=lambda: now)
        copying._describe = describe  # type: ignore[method-assign]
        copying._read = read  # type: ignore[method-assign]
        return await copying.copy(known)


async def test_backups_are_added_to(copy: Callable[..., PartitionCopy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments that end where the log starts are left out; those that it starts in stay."""
    log = Log(start=20, end=50)
    known = before(segment(0, 20), segment(20, 40), end=40, gaps=((0, 20), (5, 21)))
    made = await log.copy(copy([], []), known, monkeypatch)
    assert [(each.base_offset, each.end_offset) for each in made.segments] == [(20, 40), (40, 50)]
    assert (made.log_start_offset, made.end_offset, made.not_backed_up) == (20, 50, ((5, 21),))
    assert log.read_from == [40]


async def test_removed_records_are_noted(copy: Callable[..., PartitionCopy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention has deleted what no backup has."""
    log = Log(start=60, end=70)
    made = await log.copy(copy([], []), before(segment(0, 40), end=40), monkeypatch)
    assert (made.not_backed_up, log.read_from) == (((40, 60),), [60])
    log = Log(start=40, end=70)
    made = await log.copy(copy([], []), before(segment(0, 40), end=40), monkeypatch)
    assert (made.not_backed_up, log.read_from) == ((), [40])


@pytest.mark.parametrize(("compacted", "read_from"), [(40, 40), (41, 0)])
async def test_compaction_beyond_the_backup_copies_again(
    copy: Callable[..., PartitionCopy], monkeypatch: pytest.MonkeyPatch, compacted: int, read_from: int
) -> None:
    """A record of the backup may be gone together with the tombstone that deleted it."""
    log = Log(start=0, end=50, compacted=compacted)
    made = await log.copy(copy([], []), before(segment(0, 40), end=40), monkeypatch)
    assert (log.read_from, made.compacted_offset, made.end_offset) == ([read_from], compacted, 50)


async def test_logs_behind_their_backup_are_refused(
    copy: Callable[..., PartitionCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = before(segment(0, 40), end=40)
    assert (await Log(start=0, end=40).copy(copy([], []), known, monkeypatch)).segments == known.segments
    with pytest.raises(IllegalStateError, match="ends at offset 39, the backup at 40"):
        await Log(start=0, end=39).copy(copy([], []), known, monkeypatch)


@pytest.mark.parametrize(("took_s", "attempts"), [(0.999, 1), (1.0, partition_copy.ATTEMPTS)])
async def test_slow_copies_of_compacted_logs_start_again(
    copy: Callable[..., PartitionCopy], monkeypatch: pytest.MonkeyPatch, took_s: float, attempts: int
) -> None:
    """Tombstones are kept for a second here: what was read first may have been deleted by one that is gone."""
    log = Log(start=0, end=50, compacted=10, read_compacted=30, took_s=took_s)
    copying = copy([], [])
    if attempts == 1:
        assert (await log.copy(copying, None, monkeypatch)).compacted_offset == 30
    else:
        with pytest.raises(IllegalStateError, match="is trimmed faster than it is copied"):
            await log.copy(copying, None, monkeypatch)
    assert len(log.read_from) == attempts


async def test_unfinished_segments_are_taken_up(tmp_path: Path, copy: Callable[..., PartitionCopy]) -> None:
    """Those of a backup that was broken off, as far as they follow each other and end within the log."""
    copying = copy([], [])
    store = copying._options.store
    for base, end in ((0, 10), (10, 20), (30, 40), (20, 31)):
        builder = SegmentBuilder()
        builder.add(stored(base, end - base))
        made, content = builder.build("t/0", 3)
        store.write(made.file.name, content if base != 30 else content[:-1])
    places = [(each.base_offset, each.end_offset) for each in await copying._unfinished(0, 30, ())]
    assert places == [(0, 10), (10, 20)], "the next one ends beyond the log"
    places = [(each.base_offset, each.end_offset) for each in await copying._unfinished(0, 31, ())]
    assert places == [(0, 10), (10, 20), (20, 31)]
    assert await copying._unfinished(5, 31, ()) == []
    assert await copying._unfinished(30, 50, ()) == [], "it is damaged"
