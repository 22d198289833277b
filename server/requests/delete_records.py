"""Deletion of records: a command advances the log start offset, and the caller is answered once it is applied."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.server.access.permissions import operation_of
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.refusals import being_restored
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog

#: Operation that a client needs on each partition's topic.
_OPERATION = operation_of(admin_pb2.DeleteRecordsRequest)
#: ``before_offset`` that stands for the high watermark.
HIGH_WATERMARK = -1


@dataclass(slots=True)
class _Deletion:
    """A request that waits.

    ``waiting`` maps a group to the slot of its result and the log start offset and term that the request waits for.
    """

    request_id: int
    deadline: int
    response: admin_pb2.DeleteRecordsResponse
    waiting: dict[int, tuple[int, int, int]] = field(default_factory=dict)


class RecordDeletions:
    """Serves DeleteRecords for the partitions that this node leads.

    Arguments:
        limit: maximum number of requests that may wait.

    Attributes:
        by_group: the requests that wait for a Raft group.
    """

    def __init__(
        self,
        host: RaftHost,
        partitions: Replicas,
        limit: int,
        replies: Replies,
        absent: PartitionErrors,
    ) -> None:
        self._partitions = partitions
        self._replies = replies
        self._absent = absent
        self._host = host
        self._deletions: PendingCalls[_Deletion] = PendingCalls(limit)
        self.by_group: dict[int, set[int]] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.DeleteRecordsRequest, self.delete)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._deletions)

    def delete(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DeleteRecordsRequest) -> None:
        """Advances log start offsets; answers once each has moved or has failed."""
        deletion = _Deletion(
            asked.request_id, time.now + wait_us(request.timeout_ms), admin_pb2.DeleteRecordsResponse()
        )
        for wanted in request.partitions:
            result = deletion.response.results.add(
                topic_id=wanted.topic_id, partition=wanted.partition, log_start_offset=-1
            )
            problem = self._absent.refusal(asked.client, _OPERATION, wanted.topic_id)
            problem = problem or self._begin(time.now, deletion, wanted)
            if problem is not None:
                result.error.CopyFrom(problem)
        self._deletions.add(deletion)
        for group in deletion.waiting:
            self.by_group.setdefault(group, set()).add(asked.request_id)
        self._finish_if_done(deletion)

    def _begin(
        self, now: int, deletion: _Deletion, wanted: admin_pb2.DeleteRecordsPartition
    ) -> errors_pb2.Error | None:
        """Proposes the deletion for the last result of the response; returns the error if that is impossible."""
        partition = self._partitions.find(wanted.topic_id, wanted.partition)
        if partition is None:
            return self._absent.problem(wanted.topic_id, wanted.partition)
        before = partition.high_watermark if wanted.before_offset == HIGH_WATERMARK else wanted.before_offset
        problem = partition.check_readable(-1) or _check_allowed(partition, before)
        if problem is None and partition.group in deletion.waiting:
            problem = error(ErrorCode.INVALID_REQUEST, f"{partition.name} is named twice; name each partition once")
        if problem is None and self._deletions.full:
            waiting = f"{len(self._deletions)} deletions wait here already; try again after a pause"
            problem = error(ErrorCode.SERVER_BUSY, waiting)
        if problem is not None:
            return problem
        slot = len(deletion.response.results) - 1
        if before <= partition.log_start_offset:
            deletion.response.results[slot].log_start_offset = partition.log_start_offset
        elif partition.propose_command(now, PartitionCommand(trim_log=TrimLog(log_start_offset=before))):
            deletion.waiting[partition.group] = (slot, before, partition.raft.term)
            self._host.touch(partition.group)
        else:
            return error(ErrorCode.SERVER_BUSY, f"{partition.name} cannot accept commands at the moment; try again")
        return None

    def after_round(self, partition: Partition) -> None:
        """Completes the requests whose log start offset moved, or whose replica lost the leadership, in a step of the
        group."""
        for request_id in sorted(self.by_group[partition.group]):
            deletion = self._deletions.get(request_id)
            assert deletion is not None
            slot, before, term = deletion.waiting[partition.group]
            result = deletion.response.results[slot]
            if partition.log_start_offset >= before:
                result.log_start_offset = partition.log_start_offset
            elif not partition.leads or partition.raft.term != term:
                result.error.CopyFrom(_uncertain(partition.not_leader()))
            else:
                continue
            self._forget(deletion, partition.group)
            self._finish_if_done(deletion)

    def _forget(self, deletion: _Deletion, group: int) -> None:
        del deletion.waiting[group]
        requests = self.by_group[group]
        requests.discard(deletion.request_id)
        if not requests:
            del self.by_group[group]

    def _finish_if_done(self, deletion: _Deletion) -> None:
        if not deletion.waiting:
            self._deletions.take(deletion.request_id)
            self._replies.reply(deletion.request_id, deletion.response)

    def raft_group_gone(self, now: int, group: int) -> None:
        """Fails the requests for a replica that was removed from this node; their clients retry on another node."""
        for request_id in sorted(self.by_group.get(group, ())):
            deletion = self._deletions.get(request_id)
            assert deletion is not None
            result = deletion.response.results[deletion.waiting[group][0]]
            result.error.CopyFrom(_uncertain(self._absent.problem(result.topic_id, result.partition)))
            self._forget(deletion, group)
            self._finish_if_done(deletion)

    def client_gone(self, request_id: int) -> None:
        deletion = self._deletions.take(request_id)
        if deletion is not None:
            for group in list(deletion.waiting):
                self._forget(deletion, group)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the requests whose deadline has passed."""
        late = "the log start offset did not move in time; it may still move, and it is safe to retry"
        for deletion in self._deletions.take_expired(now):
            for group, (slot, _, _) in list(deletion.waiting.items()):
                problem = error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False)
                deletion.response.results[slot].error.CopyFrom(problem)
                self._forget(deletion, group)
            self._finish_if_done(deletion)


def failed_deletion(
    request: admin_pb2.DeleteRecordsRequest, problem: errors_pb2.Error
) -> admin_pb2.DeleteRecordsResponse:
    """Returns the response to a request that failed as a whole."""
    response = admin_pb2.DeleteRecordsResponse()
    for emptied in request.partitions:
        response.results.add(topic_id=emptied.topic_id, partition=emptied.partition, error=problem, log_start_offset=-1)
    return response


def _uncertain(problem: errors_pb2.Error) -> errors_pb2.Error:
    """Marks the error as indefinite: the command is in this replica's log, and the next leader may commit it."""
    problem.definite = False
    return problem


def _check_allowed(partition: Partition, before: int) -> errors_pb2.Error | None:
    if partition.restoring:
        return being_restored(partition.name)
    if not partition.config.deletes:
        return error(
            ErrorCode.POLICY_VIOLATION,
            f"topic {partition.identity.topic} is compacted; records are deleted by offset only with"
            " cleanup.policy=delete or compact,delete",
        )
    if not 0 <= before <= partition.high_watermark:
        return error(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {before} of {partition.name} is outside 0..{partition.high_watermark}; -1 deletes all records",
        )
    return None
