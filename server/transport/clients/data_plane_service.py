"""Data-plane service: streams of produce and fetch requests, and unary calls."""

from __future__ import annotations

import time
from dataclasses import replace

import grpc
import grpc.aio

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.partition.batch_admission import check_acks, check_request_size
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import Context, origin_of
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.request_stream import OpenStreams, RequestStream, invalid, parse
from quorumlog.server.transport.clients.unary_calls import BUSY, TOPIC_ID_BYTES, Handlers, unary_handler
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_ITEMS

SERVICE = "quorumlog.v1.DataPlane"
#: Limits on unanswered requests of a stream, beyond which the stream is not read.
MAX_PRODUCES_PER_STREAM = 256
MAX_FETCHES_PER_STREAM = 16
#: Limit shared by the open streams of all clients.
MAX_STREAMS = 8_192


class DataPlaneService:
    """Serves Produce, Fetch and the unary calls of the data plane."""

    def __init__(self, requests: ClientRequests, limits: NodeLimits, meters: Meters) -> None:
        self._requests = requests
        self._limits = limits
        self._meters = meters
        self._streams = OpenStreams(MAX_STREAMS)

    @property
    def open_streams(self) -> int:
        """Number of streams being served."""
        return self._streams.open

    def follow_settings(self, values: DynamicValues) -> None:
        """Changes the maximum size of a produce request."""
        self._limits = replace(self._limits, request_bytes=values.request_bytes)

    def handlers(self) -> Handlers:
        """Returns the handlers for the gRPC server."""
        handlers = {
            "Produce": grpc.stream_stream_rpc_method_handler(self.produce),
            "Fetch": grpc.stream_stream_rpc_method_handler(self.fetch),
            "ListOffsets": unary_handler(pb.ListOffsetsRequest, self._requests, self._meters),
            "InitProducerId": unary_handler(pb.InitProducerIdRequest, self._requests, self._meters),
            "Metadata": unary_handler(pb.MetadataRequest, self._requests, self._meters),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def produce(self, _unused: object, context: Context) -> None:
        """Serves one Produce stream."""
        stream = RequestStream(self._requests, context, MAX_PRODUCES_PER_STREAM, origin_of(context))
        await self._streams.serve(stream, self._take_produce)

    async def fetch(self, _unused: object, context: Context) -> None:
        """Serves one Fetch stream."""
        stream = RequestStream(self._requests, context, MAX_FETCHES_PER_STREAM, origin_of(context))
        await self._streams.serve(stream, self._take_fetch)

    async def _take_produce(self, data: bytes, stream: RequestStream) -> None:
        request = await parse(pb.ProduceRequest, data, stream.context)
        await self._check_shape(stream.context, [(b.topic_id, b.partition) for b in request.batches], "batch")
        wrong_acks = check_acks(request.acks)
        if wrong_acks is not None:
            await refuse(stream.context, wrong_acks)
        self._meters.produce_requests += 1
        self._meters.produce_bytes += len(data)
        refusal = check_request_size(len(data), self._limits.request_bytes)
        if refusal is None and not self._requests.has_room_for(len(data)):
            refusal = error(ErrorCode.SERVER_BUSY, BUSY)
        if refusal is not None:
            self._meters.requests_refused += 1
            if request.acks != 0:
                stream.answer(_refused_produce(request, refusal))
        elif request.acks == 0:
            stream.submit_unanswered(request, len(data))
        else:
            # The clock of the node's steps (`Driver`).
            arrived_us = time.monotonic_ns() // 1_000 if request.trace else 0
            stream.submit(request, len(data), arrived_us=arrived_us)

    async def _take_fetch(self, data: bytes, stream: RequestStream) -> None:
        request = await parse(pb.FetchRequest, data, stream.context)
        named = [(p.topic_id, p.partition) for p in request.partitions]
        if named or request.session_epoch <= 1:
            await self._check_shape(stream.context, named, "partition")
        if request.forgotten:
            forgotten = [(p.topic_id, p.partition) for p in request.forgotten]
            await self._check_shape(stream.context, forgotten, "forgotten partition")
        self._meters.fetch_requests += 1
        if self._requests.has_room_for(len(data)):
            stream.in_session = stream.in_session or request.session_epoch > 0
            stream.submit(request, len(data), self._count_fetched)
            return
        self._meters.requests_refused += 1
        busy = error(ErrorCode.SERVER_BUSY, BUSY)
        if request.session_epoch > 0:
            # The node's session keeps its epoch, and refuses the request after this one.
            stream.answer(pb.FetchResponse(correlation_id=request.correlation_id, error=busy))
            return
        results = [pb.FetchResult(topic_id=p.topic_id, partition=p.partition, error=busy) for p in request.partitions]
        stream.answer(pb.FetchResponse(correlation_id=request.correlation_id, results=results))

    def _count_fetched(self, size_bytes: int) -> None:
        self._meters.fetch_bytes += size_bytes

    async def _check_shape(self, context: Context, items: list[tuple[bytes, int]], name: str) -> None:
        """Refuses requests that no client library sends: the node has no meaningful answer to them."""
        if not items:
            await invalid(context, f"the request has no {name}: send at least one")
        if len(items) > MAX_ITEMS:
            await invalid(
                context, f"the request names {len(items)} partitions, the maximum is {MAX_ITEMS}: split the request"
            )
        if len(set(items)) != len(items):
            await invalid(context, f"the request names a partition twice: send one {name} for each")
        for topic_id, partition in items:
            if len(topic_id) != TOPIC_ID_BYTES:
                await invalid(
                    context, f"a topic id has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}: request it with Metadata"
                )
            if partition < 0:
                await invalid(context, f"partition {partition}: partitions are numbered from 0")


def _refused_produce(request: pb.ProduceRequest, refusal: errors_pb2.Error) -> pb.ProduceResponse:
    results = [
        pb.ProduceResult(topic_id=batch.topic_id, partition=batch.partition, error=refusal, base_offset=-1)
        for batch in request.batches
    ]
    return pb.ProduceResponse(correlation_id=request.correlation_id, results=results)
