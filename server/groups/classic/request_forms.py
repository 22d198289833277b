"""Checks of the calls of classic members that do not depend on the state of a group."""

from __future__ import annotations

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Maximum length of a static name or a protocol's name.
MAX_NAME_LENGTH = 249
#: Maximum length of a member's id, which may start with such a name.
MAX_MEMBER_ID_LENGTH = 320


def check_names(member_id: str, instance_id: str) -> errors_pb2.Error | None:
    """Returns the error if a member cannot have these names; None if it can. They appear in tables, log lines and
    messages."""
    if len(member_id) > MAX_MEMBER_ID_LENGTH or not member_id.isprintable():
        return error(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has this id of {len(member_id)} characters: join again")
    if len(instance_id) > MAX_NAME_LENGTH or not instance_id.isprintable():
        problem = f"a static name has at most {MAX_NAME_LENGTH} printable characters"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return None


def check_join(request: groups_pb2.JoinClassicGroupRequest, limits: ConsumerGroupLimits) -> errors_pb2.Error | None:
    """Returns the error if a join is malformed; None if it is not."""
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
        return error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member names its protocol type, and at least one protocol"
        )
    if len(request.protocols) > limits.classic_protocols:
        problem = f"a member supports at most {limits.classic_protocols} protocols, not {len(request.protocols)}"
        return error(ErrorCode.INVALID_REQUEST, problem)
    for name in (request.protocol_type, *(protocol.name for protocol in request.protocols)):
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            problem = f"names of protocols have 1 to {MAX_NAME_LENGTH} printable characters"
            return error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, problem)
    size = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if size > limits.classic_member_bytes:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"a member's metadata may have {limits.classic_member_bytes} bytes in all its protocols, not {size}:"
            " subscribe to fewer topics",
        )
    return None


def rebalance_timeout_ms(request: groups_pb2.JoinClassicGroupRequest, limits: ConsumerGroupLimits) -> int:
    """Returns the time that others have to join: the one of the request, within bounds; its session timeout if
    negative."""
    timeout_ms = request.rebalance_timeout_ms
    return min(timeout_ms, limits.max_rebalance_timeout_ms) if timeout_ms >= 0 else request.session_timeout_ms
