"""Loads the port for Kafka clients below any client library, so that only the servers are measured."""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import grpc
import pyarrow as pa

from bench.arrow_feed import random_values
from bench.bare_node import OPTIONS
from bench.figures import Figures, summarize
from bench.raw_client import find_leaders
from quorumlog.sdk.records.record_batch import to_log_schema
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.groups.membership_requests import FindCoordinatorRequest
from quorumlog.server.kafka.codec.groups.membership_responses import FindCoordinatorResponse
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header, unpack_response_header
from quorumlog.server.kafka.codec.primitives import Buffer, KafkaMessage, decode, encode
from quorumlog.server.kafka.codec.produce_requests import PartitionProduceData, ProduceRequest, TopicProduceData
from quorumlog.server.kafka.codec.produce_responses import ProduceResponse
from quorumlog.v1 import data_plane_pb2 as wire
from quorumlog.v1 import data_plane_pb2_grpc
from quorumlog.wire.entry import parse_header
from quorumlog.wire.kafka.batch import KafkaCodec
from quorumlog.wire.kafka.records import write_kafka_batch

Response = TypeVar("Response", bound=KafkaMessage)
_SIZE = struct.Struct(">i")
_PRODUCE, _FETCH, _FIND_COORDINATOR = 12, 12, 6
#: The key type of a transactional id.
_TRANSACTION = 1
_COORDINATOR_WITHIN_S = 60.0
_TIMEOUT_MS = 30_000
_BUFFER_BYTES = 64 << 20
_FETCH_BYTES = 1 << 20
_LENGTH, _BASE_OFFSET = struct.Struct(">i"), struct.Struct(">q")


class PortError(Exception):
    """Raised if a request of the load fails. The message is one line."""


def batch_of(records: int, size: int) -> bytes:
    """Returns a batch as a Kafka client writes it, of records of random bytes without keys."""
    table = to_log_schema(pa.table({"value": random_values(records, size)}), now_ms=time.time_ns() // 1_000_000)
    (rows,) = table.combine_chunks().to_batches()
    return write_kafka_batch(rows, base_offset=0, last_offset=records - 1, codec=KafkaCodec.NONE, leader_epoch=-1)


class PortConnection:
    """One connection to the port of one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)

    @classmethod
    async def to(cls, address: str) -> PortConnection:
        """Connects.

        Arguments:
            address: ``host:port``.
        """
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=_BUFFER_BYTES))

    def send(self, message: KafkaMessage, version: int) -> None:
        """Sends a request."""
        api = APIS[message.API_KEY]
        head = RequestHead(message.API_KEY, version, next(self._numbers))
        header = pack_request_header(head, "bench", flexible=version >= api.request.FLEXIBLE_FROM)
        content = b"".join((header, *encode(message, version)))
        self._writer.writelines((_SIZE.pack(len(content)), content))

    async def receive(self, kind: type[Response], version: int) -> Response:
        """Receives the next answer."""
        (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
        frame = await self._reader.readexactly(size)
        _, at = unpack_response_header(frame, flexible=version >= kind.FLEXIBLE_FROM)
        return decode(kind, frame, version, at=at)

    async def ask(self, message: KafkaMessage, version: int, kind: type[Response]) -> Response:
        """Sends a request and receives its answer."""
        self.send(message, version)
        return await self.receive(kind, version)

    def close(self) -> None:
        """Closes the connection."""
        self._writer.close()


async def find_transaction_coordinator(address: str, name: str) -> tuple[int, str]:
    """Returns the node that coordinates the transactions of a transactional id, and its address.

    Arguments:
        address: of any node.

    Raises:
        PortError: none exists within a minute.
    """
    connection = await PortConnection.to(address)
    request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[name])
    deadline = time.monotonic() + _COORDINATOR_WITHIN_S
    try:
        while True:
            answer = await connection.ask(request, _FIND_COORDINATOR, FindCoordinatorResponse)
            (found,) = answer.coordinators
            if not found.error_code:
                return found.node_id, f"{found.host}:{found.port}"
            if time.monotonic() > deadline:
                raise PortError(f"no node coordinates the transactions of {name}: error {found.error_code}")
            await asyncio.sleep(0.1)
    finally:
        connection.close()


async def produce(address: str, topic: str, *, records: int, size: int, count: int, window: int) -> Figures:
    """Sends the same batch repeatedly to partition 0, some of them unacknowledged at a time.

    Arguments:
        address: the leader's address for Kafka clients.
        records, size: number of records of the batch, and bytes of each.
        count: number of batches.
    """
    batch = batch_of(records, size)
    request = ProduceRequest(
        None, -1, _TIMEOUT_MS, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])]
    )
    connection = await PortConnection.to(address)
    free = asyncio.Semaphore(window)

    async def take_answers() -> None:
        for _ in range(count):
            answer = await connection.receive(ProduceResponse, _PRODUCE)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise PortError(f"a batch was rejected with error {code}")
            free.release()

    begin = time.perf_counter()
    answers = asyncio.create_task(take_answers())
    for _ in range(count):
        await free.acquire()
        connection.send(request, _PRODUCE)
    await answers
    elapsed = time.perf_counter() - begin
    connection.close()
    return summarize(elapsed, count * records, count * records * size, [])


async def fetch(address: str, topic: str, *, size: int, count: int) -> Figures:
    """Fetches partition 0 from its start, one request at a time, and reads nothing but the ends of batches.

    Arguments:
        size: bytes of each record.
        count: number of records.
    """
    connection = await PortConnection.to(address)
    position = 0
    begin = time.perf_counter()
    while position < count:
        wanted = [FetchPartition(0, -1, position, partition_max_bytes=_FETCH_BYTES)]
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[FetchTopic(topic, partitions=wanted)]
        )
        answer = await connection.ask(request, _FETCH, FetchResponse)
        (partition,) = answer.responses[0].partitions
        if partition.error_code or not partition.records:
            raise PortError(f"a fetch at offset {position} has no records: error {partition.error_code}")
        position = _offset_behind(partition.records)
    elapsed = time.perf_counter() - begin
    connection.close()
    return summarize(elapsed, position, position * size, [])


def _offset_behind(records: Buffer) -> int:
    """Returns the offset after the last of some batches."""
    at = last = 0
    while at < len(records):
        last = at
        at += _LENGTH.unpack_from(records, at + 8)[0] + 12
    base_offset, delta = _BASE_OFFSET.unpack_from(records, last)[0], _LENGTH.unpack_from(records, last + 23)[0]
    return int(base_offset + delta + 1)


async def fetch_by_grpc(bootstrap: str, topic: str, *, size: int, count: int) -> Figures:
    """Fetches the same with the SDK's protocol."""
    topic_id, leaders = await find_leaders(bootstrap, topic)
    position = 0
    async with grpc.aio.insecure_channel(leaders[0], options=OPTIONS) as channel:
        call = data_plane_pb2_grpc.DataPlaneStub(channel).Fetch(None)
        begin = time.perf_counter()
        while position < count:
            request = wire.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                takes_kafka_batches=True,
                partitions=[
                    wire.FetchPartition(
                        topic_id=topic_id, partition=0, fetch_offset=position, leader_epoch=-1, max_bytes=_FETCH_BYTES
                    )
                ],
            )
            await call.write(request)
            answer: Any = await call.read()
            entries = answer.results[0].entries
            if not entries:
                raise PortError(f"a fetch at offset {position} has no records: {answer.results[0].error.message}")
            position = parse_header(entries[-1]).last_offset + 1
        elapsed = time.perf_counter() - begin
        call.cancel()
    return summarize(elapsed, position, position * size, [])


async def fetch_idle(address: str, topics: Sequence[str], partitions: int, *, count: int, in_session: bool) -> Figures:
    """Fetches from partitions with nothing to read, again and again.

    Arguments:
        topics, partitions: which are read, and how many each of them has.
        in_session: incrementally; otherwise each request names all of them.
    """
    wanted = [FetchPartition(number, -1, 0, partition_max_bytes=1 << 20) for number in range(partitions)]
    named = [FetchTopic(topic, partitions=wanted) for topic in topics]
    connection = await PortConnection.to(address)
    whole = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0 if in_session else -1, topics=named)
    session = (await connection.ask(whole, _FETCH, FetchResponse)).session_id
    if bool(session) != in_session:
        raise PortError("the node keeps no session")
    latencies = []
    begin = time.perf_counter()
    for number in range(1, count + 1):
        sent = time.perf_counter()
        request = FetchRequest(session_id=session, session_epoch=number, min_bytes=1) if in_session else whole
        answer = await connection.ask(request, _FETCH, FetchResponse)
        if answer.error_code:
            raise PortError(f"a fetch was refused with error {answer.error_code}")
        latencies.append(time.perf_counter() - sent)
    elapsed = time.perf_counter() - begin
    connection.close()
    return summarize(elapsed, count, 0, latencies)
