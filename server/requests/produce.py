"""The data plane as the node serves it: produce here, fetches in their own module."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.options import NodeLimits
from quorumlog.server.partition.acknowledgements import ACKS_ALL, ACKS_LEADER, ACKS_NONE, ProduceCall, ProduceCalls
from quorumlog.server.partition.partition import Partition
from quorumlog.server.request_timeouts import MAX_WAIT_US
from quorumlog.server.requests.fetch import FetchRequests
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
        partitions: Replicas,
        limits: NodeLimits,
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
        self.fetches = FetchRequests(partitions, limits, reply, missing)

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

    # -- time -------------------------------------------------------------------------------------------------

    def on_time(self, now: int) -> None:
        """Answers the calls whose time is up."""
        for call in self.calls.expired(now):
            self._reply(call.request_id, call.response)
        self.fetches.on_time(now)

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self.calls.abandon(request_id)
        self.fetches.client_gone(request_id)
