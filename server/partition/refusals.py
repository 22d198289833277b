"""Errors for requests that a partition refuses."""

from __future__ import annotations

from quorumlog.raft.errors import ProposalRefusedError, Refusal, UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.partition.producer_table import Refused
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def not_leader(name: str, raft: RaftGroup) -> errors_pb2.Error:
    """Returns the error for a request that only the leader can serve, with the known leader as a hint."""
    return error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"this node does not lead {name}; ask its leader",
        leader=raft.leader_id,
        leader_epoch=raft.term,
    )


def leadership_moved(name: str, raft: RaftGroup) -> errors_pb2.Error:
    """Returns the error for a batch in the log of a leader that has lost the leadership."""
    return error(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the leadership of {name} moved while the batch was being replicated; retry with the new leader",
        definite=False,
        leader=raft.leader_id,
        leader_epoch=raft.term,
    )


def replica_ended(name: str) -> errors_pb2.Error:
    """Returns the error for a batch in the log of a replica that is gone."""
    return error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{name} was deleted, or moved to other nodes, while the batch was being replicated; refresh the metadata",
        definite=False,
    )


def other_epoch(name: str, raft: RaftGroup, leader_epoch: int) -> errors_pb2.Error:
    """Returns the error for a client with another leader epoch than the partition's."""
    if leader_epoch < raft.term:
        return error(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{name} is led in epoch {raft.term}, not {leader_epoch}; refresh the metadata",
            leader=raft.leader_id,
            leader_epoch=raft.term,
        )
    return error(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"this node has {name} only up to epoch {raft.term}; try again shortly"
    )


def of_batch(refused: Refused) -> errors_pb2.Error:
    """Returns the error for a batch that its producer may not append."""
    return error(refused.code, refused.message)


def being_restored(name: str) -> errors_pb2.Error:
    """Returns the error for a partition that accepts only steps of its restore."""
    return error(ErrorCode.SERVER_BUSY, f"{name} is being restored from a backup; try again when that is finished")


def takes_none(name: str, reason: object) -> errors_pb2.Error:
    """Returns the error for a batch that Raft cannot accept at the moment."""
    return error(ErrorCode.SERVER_BUSY, f"{name} cannot accept batches at the moment: {reason}")


def not_proposed(name: str, refused: ProposalRefusedError) -> errors_pb2.Error:
    """Returns the error for a batch that Raft cannot accept at the moment.

    During a transfer of leadership the client must look up the next leader: if it learned that the leader is busy, it
    would retry here, and find the leader gone.
    """
    if refused.reason is not Refusal.TRANSFERRING:
        return takes_none(name, refused)
    return error(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"the leadership of {name} is being transferred; refresh the metadata for the next leader",
    )


def not_ready(name: str) -> errors_pb2.Error:
    """Returns the error of a new leader that has no commit index of its term yet."""
    return error(ErrorCode.LEADER_NOT_AVAILABLE, f"the new leader of {name} is not ready yet; try again")


def outside(name: str, offset: int, start: int, end: int) -> errors_pb2.Error:
    """Returns the error for an offset that is not in the log."""
    return error(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {name} is outside {start}..{end}")


def not_here(name: str, offset: int, end: int) -> errors_pb2.Error:
    """Returns the error of a follower for an offset that it has not reached, or may not serve."""
    return error(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"this replica of {name} has no offset {offset}, only up to {end}; ask the leader",
    )


def out_of_sync(name: str) -> errors_pb2.Error:
    """Returns the error of a follower outside of the ISR."""
    return error(ErrorCode.OFFSET_NOT_AVAILABLE, f"this replica of {name} is out of sync; ask the leader")


def no_offsets_left(name: str, records: int) -> errors_pb2.Error:
    """Returns the error for a batch that would exceed 64-bit offsets."""
    return error(ErrorCode.INVALID_RECORD, f"{name} has no offsets left for {records} records: use another topic")


def too_few_replicas(name: str, live: int, needed: int) -> errors_pb2.Error:
    """Returns the error for a batch that too few replicas could confirm; nothing was appended."""
    return error(
        ErrorCode.NOT_ENOUGH_REPLICAS, f"{name} has {live} live replicas, acks=all needs {needed}; try again later"
    )


def short_of_copies(name: str, live: int) -> errors_pb2.Error:
    """Returns the error for a batch that was appended before a replica was lost."""
    return error(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        f"appended to {name}, but only {live} replicas are left to confirm it; retry later",
        definite=False,
    )


def unreadable(name: str, damage: UnreadableEntryError) -> errors_pb2.Error:
    """Returns the error for a read of a damaged entry that is not repaired yet."""
    return error(
        ErrorCode.STORAGE_ERROR,
        f"entry {damage.index} of {name} is damaged on this node and not yet repaired; try again shortly",
    )


def no_transactions_yet(level: int) -> errors_pb2.Error:
    """Returns the error for a transaction while nodes of an older version are in the cluster."""
    return error(
        ErrorCode.UNSUPPORTED_VERSION,
        f"transactions need feature level {THIRD_FEATURE_LEVEL}, the cluster is at {level}: upgrade all nodes, see"
        " quorumlog features describe",
    )


def transaction_over(name: str, producer_id: int) -> errors_pb2.Error:
    """Returns the error for a transaction that is decided, or whose producer has a later epoch."""
    return error(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"the transaction of producer {producer_id} in {name} is over: start another one",
    )


def other_transaction_open(name: str, producer_id: int) -> errors_pb2.Error:
    """Returns the error for a transaction whose predecessor has no marker yet."""
    return error(
        ErrorCode.SERVER_BUSY,
        f"the former transaction of producer {producer_id} in {name} is not ended yet; try again shortly",
    )


def too_many_transactions(name: str, open_ones: int, aborted: int) -> errors_pb2.Error:
    """Returns the error for a transaction that a partition has no room for."""
    return error(
        ErrorCode.SERVER_BUSY,
        f"{name} has {open_ones} open transactions and {aborted} aborted ones that are still in its log: try again when"
        " some have ended, or retention has removed some",
    )


def outside_of_transaction(name: str, producer_id: int, *, is_transactional: bool) -> errors_pb2.Error:
    """Returns the error for a batch that contradicts its producer's transaction."""
    if is_transactional:
        what = f"no transaction of producer {producer_id} is open in {name} in this epoch"
    else:
        what = f"a transaction of producer {producer_id} is open in {name}, to which the batch does not belong"
    return error(ErrorCode.INVALID_RECORD, what)
