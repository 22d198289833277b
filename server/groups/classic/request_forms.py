"""What is refused of calls of classic members for its form, whatever state a group is in."""

from __future__ import annotations

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Characters of a member's id, a static name, a protocol's name.
MAX_NAME_LENGTH = 249
#: Of a member's id: it may begin with such a name.
MAX_MEMBER_ID_LENGTH = 320


def check_names(member_id: str, instance_id: str) -> errors_pb2.Error | None:
    """Why nobody can have these names, or None. They end up in tables, log lines and messages."""
    if len(member_id) > MAX_MEMBER_ID_LENGTH or not member_id.isprintable():
        return error(
            ErrorCode.UNKNOWN_MEMBER_ID, f"no member has an id of {len(member_id)} characters that looks like this"
        )
    if len(instance_id) > MAX_NAME_LENGTH or not instance_id.isprintable():
        problem = f"a static name has at most {MAX_NAME_LENGTH} printable characters"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return None


def check_join(request: groups_pb2.JoinClassicGroupRequest, limits: ConsumerGroupLimits) -> errors_pb2.Error | None:
    """Why a join makes no sense, or None."""
    least, most = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        return error(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms is {request.session_timeout_ms}: choose one from {least} to {most}",
        )
    refused = check_names(request.member_id, request.instance_id)
    if refused is not None:
        return refused
    if not request.protocol_type or not request.protocols:
        return error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member names its protocol type, and at least a protocol")
    if len(request.protocols) > limits.classic_protocols:
        problem = f"a member takes part in at most {limits.classic_protocols} protocols, not {len(request.protocols)}"
        return error(ErrorCode.INVALID_REQUEST, problem)
    for name in (request.protocol_type, *(protocol.name for protocol in request.protocols)):
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            problem = f"names of protocols have 1 to {MAX_NAME_LENGTH} printable characters"
            return error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, problem)
    size = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if size > limits.classic_member_bytes:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"a member may say {limits.classic_member_bytes} bytes of itself in all its protocols, not {size}:"
            " subscribe to fewer topics",
        )
    return None


def rebalance_timeout_ms(request: groups_pb2.JoinClassicGroupRequest, limits: ConsumerGroupLimits) -> int:
    """How long others may take to join: what a join says, within bounds."""
    asked = request.rebalance_timeout_ms
    return min(asked, limits.max_rebalance_timeout_ms) if asked >= 0 else request.session_timeout_ms
