"""Batches of a partition, or commits of a consumer group, until these are enlisted in a transaction.

The first one of a producer has the participant enlisted with the coordinator of the transaction. Those behind it wait,
too, so that all of them stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

from quorumlog.server.deciding.transaction_participants import Enlisting
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Maximum size of all that waits in one of these queues.
MAX_WAITING_BYTES = 64 << 20

#: Continues with what has waited, or answers with the error that its participant got.
Settle = Callable[[errors_pb2.Error | None], None]


class _Waiting(NamedTuple):
    size_bytes: int
    settle: Settle


class EnlistmentQueue:
    """Batches or commits of this node that wait, in the order of each producer and participant.

    Arguments:
        noun: what waits, for messages: "batches".
    """

    def __init__(self, enlisting: Enlisting, noun: str) -> None:
        self._enlisting = enlisting
        self._noun = noun
        self._queues: dict[Hashable, list[_Waiting]] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        """Returns the number of those that wait."""
        return sum(map(len, self._queues.values()))

    def wait(
        self, writer: Hashable, item: peer_pb2.Enlistment, term: int, size_bytes: int, settle: Settle
    ) -> errors_pb2.Error | None:
        """Enlists a participant, unless that is under way for the writer.

        Arguments:
            writer: a producer in a participant.
            term: in which this node leads the participant.
            settle: called in this step or a later one: without an error, if the transaction is open now.

        Returns:
            The error if there is no room to wait; then ``settle`` is not called.
        """
        if self._size_bytes + size_bytes > MAX_WAITING_BYTES:
            busy = f"{len(self)} {self._noun} wait for the coordinators of their transactions: try again after a pause"
            return error(ErrorCode.SERVER_BUSY, busy)
        self._size_bytes += size_bytes
        queue = self._queues.get(writer)
        if queue is not None:
            queue.append(_Waiting(size_bytes, settle))
            return None
        self._queues[writer] = [_Waiting(size_bytes, settle)]
        self._enlisting.enlist(item, term, partial(self._enlisted, writer))
        return None

    def _enlisted(self, writer: Hashable, result: peer_pb2.EnlistmentResult) -> None:
        problem = result.error if result.HasField("error") else None
        for waiting in self._queues.pop(writer):
            self._size_bytes -= waiting.size_bytes
            waiting.settle(problem)
