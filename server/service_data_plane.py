"""The data plane's streams: requests in, replies out in the order in which they are ready.

A stream holds a bounded number of requests, counted until their answers are written: a client that does not read its
answers is not read from either. Messages are parsed here and not by gRPC, so that bytes which are none are answered
with a status, and a reply is serialized once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.client_requests import STOPPING, ClientRequests
from quorumlog.server.metrics import Meters
from quorumlog.server.options import Limits
from quorumlog.server.rpc_errors import refuse
from quorumlog.server.service_unary import BUSY, TOPIC_ID_BYTES, TRY_LATER, Context, Handlers, unary_handler
from quorumlog.server.wire_errors import error
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

SERVICE = "quorumlog.v1.DataPlane"
#: Requests of one stream that are not yet answered. Past this the stream is not read.
MAX_PRODUCES_PER_STREAM = 256
MAX_FETCHES_PER_STREAM = 16
#: Streams that clients may have open at once.
MAX_STREAMS = 8_192
#: Partitions that one request may name.
MAX_PARTITIONS_PER_REQUEST = 10_000

Request = TypeVar("Request", pb.ProduceRequest, pb.FetchRequest)


class DataPlaneService:
    """Produce, Fetch and the unary calls beside them."""

    def __init__(self, requests: ClientRequests, limits: Limits, meters: Meters) -> None:
        self._requests = requests
        self._limits = limits
        self._meters = meters
        self._streams = 0

    def handlers(self) -> Handlers:
        """What the gRPC server serves."""
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
        await self._serve(_Exchange(self._requests, context, MAX_PRODUCES_PER_STREAM), self._take_produce)

    async def fetch(self, _unused: object, context: Context) -> None:
        """Serves one Fetch stream."""
        await self._serve(_Exchange(self._requests, context, MAX_FETCHES_PER_STREAM), self._take_fetch)

    async def _serve(self, stream: _Exchange, take: Callable[[bytes, _Exchange], Awaitable[None]]) -> None:
        if self._streams >= MAX_STREAMS:
            await refuse(stream.context, error(ErrorCode.SERVER_BUSY, f"{MAX_STREAMS} streams are open: {TRY_LATER}"))
        self._streams += 1
        try:
            await stream.serve(take)
        finally:
            self._streams -= 1

    async def _take_produce(self, data: bytes, stream: _Exchange) -> None:
        request = await _parse(pb.ProduceRequest, data, stream.context)
        await self._check_shape(stream.context, [(b.topic_id, b.partition) for b in request.batches], "batch")
        if request.acks not in (-1, 0, 1):
            await _invalid(
                stream.context,
                f"acks is {request.acks}: use 0, 1 or -1 (all)",
                ErrorCode.INVALID_REQUIRED_ACKS,
            )
        self._meters.produce_requests += 1
        self._meters.produce_bytes += len(data)
        if not self._requests.has_room_for(len(data)) or len(data) > self._limits.request_bytes:
            if request.acks != 0:
                stream.answer(self._refused_produce(request, len(data)))
        elif request.acks == 0:
            self._requests.submit_unanswered(request)
        else:
            stream.submit(request, len(data))

    def _refused_produce(self, request: pb.ProduceRequest, size_bytes: int) -> pb.ProduceResponse:
        self._meters.requests_refused += 1
        refusal = error(ErrorCode.SERVER_BUSY, BUSY)
        if size_bytes > self._limits.request_bytes:
            limit = self._limits.request_bytes
            refusal = error(
                ErrorCode.RECORD_TOO_LARGE,
                f"the request has {size_bytes} bytes, the node takes {limit}: send fewer batches in one request",
            )
        results = [
            pb.ProduceResult(topic_id=batch.topic_id, partition=batch.partition, error=refusal, base_offset=-1)
            for batch in request.batches
        ]
        return pb.ProduceResponse(correlation_id=request.correlation_id, results=results)

    async def _take_fetch(self, data: bytes, stream: _Exchange) -> None:
        request = await _parse(pb.FetchRequest, data, stream.context)
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
            # The session on the node stays where it was, and refuses the request after this one.
            stream.answer(pb.FetchResponse(correlation_id=request.correlation_id, error=busy))
            return
        results = [pb.FetchResult(topic_id=p.topic_id, partition=p.partition, error=busy) for p in request.partitions]
        stream.answer(pb.FetchResponse(correlation_id=request.correlation_id, results=results))

    def _count_fetched(self, size_bytes: int) -> None:
        self._meters.fetch_bytes += size_bytes

    async def _check_shape(self, context: Context, items: list[tuple[bytes, int]], name: str) -> None:
        """Refuses what no client library sends: the node would have nothing sensible to answer it with."""
        if not items:
            await _invalid(context, f"the request has no {name}: send at least one")
        if len(items) > MAX_PARTITIONS_PER_REQUEST:
            await _invalid(context, f"the request names {len(items)} partitions, at most {MAX_PARTITIONS_PER_REQUEST}")
        if len(set(items)) != len(items):
            await _invalid(context, f"the request names a partition twice: send one {name} for each")
        for topic_id, partition in items:
            if len(topic_id) != TOPIC_ID_BYTES:
                await _invalid(context, f"a topic id has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}: ask Metadata")
            if partition < 0:
                await _invalid(context, f"partition {partition}: partitions are numbered from 0")


class _Exchange:
    """One stream of requests and replies.

    Arguments:
        limit: unanswered requests at which reading stops.
    """

    def __init__(self, requests: ClientRequests, context: Context, limit: int) -> None:
        self._requests = requests
        self.context = context
        self._limit = limit
        self._number = requests.open_stream()
        #: True once the node keeps something for this stream.
        self.in_session = False
        self._pending: dict[int, None] = {}
        self._answers: deque[tuple[ProtoMessage, Callable[[int], None] | None]] = deque()
        self._unanswered = 0
        self._wake_writer = asyncio.Event()
        self._wake_reader = asyncio.Event()

    async def serve(self, take: Callable[[bytes, _Exchange], Awaitable[None]]) -> None:
        """Reads until the client is done, answers all, and tells the node when the client went away before that."""
        tasks = [
            asyncio.ensure_future(work) for work in (self._read(take), self._write(), self._requests.closed.wait())
        ]
        try:
            # The first to end tells why: all read and answered, a malformed request (refused already), a client
            # that is gone, or a node that stops.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._requests.closed.is_set():
                await self.context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # gRPC's way of saying that the stream ended under a read or write.
            return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in self._pending:
                self._requests.abandon(number)
            if self.in_session:
                self._requests.close_stream(self._number)

    def submit(self, request: ProtoMessage, size_bytes: int, count: Callable[[int], None] | None = None) -> None:
        """Hands a request to the node; its reply will be written. ``count`` is told the reply's size."""
        number = 0

        def reply(message: ProtoMessage) -> None:
            self._pending.pop(number, None)
            self._unanswered -= 1
            self.answer(message, count)

        self._unanswered += 1
        number = self._requests.submit(request, size_bytes, reply, self._number)
        self._pending[number] = None

    def answer(self, message: ProtoMessage, count: Callable[[int], None] | None = None) -> None:
        """Queues an answer."""
        self._unanswered += 1
        self._answers.append((message, count))
        self._wake_writer.set()

    async def _read(self, take: Callable[[bytes, _Exchange], Awaitable[None]]) -> None:
        while True:
            while self._unanswered >= self._limit:
                self._wake_reader.clear()
                await self._wake_reader.wait()
            data = await self.context.read()
            if not isinstance(data, bytes):
                break
            await take(data, self)
        while self._unanswered:
            self._wake_reader.clear()
            await self._wake_reader.wait()

    async def _write(self) -> None:
        while True:
            while self._answers:
                message, count = self._answers.popleft()
                data = message.SerializeToString()
                if count is not None:
                    count(len(data))
                await self.context.write(data)
                self._unanswered -= 1
                self._wake_reader.set()
            self._wake_writer.clear()
            await self._wake_writer.wait()


async def _parse(kind: type[Request], data: bytes, context: Context) -> Request:
    try:
        return kind.FromString(data)
    except DecodeError:
        await _invalid(context, f"{len(data)} bytes that are not a {kind.DESCRIPTOR.name}")
        raise AssertionError("refusing raises") from None


async def _invalid(context: Context, message: str, code: ErrorCode.ValueType = ErrorCode.INVALID_REQUEST) -> None:
    await refuse(context, error(code, message))
