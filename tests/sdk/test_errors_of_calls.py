"""Errors of calls that failed as a whole: the node's own word on what the call may have done."""

from __future__ import annotations

import asyncio
import socket

import grpc.aio
import pytest

from quorumlog.sdk.errors import NetworkError, NotCoordinatorError, QuorumlogError
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1.errors_pb2 import ErrorCode


class _Ending:
    """Keeps the status with which a node ends a call, as its client gets it."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...]) -> None:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def told(definite: bool) -> QuorumlogError:
    """Returns what a client makes of a refusal by a node that has ceased to coordinate a group."""
    refusal = error(ErrorCode.NOT_COORDINATOR, "ask FindCoordinators", definite=definite)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        asyncio.run(refuse(_Ending(), refusal))  # type: ignore[arg-type]
    return error_from_rpc(ended.value, "node-1:1")


@pytest.mark.parametrize("definite", [True, False])
def test_a_client_is_told_whether_what_was_under_way_may_take_effect(definite: bool) -> None:
    failure = told(definite)
    assert isinstance(failure, NotCoordinatorError)
    assert failure.definite is definite and failure.retriable


async def _call(address: str) -> QuorumlogError:
    """Returns the result of a call to an address."""
    async with grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await channel.unary_unary("/test.Service/Change")(b"", timeout=30)
    return error_from_rpc(ended.value, address)


async def test_a_call_that_found_nobody_listening_has_had_no_effect() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and does not listen
        failure = await _call(f"127.0.0.1:{reserved.getsockname()[1]}")
    assert isinstance(failure, NetworkError) and failure.retriable and failure.definite


async def test_a_call_whose_connection_broke_may_have_had_its_effect() -> None:
    gone = asyncio.Event()

    async def end_once_called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        settings, confirmation = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])  # of HTTP/2
        writer.write(settings + confirmation)
        received = b""
        while b"/test.Service/Change" not in received:
            received += await reader.read(4096)
        writer.transport.abort()
        gone.set()

    server = await asyncio.start_server(end_once_called, "127.0.0.1", 0)
    async with server:
        failure = await _call(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert gone.is_set() and isinstance(failure, NetworkError) and failure.retriable and not failure.definite
