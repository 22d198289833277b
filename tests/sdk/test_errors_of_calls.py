"""What a call that failed as a whole tells a client: the node's own word on what it may have done."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from quorumlog.sdk.errors import NotCoordinatorError, QuorumlogError
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.server.wire_errors import error
from quorumlog.v1.errors_pb2 import ErrorCode


class _Ending:
    """Keeps the status with which a node ends a call, as its client gets it."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...]) -> None:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def told(definite: bool) -> QuorumlogError:
    """What a client makes of a refusal by a node that has ceased to coordinate a group."""
    refusal = error(ErrorCode.NOT_COORDINATOR, "ask FindCoordinators", definite=definite)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        asyncio.run(refuse(_Ending(), refusal))  # type: ignore[arg-type]
    return error_from_rpc(ended.value, "node-1:1")


@pytest.mark.parametrize("definite", [True, False])
def test_a_client_is_told_whether_what_was_under_way_may_take_effect(definite: bool) -> None:
    failure = told(definite)
    assert isinstance(failure, NotCoordinatorError)
    assert failure.definite is definite and failure.retriable
