"""Steps of transactions in a partition that this node leads: opening one, and ending it with a marker.

The coordinator's side calls these on the leader. Both may be repeated, and come late: the places in the coordinator's
log decide (`open_transactions`). What a step has appended is in effect once its entry is applied.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.partition import refusals
from quorumlog.server.partition.open_transactions import MAX_ABORTED, MAX_OPEN, OpenedTransaction, OpenTransactions
from quorumlog.server.partition.partition import MAX_OFFSET, Partition
from quorumlog.server.partition.producer_state import MAX_TRANSACTIONAL_EPOCH, is_named
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import OpenTransaction as OpenCommand
from quorumlog.v1.partition_log_pb2 import PartitionCommand
from quorumlog.wire.kafka.control import LogPlace, build_marker


class TransactionDecision(NamedTuple):
    """The end of a transaction.

    Arguments:
        producer_epoch: at which the producer continues: earlier ones are fenced from the marker on.
        origin: where the coordinator's log has the partition as part of the transaction.
        decided: where the coordinator's log has the decision.
    """

    producer_id: int
    producer_epoch: int
    origin: LogPlace
    decided: LogPlace
    commit: bool


class TransactionEnding(NamedTuple):
    """The outcome of a decision in a partition.

    Arguments:
        marker_offset: of the marker; None if no transaction was open that the decision could end.
        index: the entry that must be applied in this leadership before the coordinator may be answered; 0: none.
            Without a marker, the leadership must be confirmed by a quorum first: a former leader may not have the entry
            that opened the transaction.
    """

    marker_offset: int | None
    index: int  # type: ignore[assignment]


def open_transaction(
    now: int, partition: Partition, producer_id: int, epoch: int, coordinator: int, enlisted: LogPlace
) -> errors_pb2.Error | None:
    """Opens a transaction in a partition. The batches of that producer may be appended from then on, in the same step.

    Repeating it has no effect.

    Arguments:
        now: microseconds.
        coordinator: the partition of the coordinator.
        enlisted: where the coordinator's log has this partition as part of the transaction.

    Returns:
        None if the transaction is open; otherwise the error, always definite. It is retriable if the transaction may be
        opened later: another one of the producer still waits for its marker, or there are too many.
    """
    problem = _refuse(partition, producer_id, epoch)
    if problem is not None:
        return problem
    transactions = partition.transactions or OpenTransactions()
    opened = transactions.known(producer_id).opened
    if enlisted <= transactions.newest_decision(producer_id):
        return refusals.transaction_over(partition.name, producer_id)
    if opened is not None:
        return None if opened.enlisted == enlisted else refusals.other_transaction_open(partition.name, producer_id)
    known = partition.producers.known(producer_id)
    if known is not None and epoch < known.epoch:
        return refusals.transaction_over(partition.name, producer_id)
    count = transactions.count
    if count >= MAX_OPEN or count + len(transactions.aborted) >= MAX_ABORTED:
        return refusals.too_many_transactions(partition.name, count, len(transactions.aborted))
    if partition.log_end_offset > MAX_OFFSET - MAX_OPEN:
        # Each transaction that is open has an offset left for its marker.
        return refusals.no_offsets_left(partition.name, 1)
    command = OpenCommand(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator=coordinator,
        enlisted_term=enlisted.term,
        enlisted_index=enlisted.index,
    )
    if partition.propose_command(now, PartitionCommand(open_transaction=command)):
        return None
    return refusals.takes_none(partition.name, "it waits for its followers, or hands over its leadership")


def end_transaction(
    now: int, wall_ms: int, partition: Partition, decision: TransactionDecision
) -> TransactionEnding | errors_pb2.Error:
    """Ends a producer's transaction with a marker, if it is open.

    Arguments:
        now: microseconds; wall_ms: milliseconds since the epoch.

    Returns:
        The error if this replica cannot do it now; then nothing was appended, and the coordinator tries again.
    """
    producer_id = decision.producer_id
    problem = _refuse(partition, producer_id, decision.producer_epoch)
    if problem is not None:
        return problem
    if partition.transactions is None:
        partition.transactions = partition.producers.transactions = OpenTransactions()
    transactions = partition.transactions
    state = transactions.known(producer_id)
    if state.opened is None or state.opened.enlisted > decision.origin:
        if state.decided < decision.decided and not transactions.remember(producer_id, decision.decided, now):
            return refusals.takes_none(partition.name, "too many decisions have come for transactions without a batch")
        is_marked = state.decided == decision.decided and state.marker_offset >= 0
        return TransactionEnding(state.marker_offset if is_marked else None, state.index)
    if state.opened.enlisted < decision.origin:
        # A former transaction, whose own decision comes later: it must not end with the outcome of this one.
        return refusals.other_transaction_open(partition.name, producer_id)
    marker = build_marker(producer_id, decision.producer_epoch, decision.decided, wall_ms, commit=decision.commit)
    try:
        index, offset = partition.append_marker(now, wall_ms, marker)
    except NotLeaderError:
        return partition.not_leader()
    except ProposalRefusedError as refused:
        return refusals.not_proposed(partition.name, refused)
    return TransactionEnding(offset, index)


def transaction_of(partition: Partition, producer_id: int) -> OpenedTransaction | None:
    """Returns the open transaction of a producer, on a leader with its uncommitted entries; None without one."""
    return None if partition.transactions is None else partition.transactions.known(producer_id).opened


def open_longer_than(now: int, partition: Partition, age_us: int) -> list[tuple[int, OpenedTransaction]]:
    """Returns the producers whose transactions have been open for long, as far as this leadership has seen.

    Arguments:
        now: microseconds.
    """
    if partition.transactions is None or not partition.leads:
        return []
    return partition.transactions.open_longer_than(now, age_us)


def _refuse(partition: Partition, producer_id: int, epoch: int) -> errors_pb2.Error | None:
    if not partition.leads:
        return partition.not_leader()
    if partition.feature_level < THIRD_FEATURE_LEVEL:
        return refusals.no_transactions_yet(partition.feature_level)
    if partition.is_taken_by_restore:
        return refusals.being_restored(partition.name)
    if producer_id < 0 or is_named(producer_id) or not 0 <= epoch <= MAX_TRANSACTIONAL_EPOCH:
        return error(
            ErrorCode.INVALID_REQUEST,
            f"producer {producer_id} with epoch {epoch} cannot have a transaction: use an id without a name, and epochs"
            f" up to {MAX_TRANSACTIONAL_EPOCH}",
        )
    return None
