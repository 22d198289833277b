"""The exceptions for calls and streams that failed as a whole, from what gRPC says of them."""

from __future__ import annotations

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from quorumlog.sdk.errors import (
    AuthorizationFailedError,
    InvalidRequestError,
    NetworkError,
    QuorumlogError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    ServerBusyError,
    ThrottlingQuotaExceededError,
    UnknownServerError,
    UnsupportedVersionError,
    kind_of_error,
)
from quorumlog.v1 import errors_pb2

_Code = errors_pb2.ErrorCode
_CODE_NAMES = frozenset(_Code.keys())
#: How a node writes what an error says of itself.
_WORDS = {"true": True, "false": False}
#: How gRPC begins to tell that a call was never given to a connection.
_NEVER_CONNECTED = "failed to connect to all addresses"


def error_from_rpc(error: grpc.RpcError, address: str) -> QuorumlogError:
    """The exception for a call or stream that failed as a whole.

    Arguments:
        address: of the node that was called, for the message.
    """
    code = error.code() if isinstance(error, grpc.Call) or hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if hasattr(error, "details") else str(error)
    info = _error_info(error)
    kind = None if info is None else kind_of_error(_Code.Value(info.reason))
    if info is not None and kind is not None:
        # A call may have been under way where the node ceased to lead: only the node knows whether it may take effect.
        told = kind(
            f"{details} (node {address})",
            retriable=_WORDS.get(info.metadata.get("retriable", "")),
            definite=_WORDS.get(info.metadata.get("definite", "")),
        )
        if isinstance(told, ThrottlingQuotaExceededError):
            told.throttle_time_ms = _milliseconds(info.metadata.get("throttle_time_ms", ""))
        return told
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        # gRPC tells a long story, whose last words are the cause: "... Connection refused".
        cause = details.rpartition(": ")[2] or code.name
        # A call for which there never was a connection has gone nowhere; one whose connection broke may have arrived.
        return NetworkError(f"no connection to {address}: {cause}", definite=details.startswith(_NEVER_CONNECTED))
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RequestTimedOutError(f"{address} did not answer in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedVersionError(f"{address} does not offer this call: is it a quorumlog node of this version?")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return AuthorizationFailedError(f"{address} refused the request: {details}")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return SaslAuthenticationFailedError(f"{address} refused the request: {details}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequestError(f"{address} refused the request: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ServerBusyError(f"{address} is busy: {details}", definite=False)
    return UnknownServerError(f"{address} failed with {code.name}: {details}", retriable=True)


def _error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """What a ``google.rpc.ErrorInfo`` of our domain says, if the status carries one."""
    if not hasattr(error, "trailing_metadata"):
        return None
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
    except ValueError:  # the trailing status contradicts the call's: someone between us and the node made it up
        return None
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == "quorumlog" and info.reason in _CODE_NAMES:
            return info
    return None


def _milliseconds(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
