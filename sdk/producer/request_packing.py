"""Groups batches into produce requests: as many as every limit allows, and each alone if a node accepts less.

The limit of a node is a setting of its operator, which clients do not receive. A node that refuses several batches
together has refused their sum, and reports so at once. Each batch is then sent alone, and only a batch that is refused
alone is too large.
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

#: Limit of one request on a node, unless its operator changed it (``max_request_bytes``).
NODE_REQUEST_BYTES = 32 << 20
#: Limit of partitions in one request.
MAX_BATCHES = 10_000
#: Upper bounds of the bytes in a request besides its batches, and besides each batch's bytes: ids, numbers, lengths.
_REQUEST_BYTES = 32
_PLACE_BYTES = 40


def request_bytes(batches: Iterable[ProducerBatch]) -> int:
    """Returns an upper bound for the size of a request with these batches."""
    return _REQUEST_BYTES + sum(map(_bytes_in_request, batches))


def refused_together(results: Sequence[data_plane_pb2.ProduceResult]) -> bool:
    """True if a node refused a request of several batches because of its size.

    Each batch may also be too large on its own. That shows when they are sent alone.
    """
    return len(results) > 1 and all(result.error.code == ErrorCode.RECORD_TOO_LARGE for result in results)


@dataclass(slots=True, eq=False)
class ProduceAttempt:
    """One produce request in flight."""

    node: NodeConnection
    batches: list[ProducerBatch]
    size_bytes: int
    sent_at_s: float

    @property
    def notes(self) -> BatchNotes | None:
        """The notes of its batch if that must be explained; such a batch is alone in its request."""
        return self.batches[0].notes

    def outcome(
        self, future: asyncio.Future[data_plane_pb2.ProduceResponse], now_s: float
    ) -> Sequence[data_plane_pb2.ProduceResult] | QuorumlogError:
        """Returns the results, one per batch, or the error if the request has failed as a whole."""
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
    """Packs the batches of one producer into requests.

    Arguments:
        max_request_size: limit in bytes of a request with several batches.
    """

    def __init__(self, max_request_size: int) -> None:
        self._most_bytes = min(max_request_size, NODE_REQUEST_BYTES)
        #: Lower limits of nodes that have refused requests.
        self._less: dict[NodeConnection, int] = {}

    def pack(self, node: NodeConnection, batches: Iterable[ProducerBatch]) -> Iterator[list[ProducerBatch]]:
        """Yields the batches of each request to a node, in order. A batch that exceeds the limits is sent alone."""
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
        """Marks the batches of a refused request, so that each is sent alone from now on."""
        for batch in refused.batches:
            batch.refused_with_bytes = refused.size_bytes

    def taken(self, attempt: ProduceAttempt) -> None:
        """Lowers the node's limit if an accepted batch was refused before together with others."""
        if len(attempt.batches) == 1 and (size_bytes := attempt.batches[0].refused_with_bytes):
            most_bytes = self._less.get(attempt.node, self._most_bytes)
            self._less[attempt.node] = min(most_bytes, size_bytes // 2)


def _bytes_in_request(batch: ProducerBatch) -> int:
    assert batch.entry is not None
    return _PLACE_BYTES + len(batch.entry)


def error_of(future: asyncio.Future[Any]) -> QuorumlogError | None:
    """Returns the error of a failed request, or None. Always called, because asyncio logs exceptions that are never
    retrieved."""
    error = future.exception()
    if error is None or isinstance(error, QuorumlogError):
        return error
    return UnknownServerError(f"the client failed: {error!r}")
