"""A one-time outcome on the clients' loop that threads and tasks wait for."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from quorumlog.sdk.errors import IllegalStateError, QuorumlogError
from quorumlog.sdk.runtime.interruptible_event import InterruptibleEvent

#: A user's handle for an outcome.
Handle = TypeVar("Handle")

_log = logging.getLogger("quorumlog.sdk")


class Completion:
    """An outcome that is resolved once, as a success or an error. Thread-safe.

    It has no lock that an interrupted thread could keep: a callback is in the queue until one thread removes it, and
    each of the two steps is a single call of C.

    Not a ``concurrent.futures.Future``: Ctrl-C in a thread that waits there may leave its lock held, and the loop
    waiting for it; see :mod:`quorumlog.sdk.runtime.interruptible_event`.

    Arguments:
        loop_thread: of the loop that resolves it: blocking there would wait for itself.
    """

    __slots__ = ("_callbacks", "_done", "error", "loop_thread")

    def __init__(self, loop_thread: int) -> None:
        self.loop_thread = loop_thread
        self.error: QuorumlogError | None = None
        self._done = False
        # Waiting threads are callbacks too: most outcomes are never waited on, and an event for each would cost more.
        self._callbacks: deque[Callable[[], None]] = deque()

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return self._done

    def resolve(self, error: QuorumlogError | None = None) -> None:
        """Resolves the outcome, with an error or as a success, and notifies all waiters."""
        assert not self._done, "an outcome is resolved once"
        self.error = error
        self._done = True
        while True:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls ``callback`` once resolved: on the resolving thread, or immediately if it is already."""
        if not self._done:
            self._callbacks.append(callback)
            if not self._done:
                return
            try:
                self._callbacks.remove(callback)
            except ValueError:
                return  # It was resolved in between, and the resolving thread has taken the callback.
        callback()

    def tell(self, callback: Callable[[Handle], object], handle: Handle) -> None:
        """Calls a user's ``callback(handle)`` once resolved."""

        def call() -> None:
            try:
                callback(handle)
            except Exception:  # a user's mistake must not stop the clients' loop
                _log.exception("the callback of a %s failed", type(handle).__name__)

        self.when_done(call)

    def wait(self, timeout_s: float | None) -> bool:
        """Blocks until resolved; returns False if ``timeout_s`` has passed before."""
        if self._done:
            return True
        if threading.get_ident() == self.loop_thread:
            raise IllegalStateError("result() would block the client's own event loop: await the handle instead")
        resolved = InterruptibleEvent()
        self.when_done(resolved.set)
        return resolved.wait(timeout_s)

    def wait_async(self) -> asyncio.Future[None]:
        """Returns a future of the running loop that is done once this is resolved."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._done:
            future.set_result(None)
            return future

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        def wake_loop() -> None:
            loop.call_soon_threadsafe(wake)

        self.when_done(wake_loop)
        return future
