"""Exceptions for calls and streams that failed as a whole, derived from their gRPC status."""

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
#: Boolean values in the metadata of ``ErrorInfo``.
_WORDS = {"true": True, "false": False}
#: How gRPC's message starts if a call was never given to a connection.
_NEVER_CONNECTED = "failed to connect to all addresses"


def error_from_rpc(error: grpc.RpcError, address: str) -> QuorumlogError:
    """Returns the exception for a call or stream that failed as a whole.

    Arguments:
        address: of the called node, for the message.
    """
    code = error.code() if isinstance(error, grpc.Call) or hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    details = (error.details() or "") if hasattr(error, "details") else str(error)
    info = _error_info(error)
    kind = None if info is None else kind_of_error(_Code.Value(info.reason))
    if info is not None and kind is not None:
        # The call may have been under way when the node ceased to lead: only the node can decide whether it may take
        # effect.
        reported = kind(
            f"{details} (node {address})",
            retriable=_WORDS.get(info.metadata.get("retriable", "")),
            definite=_WORDS.get(info.metadata.get("definite", "")),
        )
        if isinstance(reported, ThrottlingQuotaExceededError):
            reported.throttle_time_ms = _milliseconds(info.metadata.get("throttle_time_ms", ""))
        return reported
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        # The last words of gRPC's long message are the cause: "... Connection refused".
        cause = details.rpartition(": ")[2] or code.name
        # A call that never had a connection was not sent; one whose connection broke may have arrived.
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
    """Returns the ``google.rpc.ErrorInfo`` of our domain, or None if the status carries none."""
    if not hasattr(error, "trailing_metadata"):
        return None
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
    except ValueError:  # The trailing status contradicts the call's status: an intermediary made it up.
        return None
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == "quorumlog" and info.reason in _CODE_NAMES:
            return info
    return None


def _milliseconds(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
