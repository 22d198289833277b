"""gRPC reflection for callers that may describe the cluster: it lists every request that a node accepts."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import origin_of
from quorumlog.server.transport.certificate_ends import refuse_ended
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_RESOURCE_CLUSTER,
    CheckAclsRequest,
    CheckAclsResponse,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: Timeout of the authorization check (s).
_DECISION_S = 5.0
#: Kafka's resource name of the cluster.
_CLUSTER_NAME = "kafka-cluster"


class GuardedReflection(ReflectionServicer):  # type: ignore[misc]  # it has no types
    """Reflection service that first checks whether the caller may describe the cluster.

    Arguments:
        names: of the services.
        requests: submits the check to the node.
    """

    def __init__(self, names: Sequence[str], requests: ClientRequests) -> None:
        super().__init__(names)
        self._requests = requests

    async def ServerReflectionInfo(  # gRPC's name
        self, request_iterator: AsyncIterable[reflection_pb2.ServerReflectionRequest], context: Any
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        """Serves one stream of reflection requests."""
        await refuse_ended(context)
        question = CheckAclsRequest(
            operation=ACL_OPERATION_DESCRIBE, resource_type=ACL_RESOURCE_CLUSTER, resource_name=_CLUSTER_NAME
        )
        caller = origin_of(context)
        answer = await self._requests.ask(question, question.ByteSize(), _DECISION_S, caller)
        if isinstance(answer, Error):
            await refuse(context, answer)  # Authentication failed.
        assert isinstance(answer, CheckAclsResponse)
        if answer.enforced and not answer.allowed:
            problem = f"{caller.principal} has no permission for Describe on Cluster: an administrator can allow it"
            await refuse(context, error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, problem))
        async for response in super().ServerReflectionInfo(request_iterator, context):
            yield response


def guard_reflection(names: Sequence[str], requests: ClientRequests, server: object) -> None:
    """Adds reflection to a gRPC server, for callers that may describe the cluster."""
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(GuardedReflection(names, requests), server)
