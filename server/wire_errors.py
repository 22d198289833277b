"""Builds the errors that travel in responses: which are retriable, and which are definite."""

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
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.TOO_MANY_FETCH_SESSIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_NOT_FORMED,
        ErrorCode.CORRUPT_MESSAGE,
    }
)


def is_retriable(code: ErrorCode.ValueType) -> bool:
    """Whether the same request may succeed later."""
    return code in _RETRIABLE


def error(
    code: ErrorCode.ValueType,
    message: str,
    *,
    definite: bool = True,
    leader: int = NO_NODE,
    leader_epoch: int = 0,
) -> errors_pb2.Error:
    """One error.

    Arguments:
        message: one line that says what is wrong and what to do.
        definite: False when the attempt may yet take effect.
        leader: node id of the partition's leader where it is known.
        leader_epoch: the epoch in which it leads.
    """
    assert "\n" not in message
    made = errors_pb2.Error(code=code, message=message, retriable=is_retriable(code), definite=definite)
    if leader != NO_NODE:
        made.leader.node_id = leader
        made.leader.leader_epoch = leader_epoch
    return made
