"""Produce and fetch, as the node serves them."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.acknowledgements import ACKS_ALL, ACKS_LEADER, ACKS_NONE, ProduceCall, ProduceCalls
from quorumlog.server.options import Limits
from quorumlog.server.parked_fetches import ParkedFetches
from quorumlog.server.partition import Partition
from quorumlog.server.partitions import Partitions
from quorumlog.server.waiting import MAX_WAIT_US
from quorumlog.server.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class DataRequests:
    """Serves the data plane from the partitions of this node.

    Arguments:
        reply: answers a request.
        live_replicas: how many voters of a partition can be expected to confirm, this node included.
        missing: the error for a partition without a replica here.
        writable: None while appends are taken, else why not.
        touch: tells the host that a group has something to do.
    """

    def __init__(
        self,
        partitions: Partitions,
        limits: Limits,
        reply: Callable[[int, ProtoMessage], None],
        live_replicas: Callable[[Partition], int],
        missing: Callable[[bytes, int], errors_pb2.Error],
        writable: Callable[[], errors_pb2.Error | None],
        touch: Callable[[int], None],
    ) -> None:
        self._partitions = partitions
        self._limits = limits
        self._reply = reply
        self._live_replicas = live_replicas
        self._missing = missing
        self._writable = writable
        self._touch = touch
        self.calls = ProduceCalls(limits.pending_produces)
        self.fetches = ParkedFetches(limits.parked_fetches)
        self._seen: dict[int, tuple[int, int, bool]] = {}

    # -- produce ----------------------------------------------------------------------------------------------

    def produce(self, now: int, wall_ms: int, request_id: int, request: data_plane_pb2.ProduceRequest) -> None:
        """Appends a request's batches and answers when each has what its acks ask for."""
        response = data_plane_pb2.ProduceResponse(correlation_id=request.correlation_id)
        slots = range(len(request.batches))
        deadline = now + min(request.timeout_ms * 1000, MAX_WAIT_US)
        call = ProduceCall(request_id, response, deadline, len(slots), set(slots))
        for batch in request.batches:
            response.results.add(topic_id=batch.topic_id, partition=batch.partition)
        refusal = self._refuse_all(request)
        for slot, batch in enumerate(request.batches):
            problem = refusal or self._append(now, wall_ms, request.acks, batch, call, slot)
            if problem is not None:
                call.fill(slot, error=problem, base_offset=-1, log_append_time_ms=-1)
        if request.acks == ACKS_NONE:
            return
        if call.done:
            self._reply(request_id, response)
        else:
            self.calls.add(call)

    def _refuse_all(self, request: data_plane_pb2.ProduceRequest) -> errors_pb2.Error | None:
        if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            return error(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: say 0, 1 or -1 (all)")
        if self.calls.full:
            return error(
                ErrorCode.SERVER_BUSY, f"{len(self.calls)} produce requests wait here already; try again after a pause"
            )
        if sum(len(batch.batch) for batch in request.batches) > self._limits.request_bytes:
            return error(
                ErrorCode.RECORD_TOO_LARGE, f"a produce request carries at most {self._limits.request_bytes} bytes"
            )
        return self._writable()

    def _append(
        self,
        now: int,
        wall_ms: int,
        acks: int,
        batch: data_plane_pb2.PartitionBatch,
        call: ProduceCall,
        slot: int,
    ) -> errors_pb2.Error | None:
        partition = self._partitions.find(batch.topic_id, batch.partition)
        if partition is None:
            return self._missing(batch.topic_id, batch.partition)
        problem = partition.append(now, wall_ms, batch.batch, acks, call, slot, self._live_replicas(partition))
        if problem is None:
            self._touch(partition.group)
        return problem

    def finish(self, calls: list[ProduceCall]) -> None:
        """Answers calls of which every slot is filled."""
        for call in calls:
            # A call whose time is up has been answered, while its batches still wait in their partitions.
            if self.calls.forget(call.request_id):
                self._reply(call.request_id, call.response)

    # -- fetch ------------------------------------------------------------------------------------------------

    def fetch(self, now: int, request_id: int, request: data_plane_pb2.FetchRequest) -> None:
        """Answers a fetch now if it has enough to say, else parks it."""
        self._fetch(now, request_id, request, now + min(request.max_wait_ms * 1000, MAX_WAIT_US))

    def _fetch(self, now: int, request_id: int, request: data_plane_pb2.FetchRequest, deadline: int) -> None:
        response = data_plane_pb2.FetchResponse(correlation_id=request.correlation_id)
        budget = min(request.max_bytes or self._limits.fetch_bytes, self._limits.fetch_bytes)
        size = 0
        urgent = False
        groups = []
        for wanted in request.partitions:
            result, group = self._fetch_partition(wanted, max(0, budget - size))
            size += sum(map(len, result.entries))
            urgent = urgent or result.HasField("error")
            if group is not None:
                groups.append(group)
            response.results.append(result)
        if urgent or size >= max(1, request.min_bytes) or now >= deadline or not request.partitions:
            self._reply(request_id, response)
        elif self.fetches.full:
            for result in response.results:
                result.error.CopyFrom(
                    error(ErrorCode.SERVER_BUSY, "too many fetches wait here; try again after a pause")
                )
            self._reply(request_id, response)
        else:
            self.fetches.park(request_id, request, deadline, tuple(groups))

    def _fetch_partition(
        self, wanted: data_plane_pb2.FetchPartition, budget: int
    ) -> tuple[data_plane_pb2.FetchResult, int | None]:
        result = data_plane_pb2.FetchResult(topic_id=wanted.topic_id, partition=wanted.partition, high_watermark=-1)
        partition = self._partitions.find(wanted.topic_id, wanted.partition)
        if partition is None:
            result.error.CopyFrom(self._missing(wanted.topic_id, wanted.partition))
            return result, None
        problem = partition.check_readable(wanted.leader_epoch) or partition.check_offset(wanted.fetch_offset)
        result.leader_epoch = partition.raft.term
        result.log_start_offset = partition.log_start_offset
        if problem is not None:
            result.error.CopyFrom(problem)
            return result, partition.group
        result.high_watermark = partition.high_watermark
        if budget > 0:
            limit = min(wanted.max_bytes or self._limits.fetch_bytes, budget)
            result.entries.extend(partition.read(wanted.fetch_offset, limit))
        return result, partition.group

    def wake_if_changed(self, now: int, partition: Partition) -> None:
        """Fetches that wait for a partition look again when it has more to read, or is not led here any more."""
        waiting = self.fetches.waiting_for(partition.group)
        if not waiting:
            return
        seen = (partition.high_watermark, partition.raft.term, partition.leads)
        if self._seen.get(partition.group) == seen:
            return
        self._seen[partition.group] = seen
        for request_id in waiting:
            self._look_again(now, request_id)

    def _look_again(self, now: int, request_id: int) -> None:
        parked = self.fetches.take(request_id)
        if parked is not None:
            self._fetch(now, request_id, *parked)

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self, now: int) -> None:
        """Answers the calls whose time is up."""
        for call in self.calls.expired(now):
            self._reply(call.request_id, call.response)
        for request_id in list(self.fetches.expired(now)):
            self._look_again(now, request_id)

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self.calls.abandon(request_id)
        self.fetches.take(request_id)
