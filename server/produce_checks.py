"""What makes a produce request senseless as a whole: the service finds it out first, and the node relies on nobody."""

from __future__ import annotations

from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def check_acks(acks: int) -> errors_pb2.Error | None:
    """Why nobody can acknowledge in that way, or None."""
    if acks in (-1, 0, 1):
        return None
    return error(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}: use 0, 1 or -1 (all)")


def check_request_size(size_bytes: int, limit: int) -> errors_pb2.Error | None:
    """Why a request of that size is not taken, or None.

    Arguments:
        limit: bytes that the node takes.
    """
    if size_bytes <= limit:
        return None
    return error(
        ErrorCode.RECORD_TOO_LARGE,
        f"the request has {size_bytes} bytes, the node takes {limit}: send fewer or smaller batches in one request",
    )
