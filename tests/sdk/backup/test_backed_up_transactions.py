"""Backups of a partition with transactions: the end, gaps of markers and aborted records, producers as of the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from quorumlog.sdk.backup import partition_copy
from quorumlog.sdk.backup.manifest import PartitionBackup
from quorumlog.sdk.backup.partition_copy import CopyOptions, PartitionCopy
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.offset_search import FoundOffset
from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2
from quorumlog.wire.entry import build_cover
from tests.support.backed_up import stored

Page = admin_pb2.DescribePartitionLogResponse


def entry(base_offset: int, count: int) -> bytes:
    return stored(base_offset, count).entry


class Leader:
    """A partition's leader.

    Arguments:
        answers: entries, and the offset below which some are missing, of each fetch.
        compacted: how far the log is compacted in each description.
    """

    def __init__(
        self,
        high_watermark: int,
        stable: int | None,
        *answers: tuple[Sequence[bytes], int],
        compacted: Sequence[int] = (),
    ) -> None:
        self.log = Page(high_watermark=high_watermark, last_stable_offset=stable)
        self.answers = list(answers)
        self.compacted = list(compacted)
        self.producers: list[admin_pb2.ProducerRecord] = []

    def put_into(self, copying: PartitionCopy, monkeypatch: pytest.MonkeyPatch) -> PartitionCopy:
        async def found(*_: object) -> dict[TopicPartition, FoundOffset]:
            return {copying._tp: FoundOffset(0, -1)}

        async def describe(end: int) -> tuple[Page, list[admin_pb2.ProducerRecord]]:
            if self.compacted:
                self.log.compacted_offset = self.compacted.pop(0)
            described = Page()
            described.CopyFrom(self.log)
            return described, self.producers

        async def fetch(position: int) -> Any:
            entries, gaps = self.answers.pop(0)
            return SimpleNamespace(told=SimpleNamespace(compacted_offset=gaps), entries=list(entries))

        monkeypatch.setattr(partition_copy, "find_offsets", found)
        copying._describe = describe  # type: ignore[method-assign]
        copying._fetch = fetch  # type: ignore[method-assign]
        return copying


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(
        ["nowhere:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    yield made
    await made.close()


def copy_of(cluster: Cluster, folder: Path, delete_retention_ms: int = 1 << 40) -> PartitionCopy:
    options = CopyOptions(open_store(str(folder)), 1, 30.0, lambda size: None, BackupSizes())
    return PartitionCopy(cluster, TopicPartition("t", 0), b"i" * 16, "t/0", delete_retention_ms, options)


async def copied(
    leader: Leader,
    cluster: Cluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: PartitionBackup | None = None,
) -> PartitionBackup:
    return await leader.put_into(copy_of(cluster, folder), monkeypatch).copy(before)


async def test_backups_end_at_the_last_stable_offset(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(20, 5, ([entry(0, 5)], 0))
    made = await copied(leader, cluster, tmp_path, monkeypatch)
    assert (made.end_offset, made.compacted_offset) == (5, 0)
    assert [(each.base_offset, each.end_offset) for each in made.segments] == [(0, 5)]


async def test_covers_become_gaps(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader sends a cover at the end only, and leaves offsets out between batches."""
    leader = Leader(10, None, ([entry(0, 2), entry(4, 2)], 6), ([build_cover(1, 6, 9)], 0))
    made = await copied(leader, cluster, tmp_path, monkeypatch)
    assert (made.end_offset, made.compacted_offset) == (10, 10)
    assert [(each.base_offset, each.end_offset, each.batches) for each in made.segments] == [(0, 6, 2)]


async def test_later_backups_keep_earlier_gaps(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(6, None, ([entry(0, 2), entry(4, 2)], 6))
    first = await copied(leader, cluster, tmp_path, monkeypatch)
    made = await copied(Leader(9, None, ([entry(6, 3)], 0)), cluster, tmp_path, monkeypatch, first)
    assert (made.end_offset, made.compacted_offset, len(made.segments)) == (9, 6, 2)


async def test_missing_offsets_without_a_reason_are_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(IllegalStateError, match="has no records from 2 on"):
        await copied(Leader(6, None, ([entry(0, 2), entry(4, 2)], 2)), cluster, tmp_path, monkeypatch)


@pytest.mark.parametrize("compacted", [0, 6])
async def test_gaps_of_transactions_are_not_compaction(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: int
) -> None:
    """A slow copy starts again only if the log was compacted in the meantime."""
    leader = Leader(6, None, *[([entry(0, 2), entry(4, 2)], 6)] * 2, compacted=[0, compacted, 6])
    made = await leader.put_into(copy_of(cluster, tmp_path, 0), monkeypatch).copy(None)
    assert made.end_offset == 6
    assert len(leader.answers) == (0 if compacted else 1)


def producer(number: int, *offsets: int, replayable: bool = False) -> admin_pb2.ProducerRecord:
    """A producer with batches of two records each."""
    made = admin_pb2.ProducerRecord(producer_id=number, records=2 * len(offsets), replayable=replayable)
    for place, offset in enumerate(offsets):
        made.batches.add(base_sequence=2 * place, record_count=2, base_offset=offset)
    if replayable:
        made.digests = b"".join(bytes((place,)) * 12 for place in range(len(offsets)))
    return made


def test_producers_are_as_of_the_end() -> None:
    before, after = producer(1, 0, 2), producer(4, 6, 8)
    across, named = producer(2, 4, 6, 8), producer(3, 2, 6, replayable=True)
    assert partition_copy._as_of(6, [before, across, named, after]) == [
        before,
        producer(2, 4),
        producer(3, 2, replayable=True),
    ]
    assert partition_copy._as_of(10, [across, after]) == [across, after]
