"""Shares one call between all tasks that wait for the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from types import TracebackType
from typing import Any, TypeVar

from quorumlog.sdk.errors import ClientClosedError, QuorumlogError

Answer = TypeVar("Answer")


def _innermost(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


class SharedCalls:
    """Calls in progress, each with any number of waiting tasks, on one event loop.

    Only for answers that may be as old as the call: a linearizable look-up must not join one that started earlier.

    Arguments:
        in_background: runs a coroutine until the client is closed.
    """

    def __init__(self, in_background: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]) -> None:
        self._in_background = in_background
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._closed = False

    def close(self) -> None:
        """Makes calls that are cancelled from now on fail with ClientClosedError."""
        self._closed = True

    def begin(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, Answer]]) -> asyncio.Task[Answer]:
        """Returns the call in progress with this key, or starts ``call``."""
        task = self._running.get(key)
        if task is None or task.done():
            task = self._running[key] = self._in_background(call())
            task.add_done_callback(lambda ended: self._end(key, ended))
        return task

    def _end(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # Otherwise asyncio complains if every waiting task has been cancelled.

    async def join(self, task: asyncio.Task[Answer]) -> Answer:
        """Waits for a call. Tasks that started to wait earlier continue earlier.

        Raises:
            ClientClosedError: the client was closed during the call.
            QuorumlogError: the call failed.
        """
        try:
            # A task that is cancelled while it waits must not end the call for the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Closing the client cancels the call, but not the tasks that wait for it.
            if self._closed and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise ClientClosedError("the client is closed") from None
            raise
        except QuorumlogError as error:
            # The caller's traceback shows only the place of the failure, not the frames of the shared call.
            error.__traceback__ = _innermost(error.__traceback__)
            raise

    async def share(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Waits for the call in progress with this key, or for ``call``; see :meth:`join`."""
        return await self.join(self.begin(key, call))
