"""Checks of requests that do not depend on the state of a consumer group."""

from __future__ import annotations

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.assignors import ASSIGNORS
from quorumlog.server.groups.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from quorumlog.server.groups.subscriptions import InvalidPatternError, compiled
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import is_internal

#: Maximum length of a consumer group's id, a static name or a topic's name; and of a member's id.
MAX_NAME_LENGTH = 249
MAX_MEMBER_ID_LENGTH = 64


def check_group_id(group_id: str) -> errors_pb2.Error | None:
    """Returns the error if a consumer group cannot have this id; None if it can."""
    if not 1 <= len(group_id) <= MAX_NAME_LENGTH:
        return error(
            ErrorCode.INVALID_GROUP_ID, f"a group's id has 1 to {MAX_NAME_LENGTH} characters, not {len(group_id)}"
        )
    # The id appears in tables, log lines and messages, as do the names of members.
    if not group_id.isprintable():
        return error(ErrorCode.INVALID_GROUP_ID, f"a group's id has printable characters only: {group_id} does not")
    return None


def check_heartbeat(request: groups_pb2.GroupHeartbeatRequest, limits: ConsumerGroupLimits) -> errors_pb2.Error | None:
    """Returns the error if a heartbeat is malformed; None if it is not."""
    refused = check_group_id(request.group_id)
    if refused is not None:
        return refused
    if not 1 <= len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        return _invalid(f"a member's id has 1 to {MAX_MEMBER_ID_LENGTH} characters, not {len(request.member_id)}")
    if len(request.instance_id) > MAX_NAME_LENGTH:
        return _invalid(f"a static name has at most {MAX_NAME_LENGTH} characters, not {len(request.instance_id)}")
    if len(request.rack) > MAX_NAME_LENGTH:
        return _invalid(f"a rack's name has at most {MAX_NAME_LENGTH} characters, not {len(request.rack)}")
    for name in (request.member_id, request.instance_id, request.rack):
        if not name.isprintable():
            return _invalid(f"names of members and racks have printable characters only: {name} does not")
    epoch = request.member_epoch
    if epoch < STATIC_LEAVE_EPOCH:
        return _invalid(f"{epoch} is not a member epoch: join with 0, leave with -1, or with -2 to return")
    if epoch == STATIC_LEAVE_EPOCH and not request.instance_id:
        return _invalid("only a member with a static name can leave with -2 (to return): leave with -1")
    if epoch < JOIN_EPOCH:
        return None
    if epoch == JOIN_EPOCH and request.owned:
        return _invalid("a member that joins owns nothing: give up all partitions first")
    return _check_times(request, limits) or _check_subscription(request, limits)


def _check_times(request: groups_pb2.GroupHeartbeatRequest, limits: ConsumerGroupLimits) -> errors_pb2.Error | None:
    least, most = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        return _invalid(f"session_timeout_ms is {request.session_timeout_ms}: choose one from {least} to {most}")
    most = limits.max_rebalance_timeout_ms
    if not 1 <= request.rebalance_timeout_ms <= most:
        return _invalid(f"rebalance_timeout_ms is {request.rebalance_timeout_ms}: choose one from 1 to {most}")
    return None


def _check_subscription(
    request: groups_pb2.GroupHeartbeatRequest, limits: ConsumerGroupLimits
) -> errors_pb2.Error | None:
    if len(request.topics) > limits.topics_per_member:
        return _invalid(f"a member subscribes to at most {limits.topics_per_member} topics by name: use a pattern")
    for topic in request.topics:
        if not 1 <= len(topic) <= MAX_NAME_LENGTH:
            return error(
                ErrorCode.INVALID_TOPIC, f"a topic's name has 1 to {MAX_NAME_LENGTH} characters, not {len(topic)}"
            )
        if is_internal(topic):
            return error(ErrorCode.INVALID_TOPIC, f"topic {topic} belongs to the cluster itself: subscribe to others")
    if request.assignor and request.assignor not in ASSIGNORS:
        known = ", ".join(sorted(ASSIGNORS))
        return error(ErrorCode.UNSUPPORTED_ASSIGNOR, f"assignor {request.assignor} does not exist: choose from {known}")
    return _check_pattern(request.topic_pattern, limits)


def _check_pattern(pattern: str, limits: ConsumerGroupLimits) -> errors_pb2.Error | None:
    if len(pattern) > limits.pattern_length:
        return error(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the topic pattern has {len(pattern)} characters: use at most {limits.pattern_length}",
        )
    try:
        if pattern:
            compiled(pattern)
    except InvalidPatternError as problem:
        return error(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the topic pattern {pattern} is not an RE2 expression: {problem}"
        )
    return None


def _invalid(message: str) -> errors_pb2.Error:
    return error(ErrorCode.INVALID_REQUEST, message)
