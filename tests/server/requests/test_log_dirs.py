"""Pages of a log directory description: in order, and each page at a cost of its own."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests import log_dirs
from quorumlog.server.requests.log_dirs import LogDirRequests
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1.admin_pb2 import DescribeLogDirRequest, DescribeLogDirResponse, PartitionName

Place = tuple[str, int]
PAGE = 10


class Log(Partition):
    """A log with an identity; counts the reads of it."""

    looked_at = 0

    def __init__(self, topic: str, number: int, topic_id: bytes) -> None:
        self._identity = PartitionId(topic_id, topic, number)

    @property
    def identity(self) -> PartitionId:
        type(self).looked_at += 1
        return self._identity

    @identity.setter
    def identity(self, value: PartitionId) -> None:
        self._identity = value

    @property
    def high_watermark(self) -> int:
        return 7

    @property
    def log_end_offset(self) -> int:
        return 5


class Disk:
    """A node with logs, and its descriptions of them."""

    def __init__(self, places: Iterable[Place]) -> None:
        nothing: Any = None
        self.replicas = Replicas(1, "d", nothing, nothing, nothing, nothing)
        self.groups = 100
        for topic, number in places:
            self.add(topic, number)
        Log.looked_at = 0
        self.replies = Replies()
        self.service = LogDirRequests(
            "/data",
            cast(Any, SimpleNamespace(last=SimpleNamespace(used_bytes=1, free_bytes=2))),
            self.replicas,
            cast(Any, SimpleNamespace(size_of=lambda log: log.high_watermark)),
            self.replies,
        )

    def add(self, topic: str, number: int, topic_id: bytes = bytes(16)) -> int:
        """Adds a log, and returns its Raft group."""
        self.groups += 1
        self.replicas._add(self.groups, Log(topic, number, topic_id))
        return self.groups

    def page(self, named: Iterable[Place], after: Place | None) -> DescribeLogDirResponse:
        request = DescribeLogDirRequest(
            partitions=[PartitionName(topic=topic, partition=number) for topic, number in named],
            after=None if after is None else PartitionName(topic=after[0], partition=after[1]),
        )
        self.service.describe(StepTime(0, 0), ClientRequest(1, request), request)
        (reply,) = self.replies.take_gathered()
        assert isinstance(reply.message, DescribeLogDirResponse)
        return reply.message

    def pages(self, named: Iterable[Place] = ()) -> list[list[Place]]:
        """Returns all pages, requested one after the other."""
        pages: list[list[Place]] = []
        after = None
        while True:
            page = self.page(named, after)
            pages.append([(each.topic, each.partition) for each in page.replicas])
            if not page.more:
                return pages
            after = pages[-1][-1]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "REPLICAS_PER_PAGE", PAGE)


def flattened(pages: list[list[Place]]) -> list[Place]:
    return [place for page in pages for place in page]


def test_all_replicas_are_told_of_once_in_order_of_topics_and_numbers() -> None:
    places = [(topic, number) for number in (11, 2, 0) for topic in "dbca"]
    pages = Disk(places).pages()
    assert flattened(pages) == sorted(places)
    assert [len(page) for page in pages] == [PAGE, 2]
    assert Disk([]).pages() == [[]]


def test_a_whole_page_is_the_last_one_where_nothing_is_behind_it() -> None:
    assert [len(page) for page in Disk([("a", number) for number in range(2 * PAGE)]).pages()] == [PAGE, PAGE]


def test_named_partitions_are_told_of_where_they_are_here() -> None:
    disk = Disk([(topic, number) for number in range(12) for topic in "ab"])
    requests = [("b", number) for number in reversed(range(0, 30, 2))] + [("c", 0), ("a", 1), ("a", 1), ("", 0)]
    assert flattened(disk.pages(requests)) == [("a", 1), *(("b", number) for number in range(0, 12, 2))]
    many = [("b", number) for number in range(12)]
    assert [len(page) for page in disk.pages(many)] == [PAGE, 2]


def test_a_topic_that_was_made_anew_is_told_of_beside_what_is_left_of_the_former() -> None:
    disk = Disk([("a", 0), ("b", 0), ("c", 0)])
    newer = disk.add("b", 0, b"another-".ljust(16))
    assert disk.pages() == [[("a", 0), ("b", 0), ("b", 0), ("c", 0)]]
    assert disk.pages([("b", 0)]) == [[("b", 0), ("b", 0)]]
    disk.replicas.remove(newer)
    assert disk.pages() == [[("a", 0), ("b", 0), ("c", 0)]]


@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
def test_all_pages_together_look_at_each_replica_a_few_times_however_many_there_are(named: bool) -> None:
    places = [("t", number) for number in range(50 * PAGE)]
    disk = Disk(places)
    assert flattened(disk.pages(places if named else ())) == places
    assert Log.looked_at <= 4 * len(places)
