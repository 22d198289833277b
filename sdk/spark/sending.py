"""Sends a task's batches through a producer, and checks their outcome."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from quorumlog.sdk.errors import QuorumlogError, RecordTooLargeError
from quorumlog.sdk.producer.delivery import ArrowFuture
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.rows_to_records import TargetPartition

Piece = tuple[TargetPartition, pa.RecordBatch]


class _SentBatch(NamedTuple):
    """A batch in flight; ``row_bytes`` is the size of its only row, otherwise None."""

    target: TargetPartition
    row_bytes: int | None
    future: ArrowFuture


class BatchSender:
    """Sends batches, and waits for all of them at the end."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._sent: deque[_SentBatch] = deque()

    def send(self, pieces: Iterable[Piece]) -> None:
        """Passes batches to the producer; blocks while its buffer is full.

        Raises:
            the errors of :meth:`finish`.
        """
        for target, batch in pieces:
            row_bytes = batch.nbytes if batch.num_rows == 1 else None
            try:
                sent = self._producer.send_arrow(target.topic, batch, partition=target.partition)
            except QuorumlogError as error:
                raise _failed(target, row_bytes, error) from None
            self._sent.append(_SentBatch(target, row_bytes, sent))
            # A refused batch ends the task now, not after all rows that Spark has yet to produce.
            while self._sent and self._sent[0].future.done():
                self._settle()

    def finish(self) -> None:
        """Waits until everything is written.

        Raises:
            DeliveryError: a batch cannot be written; the message names the topic and the reason.
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


def _failed(target: TargetPartition, row_bytes: int | None, error: QuorumlogError) -> DeliveryError:
    reason = error.message
    if isinstance(error, RecordTooLargeError) and row_bytes is not None:
        reason = (
            f"a row of {row_bytes} bytes is larger than the topic takes: raise its max.message.bytes, which can be"
            f" 8 MiB, or leave such rows out ({reason.partition(';')[0]})"
        )
    return DeliveryError(f"{target} cannot be written to: {reason}")
