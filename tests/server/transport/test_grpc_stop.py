"""The gRPC server of a node that stops: calls that it ends come to their end, and nothing is logged about them."""

from __future__ import annotations

import asyncio
import gc
import logging

import grpc
import grpc.aio
import pytest
import uvloop

from quorumlog.server.transport import grpc_server
from quorumlog.server.transport.clients.unary_calls import Context
from quorumlog.server.transport.grpc_server import GrpcServer

DEADLINE_S = 60


class Streams:
    """A service of one method, whose calls last until they are ended, and need a moment for that."""

    def __init__(self) -> None:
        self.ended = 0

    async def serve(self, _unused: object, context: Context) -> None:
        """Serves one call until it ends."""
        try:
            # A client may have this before the server's own call of write() returns: the end may come inside it.
            await context.write(b"begun")
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            self.ended += 1


async def stop_under_a_call(streams: int) -> int:
    """Stops a server that serves calls; how many had ended when it had stopped."""
    service = Streams()
    method = grpc.stream_stream_rpc_method_handler(service.serve)
    server = GrpcServer("127.0.0.1:0", (grpc.method_handlers_generic_handler("test.Streams", {"Serve": method}),))
    port = server._server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.stream_stream("/test.Streams/Serve")() for _ in range(streams)]
        for call in calls:
            assert await asyncio.wait_for(call.read(), DEADLINE_S) == b"begun"
        # The client's own tasks end when its channel does.
        await server.stop(0)
        return service.ended


@pytest.mark.parametrize("streams", [1, 8])
def test_calls_are_over_when_a_server_has_stopped(
    streams: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A node gives up waiting after a second; a machine may take that long to run anything at all.
    monkeypatch.setattr(grpc_server, "LAST_CALLS_S", DEADLINE_S)
    gc.collect()  # Garbage of earlier tests is reported when it is collected: not below.
    caplog.clear()
    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(stop_under_a_call(streams)) == streams
    assert [record.getMessage() for record in caplog.records] == []
