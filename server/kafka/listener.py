"""Where Kafka's clients connect: the one module that knows their sockets.

Each connection is bounded by itself (``connection.py``). Here it is bounded how many there are, in all, of one address
and of clients that have not proved yet who they are, and a socket is not read while its connection, or the node, should
take no more. With TLS a connection counts from before its handshake.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.setting_values import parse_address
from quorumlog.server.kafka.client import KafkaClient
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.connection import KafkaConnection, KafkaConnectionFault, KafkaConnectionLimits, KafkaRequest
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.server.kafka.handlers.handler import KafkaConnectionRefusedError, LongWork, TooMuchWorkError
from quorumlog.server.kafka.memory_budget import MOST_HELD_BYTES, MemoryBudget
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import EndedStream, Reply
from quorumlog.server.step.request_context import ANONYMOUS, USER_PREFIX, Listener, RequestContext
from quorumlog.server.transport.caller_identity import MAX_CLIENT_ID_LENGTH
from quorumlog.server.transport.certificate_ends import certificate_end_of
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.failed_handshakes import FailedHandshakes, reason_of
from quorumlog.server.transport.principals import auth_context_of, principal_of, serial_of
from quorumlog.server.transport.tls_contexts import TlsContexts
from quorumlog.v1.data_plane_pb2 import FetchRequest, FetchResponse, ProduceRequest
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest

#: How often silent connections, and those that wait for the node to have room, are looked at.
_LOOK_AT_SILENCE_S = 5.0
_LOOK_FOR_ROOM_S = 0.02
#: How often it is looked whether the cluster knows Kafka's batches.
_LOOK_AT_CLUSTER_S = 0.1
#: What a listener waits for after that long it says.
_TOLD_AFTER_S = 5.0
#: For so long no other refused connection is told of.
_TELL_AGAIN_S = 1.0
#: How long a handshake of TLS may take, and its end.
_HANDSHAKE_S = 5.0
#: Connections that wait to be taken, and the pause after one could not be.
_BACKLOG = 128
_ACCEPT_AGAIN_S = 0.05
#: Passwords that are hashed or wait for that, in all and of one address: each takes some 70 ms.
_HASHED_AT_ONCE = 64
_HASHED_OF_ADDRESS = 16
#: Bytes of batches that wait to be translated, or looked at: what all consumers fetch at once would fill the memory.
MOST_WORK_BYTES = 128 << 20
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
        proof: the listener in whose way clients prove who they are; None: they do not.
    """

    address: str
    connections: int
    connections_per_ip: int
    creates_topics: bool
    feature_level: int
    limits: KafkaConnectionLimits
    proof: Listener | None = None


class KafkaListener:
    """Serves Kafka's clients on one address.

    Arguments:
        contexts: for TLS; None: without.
        failed: is told of handshakes of TLS that failed.
    """

    def __init__(
        self,
        options: KafkaListenerOptions,
        cluster: ImageView,
        requests: ClientRequests,
        log: Log,
        meters: Meters,
        contexts: TlsContexts | None = None,
        failed: FailedHandshakes | None = None,
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.requests = requests
        self.log = log
        self.meters = meters
        self.contexts = contexts
        self.failed = failed
        self.versions = served_versions(asks_to_sign_in=options.proof is Listener.PASSWORD)
        self.fetch_sessions = FetchSessionSpace(first=secrets.randbits(30))
        self._open: set[_KafkaSocket] = set()
        self._strangers: set[_KafkaSocket] = set()
        self._of_address: Counter[str] = Counter()
        self._unfinished: MemoryBudget[_KafkaSocket] = MemoryBudget(
            max(MOST_HELD_BYTES, 4 * options.limits.request_bytes)
        )
        self._unread: MemoryBudget[_KafkaSocket] = MemoryBudget(max(MOST_HELD_BYTES, 4 * options.limits.unsent_bytes))
        self._server: asyncio.Server | None = None
        #: With TLS: those that take connections, and handshakes.
        self._tasks: set[asyncio.Task[None]] = set()
        self._tell_again_s = 0.0
        #: Translations, one after the other: they are paced by what one thread gets done beside the node's.
        self._workers = ThreadPoolExecutor(1, "kafka-batches")
        self._work_bytes = 0
        #: Passwords that are hashed, of each address, on a thread that strangers cannot keep from translating.
        self._hashing: Counter[str] = Counter()
        self._hashers = ThreadPoolExecutor(1, "kafka-passwords")

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._open)

    async def run(self) -> None:
        """Listens as soon as the cluster knows what Kafka's clients write, and looks after connections."""
        await self._wait_for_cluster()
        host, port = parse_address(self.options.address)
        loop = asyncio.get_running_loop()
        if self.contexts is None:
            self._server = await loop.create_server(lambda: _KafkaSocket(self), host, port)
        else:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, at in {(family, at[:2]) for family, _, _, _, at in found}:
                listening = socket.create_server((str(at[0]), int(at[1])), family=family, backlog=_BACKLOG)
                self._tasks.add(loop.create_task(self._accept(listening, self.contexts)))
        acceptors = list(self._tasks)
        self.log.info("kafka_listening", address=self.options.address)
        looked_s = loop.time()
        while True:
            await asyncio.sleep(_LOOK_FOR_ROOM_S if any(each.waits for each in self._open) else _LOOK_AT_SILENCE_S / 10)
            for acceptor in acceptors:
                if acceptor.done():
                    acceptor.result()
            is_due = loop.time() >= looked_s + _LOOK_AT_SILENCE_S
            if is_due:
                looked_s = loop.time()
            for each in list(self._open):
                if is_due or each.waits:
                    each.look()

    async def _accept(self, listening: socket.socket, contexts: TlsContexts) -> None:
        """Takes connections, each of which counts from here on and has the certificate as it is now."""
        loop = asyncio.get_running_loop()
        with listening:
            listening.setblocking(False)
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # The client has gone again, or there are no descriptors left.
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                one, host = _KafkaSocket(self), str(peer[0])
                if not self.admit(one, host):
                    accepted.close()
                    continue
                task = loop.create_task(one.shake_hands(accepted, host, contexts.current()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

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
        for task in list(self._tasks):
            task.cancel()
        for each in list(self._open):
            each.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._hashers.shutdown(wait=False, cancel_futures=True)

    def admit(self, one: _KafkaSocket, host: str) -> bool:
        """Takes a connection, unless there are as many as there may be. Of a flood of them one in a while is told."""
        if len(self._open) >= self.options.connections:
            refusal = f"{len(self._open)} connections are open, and there may be {self.options.connections}"
        elif self._of_address[host] >= self.options.connections_per_ip:
            refusal = f"{self._of_address[host]} connections of this address are open: kafka_max_connections_per_ip"
        elif self.options.proof is not None and len(self._strangers) >= self._most_strangers:
            refusal = f"{len(self._strangers)} clients have not proved yet who they are"
        else:
            self._open.add(one)
            self._of_address[host] += 1
            if self.options.proof is not None:
                self._strangers.add(one)
            return True
        self.meters.kafka_connections_refused += 1
        self.tell_refusal(host, refusal)
        return False

    @property
    def _most_strangers(self) -> int:
        return max(1, self.options.connections // 2)

    def tell_refusal(self, host: str, refusal: str) -> None:
        """Says in the log why a connection was not taken, of many of them one in a while."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _TELL_AGAIN_S
            self.log.warning("kafka_connection_refused", address=host, reason=refusal)

    def trust(self, one: _KafkaSocket) -> None:
        """A client has proved who it is."""
        self._strangers.discard(one)

    def note_unfinished(self, one: _KafkaSocket, request: int, size_bytes: int) -> None:
        """Takes note of what has come of a request that is not whole."""
        last = self._unfinished.note(one, request, size_bytes)
        if last is not None:
            self._make_way(last, "of all requests that are not whole, its own began first")

    def note_unread(self, one: _KafkaSocket, reads: int, size_bytes: int) -> None:
        """Takes note of what is kept of a client's answers: it does not read them, or has asked for something before
        them that is not answered."""
        last = self._unread.note(one, reads, size_bytes)
        if last is not None:
            self._make_way(last, "of all clients whose answers have to be kept, it has read nothing for the longest")

    def _make_way(self, last: _KafkaSocket, reason: str) -> None:
        self.meters.kafka_connections_ended += 1
        self._unfinished.forget(last)
        self._unread.forget(last)
        last.make_way(reason)

    def dismiss(self, one: _KafkaSocket, host: str) -> None:
        """A connection that was taken is over."""
        self._unfinished.forget(one)
        self._unread.forget(one)
        self._open.discard(one)
        self._strangers.discard(one)
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]

    def work(self, wanted: LongWork, host: str, on_done: Callable[[object, Exception | None], None]) -> None:
        """Has something done on the thread for that.

        Arguments:
            host: the address that it is done for.
        """
        loop = asyncio.get_running_loop()
        if wanted.is_password:
            if self._hashing[host] >= _HASHED_OF_ADDRESS or self._hashing.total() >= _HASHED_AT_ONCE:
                busy = KafkaConnectionRefusedError(
                    "too many clients sign in by PLAIN: try again, or with SCRAM-SHA-256"
                )
                loop.call_soon(on_done, None, busy)
                return
            self._hashing[host] += 1
        elif self._work_bytes and self._work_bytes + wanted.size_bytes > MOST_WORK_BYTES:
            full = TooMuchWorkError("too many batches wait here to be looked at: try again after a pause")
            loop.call_soon(on_done, None, full)
            return
        self._work_bytes += wanted.size_bytes

        def done(future: asyncio.Future[object]) -> None:
            if wanted.is_password:
                self._hashing[host] -= 1
                if not self._hashing[host]:
                    del self._hashing[host]
            self._work_bytes -= wanted.size_bytes
            if not future.cancelled():
                problem = future.exception()
                assert problem is None or isinstance(problem, Exception)
                on_done(None if problem is not None else future.result(), problem)

        executor = self._hashers if wanted.is_password else self._workers
        loop.run_in_executor(executor, wanted.work).add_done_callback(done)


class _KafkaSocket(asyncio.Protocol):
    """One socket: moves bytes between it and its connection."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._requests = listener.requests
        self._proof = listener.options.proof
        self._host = ""
        self._sign_in: KafkaSignIn | None = None
        #: By certificate: who the client is, its serial number, and when it ends.
        self._principal, self._serial, self._ends_s = ANONYMOUS, "", math.inf
        self._stream = 0
        self._is_served = False
        self._is_reading = True
        self._client: KafkaClient | None = None
        self._transport: asyncio.Transport | None = None
        self._origins: dict[str, RequestContext] = {}
        #: Bytes of answers that have not left, and how often they were found to have become fewer.
        self._unread_bytes = self._reads = 0

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and with TLS has shaken hands."""
        # uvloop's has no such base.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._listener.contexts is None:
            peer = transport.get_extra_info("peername")
            self._host = str(peer[0]) if peer else ""
            self._is_served = self._listener.admit(self, self._host)
        if not self._is_served:
            transport.abort()
            return
        if self._proof is Listener.CLIENT:
            proved = auth_context_of(transport.get_extra_info("ssl_object"))
            self._principal, self._serial = principal_of(proved), serial_of(proved)
            self._ends_s = certificate_end_of(proved)
            self._listener.trust(self)
        transport.set_write_buffer_limits(high=_SOCKET_BUFFER_BYTES)
        self._stream = self._requests.open_stream()
        self._requests.watch_stream(self._stream, self)
        limits, asks = self._listener.options.limits, self._proof is Listener.PASSWORD
        self._sign_in = KafkaSignIn(_draw_nonce) if asks else None
        self._client = KafkaClient(
            KafkaConnection(self._listener.versions, limits, _now_us(), asks_to_sign_in=asks),
            self,
            self._listener.cluster.seen_by(self),
            self._listener.options.creates_topics,
            _now_us,
            self._flush,
            self._sign_in,
            self._listener.fetch_sessions,
        )

    async def shake_hands(self, accepted: socket.socket, host: str, context: ssl.SSLContext) -> None:
        """Has a client that was admitted shake hands; it goes on with ``connection_made``."""
        self._host, self._is_served = host, True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self,
                accepted,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_HANDSHAKE_S,
            )
        except Exception as problem:  # TLS has many, the loop has its own. It is one client's matter.
            if self._listener.failed is not None:
                self._listener.failed.failed("kafka_listen", host, reason_of(problem))
            accepted.close()
            self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Bytes came. What comes with a certificate that has ended since is not looked at."""
        if self._is_over:
            self.look()
        elif self._client is not None:
            self._client.receive(data)
            self._flush()
            self._listener.note_unfinished(self, *self._client.unfinished)

    def resume_writing(self) -> None:
        """The client takes bytes again."""
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._is_served:
            self._is_served = False
            self._listener.dismiss(self, self._host)
            if self._stream:
                self._requests.close_stream(self._stream, is_known=True)
        if self._client is not None:
            self._client.gone()
            self._client = None

    # -- what the listener and the node say -----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether it is to be looked at soon: the node has no room for its requests."""
        return self._client is not None and self._client.waits_for_room

    @property
    def _is_over(self) -> bool:
        """Whether the certificate is not valid any more by which the client came in."""
        return time.time() > self._ends_s

    def look(self) -> None:
        """Goes on where it can, and ends what was silent for too long."""
        if self._is_over:
            self._listener.tell_refusal(self._host, "its certificate is not valid any more")
            self.close()
        elif self._client is not None:
            self._client.on_time()
            self._flush()

    def close(self) -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.abort()

    def make_way(self, reason: str) -> None:
        """Ends it: all connections together hold too much."""
        self._listener.tell_refusal(self._host, reason)
        self.close()

    def end(self, ended: EndedStream) -> None:
        """The node lets the client in no more."""
        self.close()

    def pause(self, is_paused: bool) -> None:
        """The client is over a quota, or no longer."""
        if self._client is not None:
            self._client.pause(is_paused)
            self._flush()

    @property
    def principal(self) -> str:
        """Who the client is, as far as it has proved that."""
        signed_in = self._sign_in is not None and self._sign_in.token
        return f"{USER_PREFIX}{self._sign_in.user}" if self._sign_in is not None and signed_in else self._principal

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

        def take(reply: Reply) -> None:
            answer = reply.message
            if isinstance(answer, FetchResponse):
                self._listener.meters.fetch_bytes += answer.ByteSize()
            on_reply(answer)
            self._requests.times.written(number)

        # Whoever signs in has no session yet that the stream could belong to.
        stream = 0 if isinstance(message, (BeginScramRequest, FinishScramRequest)) else self._stream
        number = self._requests.submit(message, size, take, stream, self._origin(client_id))
        return number

    def abandon(self, number: int) -> None:
        """Nobody waits for this reply any more."""
        self._requests.abandon(number)

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        """Has something done beside all else."""
        self._listener.work(wanted, self._host, on_done)

    def count(self, request: KafkaRequest) -> None:
        """A request was begun."""
        self._listener.meters.kafka_requests += 1

    def _origin(self, client_id: str) -> RequestContext:
        origin, token = self._origins.get(client_id), self._sign_in.token if self._sign_in is not None else ""
        if origin is None or origin.token != token:
            if len(self._origins) > 8:
                self._origins.clear()
            origin = RequestContext(
                client_id[:MAX_CLIENT_ID_LENGTH],
                self._host,
                self._principal,
                Listener.KAFKA,
                self._serial,
                token,
                self._proof,
            )
            self._origins[client_id] = origin
        return origin

    def _flush(self) -> None:
        """Sends what there is, ends what is over, and reads on or no further."""
        client, transport = self._client, self._transport
        if client is None or transport is None or transport.is_closing():
            return
        left = transport.get_write_buffer_size()
        self._reads += left < self._unread_bytes
        client.note_unsent(left)
        output = client.take_output()
        if output:
            transport.writelines(output)
            # There may be requests again that can be answered at once. They have to wait for the turn of all others:
            # what came with one read would be answered for a third of a second.
            client.note_unsent(transport.get_write_buffer_size())
            asyncio.get_running_loop().call_soon(self._flush)
        self._unread_bytes = transport.get_write_buffer_size()
        self._listener.note_unread(self, self._reads, self._unread_bytes + client.kept_bytes)
        if self._sign_in is not None and self._sign_in.token:
            self._listener.trust(self)
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


def _draw_nonce() -> str:
    return secrets.token_hex(16)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
