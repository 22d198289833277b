"""Appends of produced batches to the partitions that this node leads.

Most are appended or refused immediately. The first batch of a transaction in a partition waits until the partition
takes part in the transaction (`transactional_batches`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from quorumlog.server.access.permissions import operation_of
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.partition.acknowledgements import ProduceCall
from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.requests.refused_batches import RefusedBatches
from quorumlog.server.requests.transactional_batches import TransactionalBatches, must_be_enlisted
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_shard import check_transactional_id
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import CorruptEntryError, parse_batch
from quorumlog.wire.kafka.entry import is_kafka

#: Operation that a client needs on each batch's topic.
_OPERATION = operation_of(data_plane_pb2.ProduceRequest)

#: Answers calls of which every slot is filled.
Finish = Callable[[list[ProduceCall]], None]


class AppendConditions(Protocol):
    """Conditions for appends on this node, beyond those of the partitions themselves."""

    def live_replicas(self, partition: Partition) -> int:
        """Returns the number of voters of a partition that are expected to confirm an append, this node included."""

    def refusal(self) -> errors_pb2.Error | None:
        """Returns the error if this node accepts no appends now; None if it does."""


@dataclass(slots=True)
class ProducedBatch:
    """One batch of a produce request.

    Arguments:
        data: the batch; each access to the field of the message copies it.
        call: answered when all slots are filled.
        slot: of the batch.
        appended_to: the partition, once it is appended; None for a duplicate.
    """

    asked: ClientRequest
    request: data_plane_pb2.ProduceRequest
    batch: data_plane_pb2.PartitionBatch
    data: bytes
    call: ProduceCall
    slot: int
    appended_to: Partition | None = None


class BatchAppends:
    """Appends batches, and fills the slots of those that are refused.

    Attributes:
        refused: the gaps in producers' sequences that this node has made.
    """

    def __init__(
        self,
        host: RaftHost,
        partitions: Replicas,
        conditions: AppendConditions,
        absent: PartitionErrors,
        waiting: TransactionalBatches,
    ) -> None:
        self.refused = RefusedBatches()
        self._host = host
        self._partitions = partitions
        self._conditions = conditions
        self._absent = absent
        self._waiting = waiting

    def append(self, time: StepTime, produced: ProducedBatch, finish: Finish) -> errors_pb2.Error | None:
        """Appends a batch, or makes it wait for its transaction; fills its slot and returns the error if it is refused.

        Arguments:
            time: also of later steps.
            finish: called with a call that is done because a batch that has waited was refused.
        """
        batch = produced.batch
        partition = self._find(produced)
        if isinstance(partition, errors_pb2.Error):
            return self.refuse(time.now, batch, partition, produced.call, produced.slot)
        header = must_be_enlisted(partition, produced.data)
        if header is None:
            return self._append(time, produced, partition)
        if not produced.request.transactional_id:
            problem: errors_pb2.Error | None = error(
                ErrorCode.INVALID_RECORD, "a batch of a transaction in a request without a transactional id"
            )
        else:

            def settle(problem: errors_pb2.Error | None) -> None:
                self._settle(time, produced, problem, finish)

            problem = self._waiting.wait(partition, produced.request, header, len(produced.data), settle)
        if problem is None:
            return None
        return self.refuse(time.now, batch, problem, produced.call, produced.slot)

    def _settle(
        self, time: StepTime, produced: ProducedBatch, problem: errors_pb2.Error | None, finish: Finish
    ) -> None:
        """Appends a batch that has waited, or refuses it. One whose client is gone, or was answered, is dropped."""
        call, slot = produced.call, produced.slot
        if slot not in call.open_slots:
            return
        if problem is None:
            partition = self._find(produced)
            if isinstance(partition, errors_pb2.Error):
                problem = partition
            elif self._append(time, produced, partition) is None:
                return
        if problem is not None:
            self.refuse(time.now, produced.batch, problem, call, slot)
        if call.done:
            finish([call])

    def refuse(
        self, now: int, batch: data_plane_pb2.PartitionBatch, problem: errors_pb2.Error, call: ProduceCall, slot: int
    ) -> errors_pb2.Error:
        """Fills the slot of a refused batch; returns the error that it gets."""
        problem = self.refused.refused(now, batch, problem)
        call.fill(slot, error=problem, base_offset=-1, log_append_time_ms=-1)
        return problem

    def refuse_transaction(self, client: RequestContext, transactional_id: str) -> errors_pb2.Error | None:
        """Returns the error if a client may not write in the transactions of a transactional id."""
        return check_transactional_id(transactional_id) or self._absent.refuse_transactions(client, transactional_id)

    def _find(self, produced: ProducedBatch) -> Partition | errors_pb2.Error:
        client, batch = produced.asked.client, produced.batch
        refused = self._absent.refusal(client, _OPERATION, batch.topic_id)
        if refused is not None:
            return refused
        partition = self._partitions.find(batch.topic_id, batch.partition)
        if partition is None:
            return self._absent.problem(batch.topic_id, batch.partition)
        if client.listener is not Listener.KAFKA and _is_kafka_batch(produced.data):
            # Only the listener for Kafka's clients validates the records of such a batch.
            return error(ErrorCode.INVALID_RECORD, "a Kafka batch: produce it at the port for Kafka's clients")
        return partition

    def _append(self, time: StepTime, produced: ProducedBatch, partition: Partition) -> errors_pb2.Error | None:
        call, slot = produced.call, produced.slot
        live = self._conditions.live_replicas(partition)
        end_before = partition.log_end_offset
        problem = partition.append(time.now, time.wall_ms, produced.data, produced.request.acks, call, slot, live)
        if problem is not None:
            # An unknown producer may have been forgotten with its records: its client compares.
            call.fill_start(slot, partition.log_start_offset)
            return self.refuse(time.now, produced.batch, problem, call, slot)
        appended = partition.log_end_offset - end_before
        if appended:  # Nothing is appended of a duplicate.
            partition.appended_bytes += len(produced.data)
            partition.appended_records += appended
            produced.appended_to = partition
        self.refused.accepted(time.now, produced.batch)
        self._host.touch(partition.group)
        return None


def _is_kafka_batch(entry: bytes) -> bool:
    if not is_kafka(entry):
        return False
    try:
        parse_batch(entry)
    except CorruptEntryError:
        return False
    return True
