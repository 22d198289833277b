"""What clients hear when a partition refuses them."""

from __future__ import annotations

from quorumlog.raft.errors import ProposalRefusedError, Refusal, UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def not_leader(name: str, raft: RaftGroup) -> errors_pb2.Error:
    """Only the leader can serve it; with a hint where that is."""
    return error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"this node does not lead {name}; ask its leader",
        leader=raft.leader_id,
        leader_epoch=raft.term,
    )


def leadership_moved(name: str, raft: RaftGroup) -> errors_pb2.Error:
    """The batch is in the log of a leader that is none any more."""
    return error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the leadership of {name} moved while the batch was on its way; send it again to the new leader",
        definite=False,
        leader=raft.leader_id,
        leader_epoch=raft.term,
    )


def replica_ended(name: str) -> errors_pb2.Error:
    """The batch is in the log of a replica that is gone."""
    return error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{name} was deleted, or left this node, while the batch was on its way; refresh the metadata",
        definite=False,
    )


def other_epoch(name: str, raft: RaftGroup, leader_epoch: int) -> errors_pb2.Error:
    """The client knows another leader epoch than the partition's."""
    if leader_epoch < raft.term:
        return error(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name} is led in epoch {raft.term}, not {leader_epoch}; refresh the metadata",
            leader=raft.leader_id,
            leader_epoch=raft.term,
        )
    return error(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"this node knows {name} only up to epoch {raft.term}; try again shortly"
    )


def being_restored(name: str) -> errors_pb2.Error:
    """It takes nothing but what a restore brings."""
    return error(ErrorCode.SERVER_BUSY, f"{name} is being restored from a backup; try again when that is finished")


def takes_none(name: str, reason: object) -> errors_pb2.Error:
    """Raft takes nothing at the moment."""
    return error(ErrorCode.SERVER_BUSY, f"{name} takes no batches for a moment: {reason}")


def not_proposed(name: str, refused: ProposalRefusedError) -> errors_pb2.Error:
    """Raft takes nothing at the moment. Where somebody else leads in a moment, whoever is told that the leader is busy
    comes back to it, and finds it gone."""
    if refused.reason is not Refusal.TRANSFERRING:
        return takes_none(name, refused)
    return error(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"the leadership of {name} is being handed over; ask who leads it next",
    )


def not_ready(name: str) -> errors_pb2.Error:
    """A new leader does not know yet what is committed."""
    return error(ErrorCode.LEADER_NOT_AVAILABLE, f"the new leader of {name} is not ready yet; try again")


def outside(name: str, offset: int, start: int, end: int) -> errors_pb2.Error:
    """The offset is not in the log."""
    return error(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {name} is outside {start}..{end}")


def no_offsets_left(name: str, records: int) -> errors_pb2.Error:
    """Offsets have 64 bits."""
    return error(ErrorCode.INVALID_RECORD, f"{name} has no offsets left for {records} records: use another topic")


def too_few_replicas(name: str, live: int, needed: int) -> errors_pb2.Error:
    """Too few can confirm it; nothing was appended."""
    return error(
        ErrorCode.NOT_ENOUGH_REPLICAS, f"{name} has {live} live replicas, acks=all needs {needed}; try again later"
    )


def short_of_copies(name: str, live: int) -> errors_pb2.Error:
    """It was appended, and then a replica went away."""
    return error(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        f"appended to {name}, but only {live} replicas are left to confirm it; send it again later",
        definite=False,
    )


def unreadable(name: str, damage: UnreadableEntryError) -> errors_pb2.Error:
    """What whoever would read a damaged entry is told, until it is mended."""
    return error(
        ErrorCode.STORAGE_ERROR,
        f"entry {damage.index} of {name} is damaged on this node and has yet to be mended; try again shortly",
    )
