"""Handles for the outcome of sent records: one completion per batch, and a light handle per record."""

from __future__ import annotations

import copy
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, Self

from quorumlog.pure import mypyc_attr
from quorumlog.sdk.errors import QuorumlogError, RequestTimedOutError
from quorumlog.sdk.runtime.completion import Completion
from quorumlog.sdk.types import RecordMetadata


def to_raise(error: QuorumlogError) -> QuorumlogError:
    """Returns a copy of an outcome's error.

    A raised error refers to the frames that it has passed. Those of the outcome itself would gather there, and the
    handles in them would keep it alive.
    """
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


class Delivery(Completion):
    """The outcome of one batch, shared by the handles of all its records."""

    __slots__ = ("append_time_ms", "base_offset", "partition", "record_count", "timestamps_ns", "topic")

    def __init__(self, topic: str, partition: int, loop_thread: int, timestamps_ns: array[int] | None = None) -> None:
        super().__init__(loop_thread)
        self.topic = topic
        self.partition = partition
        self.timestamps_ns = timestamps_ns
        self.record_count = 0
        self.base_offset = -1
        self.append_time_ms = -1

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        """Resolves with the batch's base offset; ``append_time_ms`` is -1 unless the topic has append time."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.resolve()

    def timestamp_ms(self, index: int) -> int:
        """Returns the timestamp of record ``index`` in the log (ms); -1 if unknown."""
        if self.append_time_ms >= 0:
            return self.append_time_ms
        return self.timestamps_ns[index] // 1_000_000 if self.timestamps_ns is not None else -1


# Programs keep handles by the million. The garbage collector does not look at those of a compiled class without cycles:
# the callbacks of a delivery end with it, and :func:`to_raise` keeps the frames of callers out of it.
@mypyc_attr(acyclic=True)
class RecordFuture:
    """A handle for the outcome of one sent record.

    It can be awaited, or used from threads. It is cheap: the batch holds the state.
    """

    __slots__ = ("_delivery", "_index")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self._delivery = delivery
        self._index = index

    def done(self) -> bool:
        """True once the outcome is known."""
        return self._delivery.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Blocks until the record is acknowledged, and returns its position in the log.

        Arguments:
            timeout: in seconds; None waits as long as the producer retries (``delivery_timeout_ms``).

        Raises:
            QuorumlogError: the record failed; unless the error is ``definite``, the record may still appear in the log.
            RequestTimedOutError: ``timeout`` has passed; the producer continues to retry.
        """
        self._wait(timeout)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> QuorumlogError | None:
        """Blocks until the outcome is known; returns the error, or None on success.

        Raises:
            RequestTimedOutError: ``timeout`` (seconds) has passed; the producer continues to retry.
        """
        self._wait(timeout)
        error = self._delivery.error
        return None if error is None else to_raise(error)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Calls ``callback(self)`` once the outcome is known, on the clients' background thread: do not block there."""
        self._delivery.tell(callback, self)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Same as :meth:`result`, under kafka-python's name."""
        return self.result(timeout)

    def succeeded(self) -> bool:
        """True once the record is acknowledged."""
        return self._delivery.done and self._delivery.error is None

    def failed(self) -> bool:
        """True once the record has failed."""
        return self._delivery.done and self._delivery.error is not None

    def add_callback(self, callback: Callable[..., object], *arguments: Any, **named: Any) -> Self:
        """Calls ``callback(*arguments, metadata, **named)`` once the record is acknowledged, as kafka-python does.

        It is called on the clients' background thread: do not block there.
        """
        self.add_done_callback(
            lambda done: callback(*arguments, done._metadata(), **named) if done.succeeded() else None
        )
        return self

    def add_errback(self, callback: Callable[..., object], *arguments: Any, **named: Any) -> Self:
        """Calls ``callback(*arguments, error, **named)`` once the record has failed, as kafka-python does.

        It is called on the clients' background thread: do not block there.
        """
        self.add_done_callback(lambda done: callback(*arguments, done.exception(), **named) if done.failed() else None)
        return self

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self._delivery.wait_async().__await__()
        return self._metadata()

    def _wait(self, timeout: float | None) -> None:
        if not self._delivery.wait(timeout):
            where = f"{self._delivery.topic}-{self._delivery.partition}"
            raise RequestTimedOutError(
                f"no acknowledgement from {where} within {timeout} s; the producer continues to retry"
            )

    def _metadata(self) -> RecordMetadata:
        delivery = self._delivery
        if delivery.error is not None:
            raise to_raise(delivery.error)
        offset = delivery.base_offset + self._index if delivery.base_offset >= 0 else -1
        return RecordMetadata(delivery.topic, delivery.partition, offset, delivery.timestamp_ms(self._index))


class BatchMetadata(NamedTuple):
    """The position of ``record_count`` rows in the log: offsets from ``base_offset`` on (-1 with ``acks=0``)."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class BatchRows(NamedTuple):
    """Records of one call in a batch: ``record_count`` of them, from the batch's row ``first`` on."""

    delivery: Delivery
    first: int
    record_count: int


class ArrowFuture:
    """A handle for the outcome of one ``send_arrow``, whose rows are in one batch or several."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[BatchRows]) -> None:
        self._parts = tuple(parts)

    def done(self) -> bool:
        """True once every batch's outcome is known."""
        return all(part.delivery.done for part in self._parts)

    def result(self, timeout: float | None = None) -> list[BatchMetadata]:
        """Blocks until every batch is acknowledged, and returns the position of each; see :meth:`RecordFuture.result`.

        Arguments:
            timeout: in seconds, for all batches together; None waits as long as the producer retries.

        Raises:
            QuorumlogError: the error of the first failed batch; others may have succeeded.
            RequestTimedOutError: ``timeout`` has passed; the producer continues to retry.
        """
        _wait_for_all((part.delivery for part in self._parts), "batches", timeout)
        return self._metadata()

    def __await__(self) -> Generator[object, None, list[BatchMetadata]]:
        for part in self._parts:
            yield from part.delivery.wait_async().__await__()
        return self._metadata()

    def _metadata(self) -> list[BatchMetadata]:
        for delivery, _, _ in self._parts:
            if delivery.error is not None:
                raise to_raise(delivery.error)
        return [
            BatchMetadata(each.topic, each.partition, each.base_offset + first if each.base_offset >= 0 else -1, count)
            for each, first, count in self._parts
        ]


def _wait_for_all(deliveries: Iterable[Delivery], what: str, timeout: float | None) -> None:
    """Blocks until every outcome is known.

    Arguments:
        timeout: in seconds, for all together; None waits as long as the producer retries.

    Raises:
        RequestTimedOutError: ``timeout`` has passed.
    """
    deadline_s = None if timeout is None else time.monotonic() + timeout
    for delivery in deliveries:
        if not delivery.wait(None if deadline_s is None else deadline_s - time.monotonic()):
            raise RequestTimedOutError(
                f"not all {what} were acknowledged within {timeout} s; the producer continues to retry"
            )


class SentRecords(NamedTuple):
    """Records of one ``send_many`` that share an outcome.

    Arguments:
        first: the row in the batch of the first one.
        positions: of each in the call.
    """

    delivery: Delivery
    first: int
    positions: Sequence[int]


class RecordsFuture:
    """A handle for the outcome of the records of one ``send_many``, which are in one batch or several.

    ``len()`` is the number of records. Each record has an outcome of its own: see :meth:`futures`.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[SentRecords]) -> None:
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(len(part.positions) for part in self._parts)

    def done(self) -> bool:
        """True once every record's outcome is known."""
        return all(part.delivery.done for part in self._parts)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Blocks until every record is acknowledged, and returns their positions in the log, in the call's order.

        Arguments:
            timeout: in seconds, for all records together; None waits as long as the producer retries.

        Raises:
            QuorumlogError: the error of the first failed record; others may have succeeded.
            RequestTimedOutError: ``timeout`` has passed; the producer continues to retry.
        """
        _wait_for_all((part.delivery for part in self._parts), "records", timeout)
        return self._metadata()

    def futures(self) -> list[RecordFuture]:
        """Returns a handle for each record, in the call's order: for callbacks, and to find the failed ones."""
        found: dict[int, RecordFuture] = {}
        for delivery, first, positions in self._parts:
            for row, position in enumerate(positions, first):
                found[position] = RecordFuture(delivery, row)
        return [found[position] for position in range(len(found))]

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        for part in self._parts:
            yield from part.delivery.wait_async().__await__()
        return self._metadata()

    def _metadata(self) -> list[RecordMetadata]:
        failed = [(part.positions[0], part.delivery.error) for part in self._parts if part.delivery.error is not None]
        if failed:
            raise to_raise(min(failed, key=lambda each: each[0])[1])
        return [future._metadata() for future in self.futures()]
