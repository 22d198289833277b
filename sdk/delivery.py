"""What a sender holds of a record on its way: one completion per batch, and a light handle per record."""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from quorumlog.sdk.errors import IllegalStateError, QuorumlogError, RequestTimedOutError
from quorumlog.sdk.types import RecordMetadata
from quorumlog.sdk.wakeup import Wakeup

_log = logging.getLogger("quorumlog.sdk")


class Delivery:
    """The outcome of one batch, shared by the handles of all its records. Resolved once; thread-safe."""

    __slots__ = ("_callbacks", "_done", "_lock", "append_time_ms", "base_offset", "error", "loop_thread", "partition",
                 "record_count", "timestamps_ns", "topic")  # fmt: skip

    def __init__(self, topic: str, partition: int, loop_thread: int, timestamps_ns: array[int] | None = None) -> None:
        self.topic = topic
        self.partition = partition
        #: Of the thread that resolves it: blocking there would wait for itself.
        self.loop_thread = loop_thread
        self.timestamps_ns = timestamps_ns
        self.record_count = 0
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: QuorumlogError | None = None
        self._lock = threading.Lock()
        self._done = False
        # Waiting threads are callbacks too: most batches are never waited on, and a wake-up for each would cost more.
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return self._done

    def succeed(self, base_offset: int, append_time_ms: int) -> None:
        """Resolves with the batch's place in the log; ``append_time_ms`` is -1 unless the topic has append time."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._resolve()

    def fail(self, error: QuorumlogError) -> None:
        """Resolves with an error."""
        self.error = error
        self._resolve()

    def _resolve(self) -> None:
        with self._lock:
            assert not self._done, "a batch is resolved once"
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once resolved: on the resolving thread, or at once if it is already."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout_s: float | None) -> bool:
        """Blocks until resolved; False when ``timeout_s`` has passed before."""
        if self._done:
            return True
        if threading.get_ident() == self.loop_thread:
            raise IllegalStateError("result() would block the client's own event loop: await the handle instead")
        resolved = Wakeup()
        self.when_done(resolved.set)
        return resolved.wait(timeout_s)

    async def wait_async(self) -> None:
        """Suspends until resolved."""
        if self._done:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        def wake_loop() -> None:
            loop.call_soon_threadsafe(wake)

        self.when_done(wake_loop)
        await future

    def timestamp_ms(self, index: int) -> int:
        """The timestamp that record ``index`` has in the log."""
        if self.append_time_ms >= 0:
            return self.append_time_ms
        return self.timestamps_ns[index] // 1_000_000 if self.timestamps_ns is not None else -1


class RecordFuture:
    """A record on its way. Cheap: the batch holds the state, this only its place in it."""

    __slots__ = ("_delivery", "_index")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self._delivery = delivery
        self._index = index

    def done(self) -> bool:
        """True once the outcome is known."""
        return self._delivery.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Blocks until the record is acknowledged.

        Arguments:
            timeout: in seconds; None waits as long as the producer tries (``delivery_timeout_ms``).

        Raises:
            QuorumlogError: it failed; the error's ``definite`` says whether it may still turn up.
            RequestTimedOutError: ``timeout`` has passed; the producer goes on trying.
        """
        self._wait(timeout)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> QuorumlogError | None:
        """Blocks until the outcome is known; the error, or None on success."""
        self._wait(timeout)
        return self._delivery.error

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Calls ``callback(self)`` once the outcome is known, on the clients' background thread: do not block there."""
        self._delivery.when_done(lambda: _call(callback, self))

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self._delivery.wait_async().__await__()
        return self._metadata()

    def _wait(self, timeout: float | None) -> None:
        if not self._delivery.wait(timeout):
            where = f"{self._delivery.topic}-{self._delivery.partition}"
            raise RequestTimedOutError(
                f"no acknowledgement from {where} within {timeout} s; the producer goes on trying"
            )

    def _metadata(self) -> RecordMetadata:
        delivery = self._delivery
        if delivery.error is not None:
            raise delivery.error
        offset = delivery.base_offset + self._index if delivery.base_offset >= 0 else -1
        return RecordMetadata(delivery.topic, delivery.partition, offset, delivery.timestamp_ms(self._index))


class BatchMetadata(NamedTuple):
    """Where a batch of ``record_count`` records went: offsets from ``base_offset`` on (-1 for ``acks=0``)."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class ArrowFuture:
    """The batches of one ``send_arrow`` on their way."""

    __slots__ = ("_deliveries",)

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._deliveries = tuple(deliveries)

    def done(self) -> bool:
        """True once every batch's outcome is known."""
        return all(delivery.done for delivery in self._deliveries)

    def result(self, timeout: float | None = None) -> list[BatchMetadata]:
        """Blocks until every batch is acknowledged; see :meth:`RecordFuture.result`.

        Raises:
            QuorumlogError: the first batch that failed; others may have succeeded.
        """
        finished = Wakeup()
        remaining = len(self._deliveries)
        lock = threading.Lock()

        def one_done() -> None:
            nonlocal remaining
            with lock:
                remaining -= 1
                if remaining == 0:
                    finished.set()

        if not self.done():
            if threading.get_ident() == self._deliveries[0].loop_thread:
                raise IllegalStateError("result() would block the client's own event loop: await the handle instead")
            for delivery in self._deliveries:
                delivery.when_done(one_done)
            if not finished.wait(timeout):
                raise RequestTimedOutError(
                    f"not all batches were acknowledged within {timeout} s; the producer goes on"
                )
        return self._metadata()

    def __await__(self) -> Generator[object, None, list[BatchMetadata]]:
        for delivery in self._deliveries:
            yield from delivery.wait_async().__await__()
        return self._metadata()

    def _metadata(self) -> list[BatchMetadata]:
        for delivery in self._deliveries:
            if delivery.error is not None:
                raise delivery.error
        return [BatchMetadata(d.topic, d.partition, d.base_offset, d.record_count) for d in self._deliveries]


def _call(callback: Callable[[RecordFuture], object], future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:  # a user's mistake must not stop the sender
        _log.exception("a callback of a record's handle failed")
