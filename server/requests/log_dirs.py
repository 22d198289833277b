"""Sizes of the replicas on this node's disk, page by page, because each size costs a search or two."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.storage.transaction import Space
from quorumlog.v1 import errors_pb2
from quorumlog.v1.admin_pb2 import DescribeLogDirRequest, DescribeLogDirResponse, LogDirReplica

#: Maximum number of replicas in one answer.
REPLICAS_PER_PAGE = 1_000
#: Sorts before every partition.
_BEGIN = ("", -1)


class KnownSpace(Protocol):
    """The disk usage as of a recent check."""

    @property
    def last(self) -> Space:
        """The result of the last check."""


class LogDirRequests:
    """Describes the data directory of this node.

    Arguments:
        path: path of the data directory.
    """

    def __init__(self, path: str, space: KnownSpace, replicas: Replicas, sizes: LogSizes, replies: Replies) -> None:
        self._path = path
        self._space = space
        self._replicas = replicas
        self._sizes = sizes
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(DescribeLogDirRequest, self.describe)

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeLogDirRequest) -> None:
        """Describes the disk, and one page of the replicas. Witnesses and coordinators have no log of records, so they
        are not listed."""
        space = self._space.last
        response = DescribeLogDirResponse(
            path=self._path, total_bytes=space.used_bytes + space.free_bytes, usable_bytes=space.free_bytes
        )
        if not request.without_replicas:
            partitions = list(islice(self._meant(request), REPLICAS_PER_PAGE + 1))
            response.more = len(partitions) > REPLICAS_PER_PAGE
            response.replicas.extend(self._shown(partition) for partition in partitions[:REPLICAS_PER_PAGE])
        self._replies.reply(asked.request_id, response)

    def _meant(self, request: DescribeLogDirRequest) -> Iterator[Partition]:
        """Yields the replicas of this page and the pages after it, in order.

        It skips directly to the page's start: otherwise all pages of a large disk would take time quadratic in its
        replicas.
        """
        after = (request.after.topic, request.after.partition) if request.HasField("after") else _BEGIN
        if not request.partitions:
            yield from self._replicas.logs_behind(*after)
            return
        named = sorted({(each.topic, each.partition) for each in request.partitions})
        for topic, number in named[bisect_right(named, after) :]:
            yield from self._replicas.logs_of(topic, number)

    def _shown(self, partition: Partition) -> LogDirReplica:
        return LogDirReplica(
            topic=partition.identity.topic,
            partition=partition.identity.number,
            size_bytes=self._sizes.size_of(partition),
            offset_lag=max(0, partition.high_watermark - partition.log_end_offset),
        )


def failed_log_dir(request: DescribeLogDirRequest, problem: errors_pb2.Error) -> DescribeLogDirResponse:
    """Returns the response to a request that failed."""
    return DescribeLogDirResponse(error=problem)
