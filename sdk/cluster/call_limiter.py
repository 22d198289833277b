"""How many unary calls one connection carries at once. More of them wait here, in their order.

A node takes a hundred calls on a connection, streams among them, and refuses what comes beyond that. gRPC knows the
number and waits, but it counts a call as over before the node does: of many calls some are refused all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quorumlog.sdk.errors import ClientClosedError, RequestTimedOutError

#: Less than half of what a node takes: those that have ended here may count there for a moment, and streams do.
MOST_CALLS = 48


class LimitedChannel:
    """A channel that makes no more unary calls at once than a connection has room for.

    Arguments:
        channel: of gRPC, or what stands for it.
        address: of the node, for messages.
        clock: seconds that never go back.
    """

    def __init__(self, channel: Any, address: str, clock: Callable[[], float]) -> None:
        self._channel = channel
        self._address = address
        self._clock = clock
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._closed = False

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        """A unary method; a call of it is awaited once. Its time counts while it waits, too."""
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
                f"{MOST_CALLS} calls to {self._address} are under way: this one was not made in its time", definite=True
            ) from None

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """A method of streams, as it is."""
        return self._channel.stream_stream(*arguments, **options)

    def close(self) -> None:
        """Nobody who waits makes a call any more; those who made one are told by the channel."""
        self._closed = True
