"""Limits concurrent unary calls of one connection. Further calls wait in order.

A node accepts a hundred calls on a connection, including streams, and refuses more. gRPC applies the limit and waits,
but it counts a call as finished before the node does, so some of many calls would still be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quorumlog.sdk.errors import ClientClosedError, RequestTimedOutError

#: Less than half of a node's limit: finished calls may still count there for a moment, and streams count too.
MOST_CALLS = 48


class LimitedChannel:
    """A channel that limits concurrent unary calls.

    Arguments:
        channel: of gRPC, or a substitute.
        address: of the node, for messages.
        clock: monotonic seconds.
    """

    def __init__(self, channel: Any, address: str, clock: Callable[[], float]) -> None:
        self._channel = channel
        self._address = address
        self._clock = clock
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._closed = False

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        """Returns a unary method; each call of it is awaited once. Its timeout includes the waiting time."""
        method = self._channel.unary_unary(*arguments, **options)

        async def call(request: Any, *, timeout: float | None = None, **how: Any) -> Any:
            if self._room.locked():
                begun_s = self._clock()
                await self._wait_for_room(timeout)
                timeout = None if timeout is None else max(0.001, timeout - (self._clock() - begun_s))
            else:
                await self._room.acquire()
            try:
                if self._closed:
                    raise ClientClosedError("the client is closed")
                return await method(request, timeout=timeout, **how)
            finally:
                self._room.release()

        return call

    async def _wait_for_room(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._room.acquire()
        except TimeoutError:
            raise RequestTimedOutError(
                f"{MOST_CALLS} calls to {self._address} are in flight: this one was not sent in its time", definite=True
            ) from None

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """Returns a streaming method of the channel."""
        return self._channel.stream_stream(*arguments, **options)

    def close(self) -> None:
        """Makes waiting calls fail; calls in flight are failed by the channel."""
        self._closed = True
