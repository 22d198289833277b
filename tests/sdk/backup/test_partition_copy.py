"""What a backup takes of one partition, from a leader that is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from quorumlog.sdk.backup.partition_copy import CopyOptions, PartitionCopy
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import IllegalStateError, RequestTimedOutError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2

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
    asked: list[int] = []
    pages = [
        page(5, 1, 2, more=True), page(6, 3, 4),
        page(7, 1, 9, more=True), page(7, 11, more=True), page(8, 12),
        page(9, 1, 2, more=True), page(9, 7),
    ]  # fmt: skip
    log, producers = await copy(pages, asked)._describe(10)
    assert (log.applied_index, [each.producer_id for each in producers]) == (9, [1, 2, 7])
    assert asked == [-1, 2, -1, 9, 11, -1, 2]
    assert pages == []


async def test_constant_writes_fail_the_listing(copy: Callable[..., PartitionCopy]) -> None:
    pages: Any = [page(index, index, more=True) for index in range(100_000)]
    with pytest.raises(RequestTimedOutError, match="written to faster than its producers can be listed"):
        await copy(pages, [], limit_s=0.3)._describe(10)


async def test_deposed_leaders_are_not_believed(copy: Callable[..., PartitionCopy]) -> None:
    """A description that ends before the end that was confirmed is of a leader that was replaced."""
    pages = [page(5, 1, end=9), page(6, 2, end=10)]
    log, producers = await copy(pages, [])._describe(10)
    assert (log.applied_index, [each.producer_id for each in producers]) == (6, [2])


async def test_restored_partitions_are_not_copied(copy: Callable[..., PartitionCopy]) -> None:
    with pytest.raises(IllegalStateError, match="is being restored"):
        await copy([page(5, restoring=True)], [])._describe(10)
