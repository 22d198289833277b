"""Errors of whole calls: a gRPC status with google.rpc.ErrorInfo, whose reason is Kafka's name of the error."""

from __future__ import annotations

from typing import NoReturn

import grpc
import grpc.aio
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

DOMAIN = "quorumlog"

_STATUS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: code_pb2.INTERNAL,
    ErrorCode.INVALID_REQUEST: code_pb2.INVALID_ARGUMENT,
    ErrorCode.INVALID_REQUIRED_ACKS: code_pb2.INVALID_ARGUMENT,
    ErrorCode.REQUEST_TIMED_OUT: code_pb2.DEADLINE_EXCEEDED,
    ErrorCode.SERVER_BUSY: code_pb2.RESOURCE_EXHAUSTED,
    ErrorCode.UNSUPPORTED_VERSION: code_pb2.UNIMPLEMENTED,
    ErrorCode.LEADER_NOT_AVAILABLE: code_pb2.UNAVAILABLE,
    ErrorCode.NOT_CONTROLLER: code_pb2.UNAVAILABLE,
    ErrorCode.CLUSTER_NOT_FORMED: code_pb2.UNAVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: code_pb2.PERMISSION_DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: code_pb2.PERMISSION_DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: code_pb2.PERMISSION_DENIED,
    ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED: code_pb2.PERMISSION_DENIED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: code_pb2.UNAUTHENTICATED,
    ErrorCode.SASL_SESSION_EXPIRED: code_pb2.UNAUTHENTICATED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: code_pb2.RESOURCE_EXHAUSTED,
}


async def refuse(context: grpc.aio.ServicerContext[bytes, bytes], error: errors_pb2.Error) -> NoReturn:
    """Ends a call with an error."""
    metadata = {"retriable": str(error.retriable).lower(), "definite": str(error.definite).lower()}
    if error.throttle_time_ms:
        metadata["throttle_time_ms"] = str(error.throttle_time_ms)
    if error.HasField("leader"):
        metadata["leader"] = str(error.leader.node_id)
        metadata["leader_epoch"] = str(error.leader.leader_epoch)
    info = error_details_pb2.ErrorInfo(reason=ErrorCode.Name(error.code), domain=DOMAIN, metadata=metadata)
    wire = status_pb2.Status(code=_STATUS.get(error.code, code_pb2.FAILED_PRECONDITION), message=error.message)
    wire.details.add().Pack(info)
    status = rpc_status.to_status(wire)
    await context.abort(status.code, status.details, status.trailing_metadata or ())
    raise AssertionError("abort raises")
