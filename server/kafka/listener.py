"""Where Kafka's clients connect: the one module that knows their sockets.

Each connection is bounded by itself (``connection.py``). Here it is bounded how many there are, in all and of one
address, and a socket is not read while its connection, or the node, should take no more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.client_origin import ClientOrigin, Listener
from quorumlog.server.events import EndedStream
from quorumlog.server.kafka.client import KafkaClient
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.connection import KafkaConnection, KafkaConnectionFault, KafkaConnectionLimits, KafkaRequest
from quorumlog.server.kafka.mapping.table import served_versions
from quorumlog.server.log_output import Log
from quorumlog.server.metrics import Meters
from quorumlog.server.setting_values import parse_address
from quorumlog.server.transport.callers import MAX_CLIENT_ID_LENGTH
from quorumlog.server.transport.client_requests import ClientRequests
from quorumlog.v1.data_plane_pb2 import FetchRequest, FetchResponse, ProduceRequest

#: How often silent connections, and those that wait for the node to have room, are looked at.
_LOOK_AT_SILENCE_S = 5.0
_LOOK_FOR_ROOM_S = 0.02
#: How often it is looked whether the cluster knows Kafka's batches.
_LOOK_AT_CLUSTER_S = 0.1
#: What a listener waits for after that long it says.
_TOLD_AFTER_S = 5.0
#: For so long no other refused connection is told of.
_TELL_AGAIN_S = 1.0
#: Of a connection's output, bytes from which on the socket is asked to wait before it is given more.
_SOCKET_BUFFER_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class KafkaListenerOptions:
    """How a node serves Kafka's clients.

    Arguments:
        address: host:port where it listens.
        connections: how many there may be at once.
        connections_per_ip: of one address.
        creates_topics: unknown topics are created when clients mention them.
        feature_level: the one from which on the cluster keeps what Kafka's clients write.
    """

    address: str
    connections: int
    connections_per_ip: int
    creates_topics: bool
    feature_level: int
    limits: KafkaConnectionLimits


class KafkaListener:
    """Serves Kafka's clients on one address."""

    def __init__(
        self, options: KafkaListenerOptions, cluster: ImageView, requests: ClientRequests, log: Log, meters: Meters
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.requests = requests
        self.log = log
        self.meters = meters
        self.versions = served_versions()
        self._open: set[_KafkaSocket] = set()
        self._of_address: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._tell_again_s = 0.0
        #: Translations, one after the other: they are paced by what one thread gets done beside the node's.
        self._workers = ThreadPoolExecutor(1, "kafka-batches")

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._open)

    async def run(self) -> None:
        """Listens as soon as the cluster knows what Kafka's clients write, and looks after connections."""
        await self._wait_for_cluster()
        host, port = parse_address(self.options.address)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _KafkaSocket(self), host, port)
        self.log.info("kafka_listening", address=self.options.address)
        looked_s = loop.time()
        while True:
            await asyncio.sleep(_LOOK_FOR_ROOM_S if any(each.waits for each in self._open) else _LOOK_AT_SILENCE_S / 10)
            is_due = loop.time() >= looked_s + _LOOK_AT_SILENCE_S
            if is_due:
                looked_s = loop.time()
            for each in list(self._open):
                if is_due or each.waits:
                    each.look()

    async def _wait_for_cluster(self) -> None:
        clock = asyncio.get_running_loop().time
        tell_at_s = clock() + _TOLD_AFTER_S
        while not self.cluster.reaches(self.options.feature_level):  # metadata tell nobody of changes
            if clock() > tell_at_s and self.cluster.is_formed:
                tell_at_s = math.inf
                self.log.info("kafka_listener_waits", reason="older nodes do not know what Kafka's clients write")
            await asyncio.sleep(_LOOK_AT_CLUSTER_S)

    def stop(self) -> None:
        """Takes no more connections and ends those that there are."""
        if self._server is not None:
            self._server.close()
        for each in list(self._open):
            each.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def admit(self, one: _KafkaSocket, host: str) -> bool:
        """Takes a connection, unless there are as many as there may be. Of a flood of them one in a while is told."""
        if len(self._open) >= self.options.connections:
            refusal = f"{len(self._open)} connections are open, and there may be {self.options.connections}"
        elif self._of_address[host] >= self.options.connections_per_ip:
            refusal = f"{self._of_address[host]} connections of this address are open: kafka_max_connections_per_ip"
        else:
            self._open.add(one)
            self._of_address[host] += 1
            return True
        self.meters.kafka_connections_refused += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _TELL_AGAIN_S
            self.log.warning("kafka_connection_refused", address=host, reason=refusal)
        return False

    def dismiss(self, one: _KafkaSocket, host: str) -> None:
        """A connection that was taken is over."""
        self._open.discard(one)
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]

    def work(self, work: Callable[[], object], on_done: Callable[[object, Exception | None], None]) -> None:
        """Has something done on the thread for that."""

        def done(future: asyncio.Future[object]) -> None:
            if not future.cancelled():
                problem = future.exception()
                assert problem is None or isinstance(problem, Exception)
                on_done(None if problem is not None else future.result(), problem)

        asyncio.get_running_loop().run_in_executor(self._workers, work).add_done_callback(done)


class _KafkaSocket(asyncio.Protocol):
    """One socket: moves bytes between it and its connection."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._requests = listener.requests
        self._host = ""
        self._stream = 0
        self._is_served = False
        self._is_reading = True
        self._client: KafkaClient | None = None
        self._transport: asyncio.Transport | None = None
        self._origins: dict[str, ClientOrigin] = {}

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        # uvloop's has no such base.
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        if not self._listener.admit(self, self._host):
            transport.abort()
            return
        self._is_served = True
        transport.set_write_buffer_limits(high=_SOCKET_BUFFER_BYTES)
        self._stream = self._requests.open_stream()
        self._requests.watch_stream(self._stream, self)
        self._client = KafkaClient(
            KafkaConnection(self._listener.versions, self._listener.options.limits, _now_us()),
            self,
            self._listener.cluster,
            self._listener.options.creates_topics,
            _now_us,
            self._flush,
        )

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._client is not None:
            self._client.receive(data)
            self._flush()

    def resume_writing(self) -> None:
        """The client takes bytes again."""
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._is_served:
            self._is_served = False
            self._listener.dismiss(self, self._host)
            self._requests.close_stream(self._stream, is_known=True)
        if self._client is not None:
            self._client.gone()
            self._client = None

    # -- what the listener and the node say -----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether it is to be looked at soon: the node has no room for its requests."""
        return self._client is not None and self._client.waits_for_room

    def look(self) -> None:
        """Goes on where it can, and ends what was silent for too long."""
        if self._client is not None:
            self._client.on_time()
            self._client.go_on()
            self._flush()

    def close(self) -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.abort()

    def end(self, ended: EndedStream) -> None:
        """The node lets the client in no more."""
        self.close()

    def pause(self, is_paused: bool) -> None:
        """The client is over a quota, or no longer."""
        if self._client is not None:
            self._client.pause(is_paused)
            self._flush()

    # -- what the client asks of the node -------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the node takes another request."""
        return self._requests.has_room_for(0)

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[ProtoMessage], None]) -> int:
        """Hands a request to the node."""
        size = message.ByteSize()
        if isinstance(message, ProduceRequest):
            self._listener.meters.produce_requests += 1
            self._listener.meters.produce_bytes += size
        elif isinstance(message, FetchRequest):
            self._listener.meters.fetch_requests += 1
        number = 0

        def take(reply: ProtoMessage) -> None:
            if isinstance(reply, FetchResponse):
                self._listener.meters.fetch_bytes += reply.ByteSize()
            on_reply(reply)
            self._requests.times.written(number)

        number = self._requests.submit(message, size, take, self._stream, self._origin(client_id))
        return number

    def abandon(self, number: int) -> None:
        """Nobody waits for this reply any more."""
        self._requests.abandon(number)

    def work(self, work: Callable[[], object], on_done: Callable[[object, Exception | None], None]) -> None:
        """Has something done beside all else."""
        self._listener.work(work, on_done)

    def count(self, request: KafkaRequest) -> None:
        """A request was begun."""
        self._listener.meters.kafka_requests += 1

    def _origin(self, client_id: str) -> ClientOrigin:
        origin = self._origins.get(client_id)
        if origin is None:
            if len(self._origins) > 8:
                self._origins.clear()
            origin = ClientOrigin(client_id[:MAX_CLIENT_ID_LENGTH], self._host, listener=Listener.KAFKA)
            self._origins[client_id] = origin
        return origin

    def _flush(self) -> None:
        """Sends what there is, ends what is over, and reads on or no further."""
        client, transport = self._client, self._transport
        if client is None or transport is None or transport.is_closing():
            return
        while output := client.take_output():
            transport.writelines(output)
            # There may be requests again that can be answered at once.
            client.note_unsent(transport.get_write_buffer_size())
        end = client.end
        if end is not None:
            level = self._listener.log.info if end.fault is KafkaConnectionFault.SILENT else self._listener.log.warning
            level("kafka_connection_ended", address=self._host, fault=end.fault.value, reason=end.detail)
            if end.fault is not KafkaConnectionFault.SILENT:
                self._listener.meters.kafka_connections_ended += 1
            transport.close()
            return
        if client.reads_on != self._is_reading:
            self._is_reading = client.reads_on
            (transport.resume_reading if self._is_reading else transport.pause_reading)()


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
