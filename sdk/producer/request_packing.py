"""Which batches share a produce request: as many as every limit allows, and each alone where a node takes less.

What a node takes is a setting of its operator. A client does not know it, and need not: a node that refuses several
batches together has refused their sum, and says so at once. Each is then sent alone, and only what is refused alone is
too large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.errors import QuorumlogError, UnknownServerError
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: What nodes take in one request, unless their operators say otherwise (``max_request_bytes``).
NODE_REQUEST_BYTES = 32 << 20
#: Partitions that a node lets one request name.
MAX_BATCHES = 10_000
#: At most so much is in a request beside its batches, and beside each batch's bytes: ids, numbers, lengths.
_REQUEST_BYTES = 32
_PLACE_BYTES = 40


def request_bytes(batches: Iterable[ProducerBatch]) -> int:
    """At most so many bytes has a request with these batches."""
    return _REQUEST_BYTES + sum(map(_bytes_in_request, batches))


def refused_together(results: Sequence[data_plane_pb2.ProduceResult]) -> bool:
    """Whether a node refused a request of several batches because of its size.

    It may also be that each of them is too large by itself. That shows when they are sent alone.
    """
    return len(results) > 1 and all(result.error.code == ErrorCode.RECORD_TOO_LARGE for result in results)


@dataclass(slots=True, eq=False)
class ProduceAttempt:
    """One produce request on its way: what it carries, where to, of what size, since when."""

    node: NodeConnection
    batches: list[ProducerBatch]
    size_bytes: int
    sent_at_s: float

    @property
    def notes(self) -> BatchNotes | None:
        """What is noted of its batch, if that is to be explained: it is alone then."""
        return self.batches[0].notes

    def outcome(
        self, future: asyncio.Future[data_plane_pb2.ProduceResponse], now_s: float
    ) -> Sequence[data_plane_pb2.ProduceResult] | QuorumlogError:
        """The results, one per batch; or why the request has failed as a whole."""
        error = error_of(future)
        if error is not None:
            return error
        response = future.result()
        if len(response.results) != len(self.batches):
            said = f"{self.node.address} answered {len(response.results)} of {len(self.batches)} batches"
            return UnknownServerError(said, retriable=True)
        if self.notes is not None and not self.batches[0].delivery.done:
            self.notes.answered(now_s, response)
        return response.results


class RequestPacking:
    """Packs the batches of one producer.

    Arguments:
        max_request_size: bytes that a request of several batches may have.
    """

    def __init__(self, max_request_size: int) -> None:
        self._most_bytes = min(max_request_size, NODE_REQUEST_BYTES)
        #: Of the nodes that have been found to take less.
        self._less: dict[NodeConnection, int] = {}

    def pack(self, node: NodeConnection, batches: Iterable[ProducerBatch]) -> Iterator[list[ProducerBatch]]:
        """The batches of each request to a node, in their order. One that alone is beyond the limits is tried alone."""
        most_bytes = self._less.get(node, self._most_bytes)
        together: list[ProducerBatch] = []
        size = _REQUEST_BYTES
        for batch in batches:
            size += _bytes_in_request(batch)
            apart = batch.goes_alone or (together and together[-1].goes_alone)
            if together and (apart or size > most_bytes or len(together) == MAX_BATCHES):
                yield together
                together, size = [], _REQUEST_BYTES + _bytes_in_request(batch)
            together.append(batch)
        if together:
            yield together

    def part(self, refused: ProduceAttempt) -> None:
        """The batches of a request were refused together: each goes alone from now on."""
        for batch in refused.batches:
            batch.refused_with_bytes = refused.size_bytes

    def taken(self, attempt: ProduceAttempt) -> None:
        """A node has taken a batch. If it is alone now and was refused with others, their sum was too much."""
        if len(attempt.batches) == 1 and (size_bytes := attempt.batches[0].refused_with_bytes):
            most_bytes = self._less.get(attempt.node, self._most_bytes)
            self._less[attempt.node] = min(most_bytes, size_bytes // 2)


def _bytes_in_request(batch: ProducerBatch) -> int:
    assert batch.entry is not None
    return _PLACE_BYTES + len(batch.entry)


def error_of(future: asyncio.Future[Any]) -> QuorumlogError | None:
    """Why a request has failed, if it has. Looked at even when nobody cares, or asyncio complains that nobody did."""
    error = future.exception()
    if error is None or isinstance(error, QuorumlogError):
        return error
    return UnknownServerError(f"the client failed: {error!r}")
