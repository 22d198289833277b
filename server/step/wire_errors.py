"""Builds the errors in responses, and decides which of them are retriable and which are definite."""

from __future__ import annotations

from quorumlog.raft.types import NO_NODE
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

_RETRIABLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.SERVER_BUSY,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.TOO_MANY_FETCH_SESSIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_NOT_FORMED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.SASL_SESSION_EXPIRED,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

#: Maximum length of a message in characters. A request may name ten thousand topics with names of any length, and gets
#: a message for each.
MAX_MESSAGE_LENGTH = 500


def is_retriable(code: ErrorCode.ValueType) -> bool:
    """True if the same request may succeed later."""
    return code in _RETRIABLE


def error(
    code: ErrorCode.ValueType,
    message: str,
    *,
    definite: bool = True,
    leader: int = NO_NODE,
    leader_epoch: int = 0,
    throttle_time_ms: int = 0,
) -> errors_pb2.Error:
    """Returns an error.

    Arguments:
        message: what is wrong and what to do. It may quote what a client sent: unprintable characters are escaped, so
            that it stays one line, and it is cut at ``MAX_MESSAGE_LENGTH`` characters.
        definite: False if the attempt may still take effect.
        leader: node id of the partition's leader, if known.
        leader_epoch: the epoch in which it leads.
        throttle_time_ms: how long to wait before the next attempt, if a quota requires it.
    """
    message = message[:MAX_MESSAGE_LENGTH]
    if not message.isprintable():
        message = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)
    made = errors_pb2.Error(code=code, message=message, retriable=is_retriable(code), definite=definite)
    if throttle_time_ms:
        made.throttle_time_ms = throttle_time_ms
    if leader != NO_NODE:
        made.leader.node_id = leader
        made.leader.leader_epoch = leader_epoch
    return made
