"""Reflection shows all requests that a node serves, to clients that may describe the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.clients.guarded_reflection import GuardedReflection
from quorumlog.v1.acls_pb2 import ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER, CheckAclsRequest, CheckAclsResponse
from quorumlog.v1.errors_pb2 import ErrorCode


class Refused(Exception):
    """A call was ended with a status."""


class Call:
    """The context that gRPC passes with a call."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object = ()) -> None:
        raise Refused(code, details)


class Node:
    """Decides always alike."""

    def __init__(self, answer: CheckAclsResponse) -> None:
        self._answer = answer

    async def ask(
        self, question: object, size_bytes: int, timeout_s: float, client: RequestContext
    ) -> CheckAclsResponse:
        assert isinstance(question, CheckAclsRequest)
        assert (question.operation, question.resource_type) == (ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER)
        assert (question.principal, client.host) == ("", "127.0.0.1")
        return self._answer


async def services_told(answer: CheckAclsResponse) -> list[str]:
    async def questions() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    node: Any = Node(answer)
    reflection = GuardedReflection(("quorumlog.v1.Admin",), node)
    answers = [each async for each in reflection.ServerReflectionInfo(questions(), Call())]
    return [service.name for each in answers for service in each.list_services_response.service]


@pytest.mark.parametrize(
    "answer",
    [
        CheckAclsResponse(allowed=True, enforced=True),
        CheckAclsResponse(allowed=False, enforced=False),
        CheckAclsResponse(error=error(ErrorCode.CLUSTER_NOT_FORMED, "no rules yet")),
    ],
    ids=["allowed", "no permission is required", "before there is a cluster"],
)
async def test_who_may_describe_the_cluster_is_shown_the_services(answer: CheckAclsResponse) -> None:
    assert await services_told(answer) == ["quorumlog.v1.Admin"]


async def test_who_may_not_is_told_so() -> None:
    with pytest.raises(Refused) as refused:
        await services_told(CheckAclsResponse(allowed=False, enforced=True))
    code, details = refused.value.args
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert details.startswith("User:ANONYMOUS has no permission for Describe on Cluster")
