"""A channel that makes each call over a connection with the client's current files.

gRPC reconnects automatically, always with the files of the channel's creation. And a connection keeps the certificate
with which it started, while the node serves calls on it only until that certificate expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from quorumlog.sdk.runtime.tls_files import TlsFiles


class RenewedChannel:
    """The methods of a gRPC channel that clients use.

    Arguments:
        files: of the client; checked before each call.
        open_channel: creates a channel with credentials.

    Raises:
        IllegalArgumentError: the files cannot be used.
    """

    def __init__(self, files: TlsFiles, open_channel: Callable[[grpc.ChannelCredentials], grpc.aio.Channel]) -> None:
        self._files = files
        self._open_channel = open_channel
        self._state = files.look()
        self._channel = open_channel(files.credentials())
        #: Calls in flight on each channel: an outdated channel is closed when it has none.
        self._under_way: dict[grpc.aio.Channel, int] = {self._channel: 0}
        self._closing: set[asyncio.Task[None]] = set()

    def unary_unary(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Returns a unary method."""
        return self._method("unary_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """Returns a streaming method."""
        return self._method("stream_stream", arguments, options)

    def _method(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
        made_for: grpc.aio.Channel | None = None
        method: Any = None

        def call(*given: Any, **how: Any) -> Any:
            nonlocal made_for, method
            channel = self._renewed()
            if channel is not made_for:
                made_for, method = channel, getattr(channel, kind)(*arguments, **options)
            made = method(*given, **how)
            self._under_way[channel] += 1
            made.add_done_callback(lambda _: self._call_ended(channel))
            return made

        return call

    def _renewed(self) -> grpc.aio.Channel:
        state = self._files.look()
        if state != self._state:
            former, self._state = self._channel, state
            self._channel = self._open_channel(self._files.credentials())
            self._under_way[self._channel] = 0
            self._close_unused(former)
        return self._channel

    def _call_ended(self, channel: grpc.aio.Channel) -> None:
        if channel in self._under_way:
            self._under_way[channel] -= 1
            self._close_unused(channel)

    def _close_unused(self, channel: grpc.aio.Channel) -> None:
        if channel is not self._channel and not self._under_way[channel]:
            del self._under_way[channel]
            task = asyncio.get_running_loop().create_task(channel.close(grace=None))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self, grace: float | None = None) -> None:
        """Closes every connection: all calls end."""
        channels, self._under_way = list(self._under_way), {}
        for channel in channels:
            await channel.close(grace=grace)
