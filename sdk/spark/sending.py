"""Batches on their way from a task into the log: handed to a producer, and what becomes of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from quorumlog.sdk.errors import (
    DuplicateSequenceMismatchError,
    ProducerLimitExceededError,
    QuorumlogError,
    RecordTooLargeError,
)
from quorumlog.sdk.producer.delivery import ArrowFuture
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.rows_to_records import TargetPartition

Piece = tuple[TargetPartition, pa.RecordBatch]


class _SentBatch(NamedTuple):
    """A batch under way; ``row_bytes`` of the only row that it has, else None."""

    target: TargetPartition
    row_bytes: int | None
    future: ArrowFuture


class BatchSender:
    """Sends batches, and waits for all of them at the end."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._sent: deque[_SentBatch] = deque()

    def send(self, pieces: Iterable[Piece]) -> None:
        """Hands batches to the producer; waits while it has as many as it may.

        Raises:
            what :meth:`finish` raises.
        """
        for target, batch in pieces:
            row_bytes = batch.nbytes if batch.num_rows == 1 else None
            try:
                sent = self._producer.send_arrow(target.topic, batch, partition=target.partition)
            except QuorumlogError as error:
                raise _failed(target, row_bytes, error) from None
            self._sent.append(_SentBatch(target, row_bytes, sent))
            # One that is refused ends the task now, not after all that Spark has yet to make.
            while self._sent and self._sent[0].future.done():
                self._settle()

    def finish(self) -> None:
        """Waits until everything is written.

        Raises:
            DuplicateSequenceMismatchError: the log has other records under the name.
            DeliveryError: something else went wrong.
        """
        self._producer.flush()
        while self._sent:
            self._settle()

    def _settle(self) -> None:
        target, row_bytes, future = self._sent.popleft()
        try:
            future.result()
        except QuorumlogError as error:
            raise _failed(target, row_bytes, error) from None


def _failed(target: TargetPartition, row_bytes: int | None, error: QuorumlogError) -> QuorumlogError:
    """The error of a batch, unless it is that the log has other records under the name."""
    if isinstance(error, DuplicateSequenceMismatchError):
        return error
    reason = error.message
    if isinstance(error, RecordTooLargeError) and row_bytes is not None:
        reason = (
            f"a row of {row_bytes} bytes is larger than the topic takes: raise its max.message.bytes, which can be"
            f" 8 MiB, or leave such rows out ({reason.partition(';')[0]})"
        )
    elif isinstance(error, ProducerLimitExceededError):
        reason = f"{reason}; in Spark: have smaller micro-batches or more tasks, or fewer queries that write to a topic"
    return DeliveryError(f"{target} cannot be written to: {reason}")
