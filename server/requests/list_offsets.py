"""Offset lookups: log start and end, offsets by timestamp, and the end of leader epochs; all of them are linearizable.

A leader answers only after a quorum has confirmed that it still leads (`read_index.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.partition.epoch_lookup import find_epoch_end
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.refusals import unreadable
from quorumlog.server.partition.time_lookup import find_latest, find_time
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.fetch import refuse_kafka
from quorumlog.server.requests.isolation import refuse_transactions, stable_end
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.storage.interface import StorageReader
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, AclOperation
from quorumlog.v1.errors_pb2 import ErrorCode

#: Operation that a client needs on each partition's topic, except for lookups by timestamp.
_OPERATION = operation_of(data_plane_pb2.ListOffsetsRequest)
EARLIEST = -2
LATEST = -1
#: The record with the latest timestamp (KIP-734).
LATEST_TIME = -3
#: The end of a leader epoch (KIP-320).
END_OF_EPOCH = -4
#: Limits of one answer: lookups in the offset index, by timestamp or epoch, and bytes of batches. Results beyond them
#: are marked unfinished, and the client asks again.
TIMES_PER_ANSWER = 64
ENTRY_BYTES_PER_ANSWER = 8 << 20


@dataclass(slots=True)
class _Lookup:
    """A request that waits.

    Arguments:
        client: the client that asks.
        waiting: slots by group, each with the term and heartbeat round that must be confirmed.
        takes_kafka_batches: True if the client can read a batch of a Kafka client.
        isolation_level: which records of transactions it reads.
        times, entry_bytes: lookups by timestamp or epoch made for the answer so far, and bytes of batches in it.
    """

    request_id: int
    deadline: int
    client: RequestContext
    wanted: Sequence[data_plane_pb2.ListOffsetsPartition]
    response: data_plane_pb2.ListOffsetsResponse
    takes_kafka_batches: bool
    isolation_level: data_plane_pb2.IsolationLevel.ValueType
    waiting: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    times: int = 0
    entry_bytes: int = 0


class OffsetRequests:
    """Serves ListOffsets from the partitions that this node leads.

    Arguments:
        reader: durable state, for lookups by timestamp.
        rounds: rounds of heartbeats, shared with other reads.
        limit: maximum number of requests that may wait for confirmation.

    Attributes:
        by_group: the requests that wait for a Raft group.
    """

    def __init__(
        self,
        partitions: Replicas,
        reader: StorageReader,
        limit: int,
        replies: Replies,
        absent: PartitionErrors,
        rounds: HeartbeatRounds,
    ) -> None:
        self._partitions = partitions
        self._reader = reader
        self._replies = replies
        self._absent = absent
        self._rounds = rounds
        self._lookups: PendingCalls[_Lookup] = PendingCalls(limit)
        self.by_group: dict[int, set[int]] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(data_plane_pb2.ListOffsetsRequest, self.list_offsets)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._lookups)

    def list_offsets(self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.ListOffsetsRequest) -> None:
        """Looks offsets up once a quorum has confirmed that this node leads their partitions."""
        response = data_plane_pb2.ListOffsetsResponse()
        deadline = time.now + wait_us(request.timeout_ms)
        lookup = _Lookup(
            asked.request_id, deadline, asked.client, request.partitions, response, request.takes_kafka_batches,
            request.isolation_level,
        )  # fmt: skip
        for wanted in request.partitions:
            self._begin(time.now, asked.client, lookup, wanted)
        self._lookups.add(lookup)
        for group in lookup.waiting:
            self.by_group.setdefault(group, set()).add(asked.request_id)
        self._finish_if_done(lookup)

    def _begin(
        self, now: int, client: RequestContext, lookup: _Lookup, wanted: data_plane_pb2.ListOffsetsPartition
    ) -> None:
        slot = len(lookup.response.results)
        result = lookup.response.results.add(
            topic_id=wanted.topic_id, partition=wanted.partition, offset=-1, timestamp_ms=-1
        )
        refused = self._absent.refusal(client, _operation(wanted), wanted.topic_id)
        if refused is not None:
            result.error.CopyFrom(refused)
            return
        partition = self._partitions.find(wanted.topic_id, wanted.partition)
        if partition is None:
            self._answer_absent(client, wanted, result)
            return
        problem = partition.check_readable(wanted.leader_epoch) or _check_timestamp(wanted.timestamp_ms)
        if problem is None and self._lookups.full:
            # Checked before a heartbeat is sent: otherwise a client that retries constantly would cause as many
            # heartbeat rounds.
            waiting = f"{len(self._lookups)} lookups wait here already; try again after a pause"
            problem = error(ErrorCode.SERVER_BUSY, waiting)
        heartbeat = None
        if problem is None:
            heartbeat = self._rounds.begin(now, partition.group)
            if heartbeat is None:
                problem = error(ErrorCode.SERVER_BUSY, f"the leader of {partition.name} is stalled; try again shortly")
        if problem is not None:
            result.error.CopyFrom(problem)
            return
        assert heartbeat is not None
        result.leader_epoch = partition.raft.term
        lookup.waiting.setdefault(partition.group, []).append((slot, partition.raft.term, heartbeat))

    def _answer_absent(
        self,
        client: RequestContext,
        wanted: data_plane_pb2.ListOffsetsPartition,
        result: data_plane_pb2.ListOffsetsResult,
    ) -> None:
        record = self._absent.read_as_empty(client, wanted.topic_id, wanted.partition)
        if record is None:
            result.error.CopyFrom(self._absent.problem(wanted.topic_id, wanted.partition))
            return
        result.leader_epoch = record.leader_epoch
        if wanted.timestamp_ms in (EARLIEST, LATEST):
            result.offset = 0
        elif wanted.timestamp_ms == END_OF_EPOCH and 0 <= wanted.epoch <= record.leader_epoch:
            result.epoch, result.offset = wanted.epoch, 0

    def after_round(self, partition: Partition) -> None:
        """Answers the lookups whose leadership was confirmed, and fails those whose replica lost it, in a step of the
        group."""
        for request_id in sorted(self.by_group[partition.group]):
            lookup = self._lookups.get(request_id)
            assert lookup is not None
            still = []
            for slot, term, heartbeat in lookup.waiting.get(partition.group, ()):
                if not partition.leads or partition.raft.term != term:
                    self._lose(lookup, slot, partition.not_leader())
                elif partition.raft.confirmed_round < heartbeat:
                    still.append((slot, term, heartbeat))
                else:
                    self._answer(lookup, slot, partition)
            self._update(lookup, partition.group, still)
            self._finish_if_done(lookup)

    def raft_group_gone(self, now: int, group: int) -> None:
        self._rounds.forget(group)
        for request_id in sorted(self.by_group.get(group, ())):
            lookup = self._lookups.get(request_id)
            assert lookup is not None
            for slot, _, _ in lookup.waiting.get(group, ()):
                result = lookup.response.results[slot]
                self._lose(lookup, slot, self._absent.problem(result.topic_id, result.partition))
            self._update(lookup, group, [])
            self._finish_if_done(lookup)

    def _answer(self, lookup: _Lookup, slot: int, partition: Partition) -> None:
        """Fills a slot, after a quorum has confirmed that this node leads the partition."""
        wanted, result = lookup.wanted[slot], lookup.response.results[slot]
        if self._refuse_by_now(lookup, slot):
            return
        if wanted.timestamp_ms == EARLIEST:
            result.offset = partition.log_start_offset
        elif wanted.timestamp_ms == LATEST:
            result.offset = stable_end(partition, lookup.isolation_level)
        elif lookup.times >= TIMES_PER_ANSWER or lookup.entry_bytes >= ENTRY_BYTES_PER_ANSWER:
            result.offset, result.unfinished = wanted.first_offset, True
        else:
            lookup.times += 1
            try:
                self._look_up(lookup, wanted, result, partition)
            except UnreadableEntryError as damage:
                result.error.CopyFrom(unreadable(partition.name, damage))

    def _look_up(
        self,
        lookup: _Lookup,
        wanted: data_plane_pb2.ListOffsetsPartition,
        result: data_plane_pb2.ListOffsetsResult,
        partition: Partition,
    ) -> None:
        """Searches the log for the result of a lookup by timestamp or epoch."""
        if wanted.timestamp_ms == END_OF_EPOCH:
            end = find_epoch_end(partition, self._reader, wanted.epoch)
            if end is not None:
                result.epoch, result.offset = end
            return
        log_end = stable_end(partition, lookup.isolation_level)
        hit = (
            find_latest(partition, self._reader, log_end)
            if wanted.timestamp_ms == LATEST_TIME
            else find_time(partition, self._reader, wanted.timestamp_ms, wanted.first_offset, log_end)
        )
        if hit is None:
            return
        result.offset = hit.offset
        if hit.header is None:
            result.unfinished = True
        elif hit.append_time_ms >= 0:
            result.timestamp_ms = hit.append_time_ms
        elif hit.header.is_kafka and not lookup.takes_kafka_batches:
            _fail(result, refuse_kafka(partition.name))
        elif hit.header.is_transactional and lookup.isolation_level == data_plane_pb2.ISOLATION_LEVEL_UNSPECIFIED:
            _fail(result, refuse_transactions(partition.name))
        else:
            result.entry = hit.entry
            lookup.entry_bytes += len(hit.entry)

    def _lose(self, lookup: _Lookup, slot: int, problem: errors_pb2.Error) -> None:
        """Fails a slot because this node no longer leads the partition."""
        if not self._refuse_by_now(lookup, slot):
            _fail(lookup.response.results[slot], problem)

    def _refuse_by_now(self, lookup: _Lookup, slot: int) -> bool:
        """Returns True and refuses the slot if the client's ACLs changed while the quorum was asked, so that it may no
        longer read the topic."""
        wanted, result = lookup.wanted[slot], lookup.response.results[slot]
        refused = self._absent.refusal(lookup.client, _operation(wanted), wanted.topic_id)
        if refused is None:
            return False
        result.leader_epoch = 0
        _fail(result, refused)
        return True

    def _update(self, lookup: _Lookup, group: int, still: list[tuple[int, int, int]]) -> None:
        if still:
            lookup.waiting[group] = still
            return
        del lookup.waiting[group]
        requests = self.by_group[group]
        requests.discard(lookup.request_id)
        if not requests:
            del self.by_group[group]

    def _finish_if_done(self, lookup: _Lookup) -> None:
        if not lookup.waiting:
            self._lookups.take(lookup.request_id)
            self._replies.reply(lookup.request_id, lookup.response)

    def client_gone(self, request_id: int) -> None:
        lookup = self._lookups.take(request_id)
        if lookup is not None:
            for group in list(lookup.waiting):
                self._update(lookup, group, [])

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the lookups whose deadline has passed."""
        for lookup in self._lookups.take_expired(now):
            late = error(ErrorCode.REQUEST_TIMED_OUT, "no quorum confirmed the leader in time; try again")
            for group, slots in list(lookup.waiting.items()):
                for slot, _, _ in slots:
                    _fail(lookup.response.results[slot], late)
                self._update(lookup, group, [])
            self._finish_if_done(lookup)


def failed_look_ups(
    request: data_plane_pb2.ListOffsetsRequest, problem: errors_pb2.Error
) -> data_plane_pb2.ListOffsetsResponse:
    """Returns the response to a request that failed as a whole."""
    response = data_plane_pb2.ListOffsetsResponse()
    for partition in request.partitions:
        response.results.add(topic_id=partition.topic_id, partition=partition.partition, error=problem, offset=-1)
    return response


def _fail(result: data_plane_pb2.ListOffsetsResult, problem: errors_pb2.Error) -> None:
    result.error.CopyFrom(problem)
    result.offset = -1


def _operation(wanted: data_plane_pb2.ListOffsetsPartition) -> AclOperation.ValueType:
    """Returns the operation that a client needs: READ for a lookup by timestamp, whose answer may contain records."""
    return _OPERATION if wanted.timestamp_ms in (EARLIEST, LATEST, END_OF_EPOCH) else ACL_OPERATION_READ


def _check_timestamp(timestamp_ms: int) -> errors_pb2.Error | None:
    if timestamp_ms >= END_OF_EPOCH:
        return None
    return error(
        ErrorCode.INVALID_REQUEST,
        f"timestamp {timestamp_ms} ms: use milliseconds since 1970, or -1 for the end, -2 for the beginning, -3 for"
        " the latest record, -4 for the end of an epoch",
    )
