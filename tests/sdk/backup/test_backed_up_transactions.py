"""Backups of a partition with transactions: open ones, gaps of markers and aborted records, what is copied again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from quorumlog.sdk.backup import partition_copy
from quorumlog.sdk.backup.manifest import PartitionBackup
from quorumlog.sdk.backup.partition_copy import CopyOptions, PartitionCopy
from quorumlog.sdk.backup.segments import SegmentBuilder, batches_in
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.offset_search import FoundOffset
from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2
from quorumlog.wire.entry import Attributes, Codec, build_batch, build_cover, seal_batch
from tests.support.backed_up import stored

Page = admin_pb2.DescribePartitionLogResponse


def entry(base_offset: int, count: int) -> bytes:
    return stored(base_offset, count).entry


def of_producer(base_offset: int, producer_id: int) -> bytes:
    """A record in a transaction."""
    batch = build_batch(
        b"x" * 16, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=2,
        producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=Attributes.TRANSACTIONAL,
    )  # fmt: skip
    return seal_batch(batch, group=1000, term=3, index=9, previous_hash=7, base_offset=base_offset, append_time_ms=2)


def producer(number: int, *offsets: int) -> admin_pb2.ProducerRecord:
    """A producer with batches of one record each."""
    made = admin_pb2.ProducerRecord(producer_id=number, records=len(offsets))
    for place, offset in enumerate(offsets):
        made.batches.add(base_sequence=place, record_count=1, base_offset=offset)
    return made


class Leader:
    """A partition's leader.

    Arguments:
        answers: entries, and the offset below which some are missing, of each fetch; None: the log was trimmed.
        compacted: how far the log is compacted in each description.
        open: first offsets of open transactions, by producer id.
    """

    def __init__(
        self,
        high_watermark: int,
        stable: int | None,
        *answers: tuple[Sequence[bytes], int] | None,
        compacted: Sequence[int] = (),
        open: Mapping[int, int] | None = None,
    ) -> None:
        self.log = Page(high_watermark=high_watermark, last_stable_offset=stable)
        for producer_id, first_offset in (open or {}).items():
            self.log.open.add(producer_id=producer_id, first_offset=first_offset)
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
            answer = self.answers.pop(0)
            if answer is None:
                raise partition_copy._MovedOnError
            entries, gaps = answer
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


def copy_of(cluster: Cluster, folder: Path, delete_retention_ms: int = 1 << 40, sequence: int = 1) -> PartitionCopy:
    options = CopyOptions(open_store(str(folder)), sequence, 30.0, lambda size: None, BackupSizes())
    return PartitionCopy(cluster, TopicPartition("t", 0), b"i" * 16, "t/0", delete_retention_ms, options)


async def copied(
    leader: Leader,
    cluster: Cluster,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: PartitionBackup | None = None,
    sequence: int = 1,
) -> PartitionBackup:
    return await leader.put_into(copy_of(cluster, folder, sequence=sequence), monkeypatch).copy(before)


def offsets(made: PartitionBackup, folder: Path) -> list[int]:
    """Returns the first offsets of the batches in a backup."""
    store = open_store(str(folder))
    return [
        batch.header.base_offset
        for each in made.segments
        for batch in batches_in(each.file.read(store), each.file.name)
    ]


async def test_open_transactions_are_left_out(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producer 7 has a committed batch, and two in its open transaction. What others have written behind is copied."""
    batches = [of_producer(0, 7), entry(1, 4), of_producer(5, 7), entry(6, 2), of_producer(8, 7), entry(9, 1)]
    leader = Leader(10, 5, (batches, 0), (batches[2:], 0), open={7: 5})
    leader.producers = [producer(6, *range(6)), producer(7, 0, 5, 8)]
    made = await copied(leader, cluster, tmp_path, monkeypatch)
    assert (made.end_offset, made.stable_offset, made.next_offset) == (10, 5, 5)
    assert offsets(made, tmp_path) == [0, 1, 6, 9]
    assert [(each.base_offset, each.end_offset) for each in made.segments] == [(0, 5), (6, 10)]
    assert made.compacted_offset == 9
    assert made.producers is not None
    content = made.producers.read(open_store(str(tmp_path)))
    kept = admin_pb2.RestoredProducers.FromString(content).producers
    assert list(kept) == [producer(6, *range(6))], "all batches are in the backup, however many are behind"


async def test_batches_outside_of_the_transaction_are_kept(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was committed in a former transaction of the same producer is before the open one."""
    batches = [of_producer(5, 8), of_producer(6, 7), of_producer(7, 8)]
    leader = Leader(8, 5, ([], 5), (batches, 0), open={8: 5, 7: 7})
    made = await copied(leader, cluster, tmp_path, monkeypatch)
    assert offsets(made, tmp_path) == [6]


async def test_what_was_open_is_copied_again(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next backup it is committed, and another transaction is open."""
    batches = [entry(0, 5), of_producer(5, 7), entry(6, 2)]
    leader = Leader(8, 5, (batches, 0), (batches[1:], 0), open={7: 5})
    first = await copied(leader, cluster, tmp_path, monkeypatch)
    assert offsets(first, tmp_path) == [0, 6]
    batches = [of_producer(5, 7), entry(6, 2), entry(9, 1), of_producer(10, 8)]
    leader = Leader(11, 10, (batches, 9), (batches[3:], 0), open={8: 10})
    made = await copied(leader, cluster, tmp_path, monkeypatch, first, sequence=2)
    assert (made.end_offset, made.next_offset) == (11, 10)
    assert offsets(made, tmp_path) == [0, 5, 6, 9]
    assert made.segments[0] == first.segments[0]


async def test_unfinished_segments_end_at_the_stable_offset(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an interrupted backup wrote reaches behind it: the next backup could not keep it."""
    builder = SegmentBuilder()
    builder.add(stored(0, 8))
    segment, content = builder.build("t/0", 1)
    open_store(str(tmp_path)).write(segment.file.name, content)
    batches = [entry(0, 5), entry(5, 3), of_producer(8, 7)]
    leader = Leader(9, 5, (batches, 0), (batches[1:], 0), open={7: 5})
    made = await copied(leader, cluster, tmp_path, monkeypatch, sequence=2)
    assert [(each.base_offset, each.end_offset) for each in made.segments] == [(0, 5), (5, 8)]


async def test_copies_that_start_again_keep_their_cut(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is trimmed during the copy. It has grown since the cut, and the transaction has ended."""
    batches = [of_producer(5, 7), entry(6, 2), entry(8, 2)]
    leader = Leader(8, 5, None, (batches, 0), open={7: 5})
    copying = leader.put_into(copy_of(cluster, tmp_path), monkeypatch)
    cut = await copying.cut()
    leader.log = Page(log_start_offset=5, high_watermark=10)
    made = await copying.copy(None, cut)
    assert (made.log_start_offset, made.end_offset, offsets(made, tmp_path)) == (5, 8, [6])


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
