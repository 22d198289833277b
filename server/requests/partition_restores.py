"""Backups and restores of single partitions: the state of a log at one moment, and the steps that reproduce it
elsewhere.

A description is one answer of the leader, from its applied state, so that the end of the log and the state of producers
match. It may be behind acknowledged records, for example in a network partition; a backup therefore looks up the end of
the log before with a linearizable read, and compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.server.access.permissions import operation_of
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.restoration import gaps_before
from quorumlog.server.partition.restore_steps import take_step
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.batch_appends import AppendConditions
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Operation that a client needs on a topic that is described for a backup.
_OPERATION = operation_of(admin_pb2.DescribePartitionLogRequest)
#: Bytes of producers in one description, which has at least one producer.
PAGE_BYTES = 8 << 20


@dataclass(slots=True, frozen=True)
class _PendingStep:
    """A step in the log of a Raft group, complete once ``index`` is applied in the same term."""

    request_id: int
    deadline: int
    group: int
    index: int
    term: int


class PartitionRestores:
    """Serves DescribePartitionLog and RestorePartition for the partitions that this node leads.

    Attributes:
        steps: the steps of restores that wait to be applied.
    """

    def __init__(
        self,
        host: RaftHost,
        partitions: Replicas,
        metadata: CurrentImage,
        limits: NodeLimits,
        conditions: AppendConditions,
        replies: Replies,
        absent: PartitionErrors,
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._metadata = metadata
        self._limits = limits
        self._conditions = conditions
        self._replies = replies
        self._absent = absent
        self.steps: PendingCalls[_PendingStep] = PendingCalls(limits.waiting_deletions)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.DescribePartitionLogRequest, self.describe)
        hooks.serve(admin_pb2.RestorePartitionRequest, self.restore)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self.steps)

    # -- backups ----------------------------------------------------------------------------------------------

    def describe(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DescribePartitionLogRequest) -> None:
        """Describes the state of a log."""
        not_allowed = self._absent.refusal(asked.client, _OPERATION, request.topic_id)
        partition = self._partitions.find(request.topic_id, request.partition)
        if not_allowed is not None:
            problem = not_allowed
        elif partition is None:
            problem = self._absent.problem(request.topic_id, request.partition)
        else:
            refused = partition.check_readable(-1)
            if refused is None:
                self._replies.reply(asked.request_id, _description(partition, request.after_producer_id))
                return
            problem = refused
        self._replies.reply(asked.request_id, failed_partition_description(request, problem))

    # -- restores ---------------------------------------------------------------------------------------------

    def restore(self, time: StepTime, asked: ClientRequest, request: admin_pb2.RestorePartitionRequest) -> None:
        """Proposes a step, and answers once it is applied."""
        partition = self._partitions.find(request.topic_id, request.partition)
        if partition is None:
            problem: errors_pb2.Error | None = self._absent.problem(request.topic_id, request.partition)
        else:
            problem = self._refusal(partition) or take_step(time.now, partition, request, self._limits)
            if problem is None:
                raft, deadline = partition.raft, time.now + wait_us(request.timeout_ms)
                self._host.touch(partition.group)
                self.steps.add(_PendingStep(asked.request_id, deadline, partition.group, raft.last_id.index, raft.term))
                self.after_round(partition)
                return
            self._host.touch(partition.group)
        assert problem is not None
        self._replies.reply(asked.request_id, failed_partition_restore(request, problem))

    def _refusal(self, partition: Partition) -> errors_pb2.Error | None:
        problem = refuse_below_second(self._metadata.image, "partitions are restored") or partition.check_readable(-1)
        if problem is None and self.steps.full:
            waiting = f"{len(self.steps)} steps of restores wait here already; try again after a pause"
            problem = error(ErrorCode.SERVER_BUSY, waiting)
        return problem or self._conditions.refusal()

    def after_round(self, partition: Partition) -> None:
        """Answers the steps that were applied in a step of the group, and fails those whose leader lost the
        leadership."""
        for step in self.steps:
            if step.group != partition.group:
                continue
            if not partition.leads or partition.raft.term != step.term:
                problem = partition.not_leader()
                problem.definite = False
                self._answer(step, admin_pb2.RestorePartitionResponse(error=problem))
            elif partition.applied_index >= step.index:
                restoration = partition.restoration
                response = admin_pb2.RestorePartitionResponse(
                    next_offset=partition.high_watermark,
                    finished=restoration is not None and restoration.finished,
                )
                self._answer(step, response)

    def _answer(self, step: _PendingStep, response: admin_pb2.RestorePartitionResponse) -> None:
        self.steps.take(step.request_id)
        self._replies.reply(step.request_id, response)

    def raft_group_gone(self, now: int, group: int) -> None:
        """Fails the steps of a replica that was removed from this node; their clients retry on another node."""
        problem = error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was removed from this node; ask its leader")
        problem.definite = False
        for step in self.steps:
            if step.group == group:
                self._answer(step, admin_pb2.RestorePartitionResponse(error=problem))

    def client_gone(self, request_id: int) -> None:
        self.steps.take(request_id)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the steps whose deadline has passed."""
        late = "the step was not committed in time; it may still be, and it is safe to retry"
        for step in self.steps.take_expired(now):
            problem = error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False)
            self._replies.reply(step.request_id, admin_pb2.RestorePartitionResponse(error=problem))


def _description(partition: Partition, after: int) -> admin_pb2.DescribePartitionLogResponse:
    restoration = partition.restoration
    response = admin_pb2.DescribePartitionLogResponse(
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        leader_epoch=partition.raft.term,
        compacted_offset=gaps_before(partition.compacted_offset, restoration),
        applied_index=partition.applied_index,
        restore_id=restoration.restore_id if restoration is not None else b"",
        restoring=partition.restoring,
    )
    if partition.last_stable_offset < partition.high_watermark:
        response.last_stable_offset = partition.last_stable_offset
    if partition.transactions is not None and after < 0:
        for producer_id, opened in partition.transactions.open.items():
            response.open.add(producer_id=producer_id, first_offset=opened.first_offset)
    size = 0
    for record in partition.producers.records(after):
        if size >= PAGE_BYTES:
            response.more = True
            break
        size += record.ByteSize()
        response.producers.append(record)
    return response


def failed_partition_description(
    request: admin_pb2.DescribePartitionLogRequest, problem: errors_pb2.Error
) -> admin_pb2.DescribePartitionLogResponse:
    """Returns the response to a description that failed."""
    return admin_pb2.DescribePartitionLogResponse(error=problem)


def failed_partition_restore(
    request: admin_pb2.RestorePartitionRequest, problem: errors_pb2.Error
) -> admin_pb2.RestorePartitionResponse:
    """Returns the response to a step of a restore that failed."""
    return admin_pb2.RestorePartitionResponse(error=problem)
