"""The port for Kafka's clients: the only module with their sockets.

Each connection has its own limits (``connection.py``). This module limits the number of connections: in all, for each
address, and of clients that have not authenticated yet. A socket is not read while its connection, or the node, should
accept no more. With TLS, a connection counts from before its handshake.
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
from itertools import chain
from typing import cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.setting_values import parse_address
from quorumlog.server.kafka.client import KafkaClient
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.connection import KafkaConnection, KafkaConnectionFault, KafkaConnectionLimits, KafkaRequest
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.server.kafka.handlers.handler import (
    FetchReply,
    KafkaConnectionRefusedError,
    LongWork,
    NodeReply,
    TooMuchWorkError,
)
from quorumlog.server.kafka.memory_budget import MOST_HELD_BYTES, MemoryBudget
from quorumlog.server.kafka.sign_in_state import KafkaSignIn, TokenKeyReader
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.events import EndedStream, Reply
from quorumlog.server.step.request_context import ANONYMOUS, USER_PREFIX, Listener, RequestContext
from quorumlog.server.transport.caller_identity import MAX_CLIENT_ID_LENGTH
from quorumlog.server.transport.certificate_ends import certificate_end_of
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.failed_handshakes import FailedHandshakes, reason_of
from quorumlog.server.transport.principals import auth_context_of, principal_of, serial_of
from quorumlog.server.transport.tls_contexts import TlsContexts
from quorumlog.v1.data_plane_pb2 import FetchRequest, FetchResponse, ProduceRequest
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest, SignInByTokenRequest

#: Intervals for checking idle connections, and connections that wait for the node to have capacity.
_LOOK_AT_SILENCE_S = 5.0
_LOOK_FOR_ROOM_S = 0.02
#: Interval for checking whether the cluster supports Kafka's batches.
_LOOK_AT_CLUSTER_S = 0.1
#: The listener logs what it waits for after that time.
_TOLD_AFTER_S = 5.0
#: At most one refused connection is logged in this time.
_TELL_AGAIN_S = 1.0
#: Timeout of the TLS handshake, and of its shutdown.
_HANDSHAKE_S = 5.0
#: Connections that wait to be accepted, and the pause after accepting one failed.
_BACKLOG = 128
_ACCEPT_AGAIN_S = 0.05
#: Passwords that are being hashed or wait for that, in all and for each address: each takes some 70 ms. Tokens whose
#: keys are being read count too.
_HASHED_AT_ONCE = 64
_HASHED_OF_ADDRESS = 16
#: Bytes of batches that wait to be translated or validated: without a limit, the fetches of all consumers would fill
#: the memory.
MOST_WORK_BYTES = 128 << 20
#: Requests without a session.
_SIGN_IN = (BeginScramRequest, FinishScramRequest, SignInByTokenRequest)
#: Bytes of a connection's output above which its transport is paused.
_SOCKET_BUFFER_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class KafkaListenerOptions:
    """Options of the Kafka listener.

    Arguments:
        address: host:port to listen on.
        connections: maximum number at a time.
        connections_per_ip: maximum number for one address, unless it is changed at run time.
        creates_topics: unknown topics are created when clients mention them.
        feature_level: the first one at which the cluster stores what Kafka's clients write.
        proof: the listener whose method of authentication applies; None: clients do not authenticate.
        keys: for tokens; None: the node accepts none.
    """

    address: str
    connections: int
    connections_per_ip: int
    creates_topics: bool
    feature_level: int
    limits: KafkaConnectionLimits
    proof: Listener | None = None
    keys: TokenKeyReader | None = None


class KafkaListener:
    """Serves Kafka's clients on one address.

    Arguments:
        contexts: for TLS; None: plaintext.
        failed: is notified of failed TLS handshakes.
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
        self.versions = served_versions(
            asks_to_sign_in=options.proof is Listener.PASSWORD, feature_level=lambda: cluster.feature_level
        )
        self.fetch_sessions = FetchSessionSpace(first=secrets.randbits(30))
        self._open: set[_KafkaSocket] = set()
        self._strangers: set[_KafkaSocket] = set()
        self._of_address: Counter[str] = Counter()
        self._unfinished: MemoryBudget[_KafkaSocket] = MemoryBudget(
            max(MOST_HELD_BYTES, 4 * options.limits.request_bytes)
        )
        self._unread: MemoryBudget[_KafkaSocket] = MemoryBudget(max(MOST_HELD_BYTES, 4 * options.limits.unsent_bytes))
        self._server: asyncio.Server | None = None
        #: With TLS: tasks that accept connections, and tasks of handshakes.
        self._tasks: set[asyncio.Task[None]] = set()
        self._tell_again_s = 0.0
        self._connections_per_ip = options.connections_per_ip
        #: Translations run one after the other: the thread shares the processor with the node's own.
        self._workers = ThreadPoolExecutor(1, "kafka-batches")
        self._work_bytes = 0
        #: Number of passwords being hashed for each address. They have their own thread, so that unauthenticated
        #: clients cannot delay translations.
        self._hashing: Counter[str] = Counter()
        self._hashers = ThreadPoolExecutor(1, "kafka-passwords")

    def follow_settings(self, values: DynamicValues) -> None:
        """Changes the maximum number of connections from one address. Open ones are not closed."""
        self._connections_per_ip = values.kafka_connections_per_ip

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def run(self) -> None:
        """Listens once the cluster supports what Kafka's clients write, and checks connections periodically."""
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
        """Accepts connections; each counts from here on and uses the current certificate."""
        loop = asyncio.get_running_loop()
        with listening:
            listening.setblocking(False)
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError:  # The client has disconnected, or no file descriptors are left.
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
        while not self.cluster.reaches(self.options.feature_level):  # metadata has no notifications
            if clock() > tell_at_s and self.cluster.is_formed:
                tell_at_s = math.inf
                self.log.info(
                    "kafka_listener_waits",
                    reason="nodes of an older version cannot read what Kafka's clients write: upgrade them",
                )
            await asyncio.sleep(_LOOK_AT_CLUSTER_S)

    def stop(self) -> None:
        """Stops listening and closes all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for each in list(self._open):
            each.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._hashers.shutdown(wait=False, cancel_futures=True)

    def admit(self, one: _KafkaSocket, host: str) -> bool:
        """Accepts a connection within the limits; otherwise returns False. Refusals are logged at a limited rate."""
        if len(self._open) >= self.options.connections:
            refusal = f"{len(self._open)} connections are open, the maximum is {self.options.connections}"
        elif self._of_address[host] >= self._connections_per_ip:
            refusal = (
                f"{self._of_address[host]} connections of this address are open: raise kafka_max_connections_per_ip"
            )
        elif self.options.proof is not None and len(self._strangers) >= self._most_strangers:
            refusal = f"{len(self._strangers)} clients have not authenticated yet"
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
        """Logs why a connection was refused, at a limited rate."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _TELL_AGAIN_S
            self.log.warning("kafka_connection_refused", address=host, reason=refusal)

    def trust(self, one: _KafkaSocket) -> None:
        """Marks a client as authenticated."""
        self._strangers.discard(one)

    def note_unfinished(self, one: _KafkaSocket, request: int, size_bytes: int) -> None:
        """Records the size of an incomplete request."""
        last = self._unfinished.note(one, request, size_bytes)
        if last is not None:
            self._make_way(last, "its incomplete request is the oldest, and the memory budget is exhausted")

    def note_unread(self, one: _KafkaSocket, reads: int, size_bytes: int) -> None:
        """Records the size of responses that a client does not read, or that wait for an earlier one."""
        last = self._unread.note(one, reads, size_bytes)
        if last is not None:
            self._make_way(last, "its responses are unread for the longest, and the memory budget is exhausted")

    def _make_way(self, last: _KafkaSocket, reason: str) -> None:
        self.meters.kafka_connections_ended += 1
        self._unfinished.forget(last)
        self._unread.forget(last)
        last.make_way(reason)

    def dismiss(self, one: _KafkaSocket, host: str) -> None:
        """Removes a closed connection from the accounts."""
        self._unfinished.forget(one)
        self._unread.forget(one)
        self._open.discard(one)
        self._strangers.discard(one)
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]

    def work(self, wanted: LongWork, host: str, on_done: Callable[[object, Exception | None], None]) -> None:
        """Runs work on a worker thread.

        Arguments:
            host: address of the client that it is done for.
        """
        loop = asyncio.get_running_loop()
        if wanted.to_sign_in:
            if self._hashing[host] >= _HASHED_OF_ADDRESS or self._hashing.total() >= _HASHED_AT_ONCE:
                busy = KafkaConnectionRefusedError(
                    "too many clients authenticate with PLAIN or tokens: try again, or use SCRAM"
                )
                loop.call_soon(on_done, None, busy)
                return
            self._hashing[host] += 1
        elif self._work_bytes and self._work_bytes + wanted.size_bytes > MOST_WORK_BYTES:
            full = TooMuchWorkError("too many batches wait to be validated: try again after a pause")
            loop.call_soon(on_done, None, full)
            return
        self._work_bytes += wanted.size_bytes

        def done(future: asyncio.Future[object]) -> None:
            if wanted.to_sign_in:
                self._hashing[host] -= 1
                if not self._hashing[host]:
                    del self._hashing[host]
            self._work_bytes -= wanted.size_bytes
            if not future.cancelled():
                problem = future.exception()
                assert problem is None or isinstance(problem, Exception)
                on_done(None if problem is not None else future.result(), problem)

        executor = self._hashers if wanted.to_sign_in else self._workers
        loop.run_in_executor(executor, wanted.work).add_done_callback(done)


class _KafkaSocket(asyncio.Protocol):
    """One socket: moves bytes between it and its connection."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._requests = listener.requests
        self._proof = listener.options.proof
        self._host = ""
        self._sign_in: KafkaSignIn | None = None
        #: From the certificate: the client's principal, serial number and expiry.
        self._principal, self._serial, self._ends_s = ANONYMOUS, "", math.inf
        #: Numbered here, before the TLS handshake: the order of connections fences late requests of transactions.
        self._stream = self._requests.open_stream()
        self._opened_us = _now_us()
        self._is_served = False
        self._is_reading = True
        self._client: KafkaClient | None = None
        self._transport: asyncio.Transport | None = None
        self._origins: dict[str, RequestContext] = {}
        #: Bytes of responses that are unsent, and how often their number was seen to have decreased.
        self._unread_bytes = self._reads = 0

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts serving a client whose connection, and TLS handshake if any, is complete."""
        # uvloop's transport does not inherit from asyncio.Transport.
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
        self._requests.watch_stream(self._stream, self)
        limits, asks = self._listener.options.limits, self._proof is Listener.PASSWORD
        self._sign_in = KafkaSignIn(_draw_nonce, self._listener.options.keys) if asks else None
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
        """Performs the TLS handshake with an admitted client, then continues with ``connection_made``."""
        self._host, self._is_served = host, True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self,
                accepted,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_HANDSHAKE_S,
            )
        except Exception as problem:  # TLS and the event loop raise many types of exceptions. It concerns one client.
            if self._listener.failed is not None:
                self._listener.failed.failed("kafka_listen", host, reason_of(problem))
            accepted.close()
            self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        """Processes received bytes, unless the client's certificate has expired in the meantime."""
        if self._is_over:
            self.look()
        elif self._client is not None:
            self._client.receive(data)
            self._flush()
            self._listener.note_unfinished(self, *self._client.unfinished)

    def resume_writing(self) -> None:
        """Resumes sending: the transport's buffer has drained."""
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Releases what belongs to the connection."""
        if self._is_served:
            self._is_served = False
            self._listener.dismiss(self, self._host)
            if self._client is not None:
                self._requests.close_stream(self._stream, is_known=True)
        if self._client is not None:
            self._client.gone()
            self._client = None

    # -- calls from the listener and the node ----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """True if the connection waits for the node to have capacity, and must be checked soon."""
        return self._client is not None and self._client.waits_for_room

    @property
    def _is_over(self) -> bool:
        """True if the certificate that authenticated the client has expired."""
        return time.time() > self._ends_s

    def look(self) -> None:
        """Continues where possible, and closes the connection if it was silent for too long."""
        if self._is_over:
            self._listener.tell_refusal(self._host, "its certificate has expired")
            self.close()
        elif self._client is not None:
            self._client.on_time()
            self._flush()

    def close(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.abort()

    def make_way(self, reason: str) -> None:
        """Closes the connection because the shared memory budget is exhausted."""
        self._listener.tell_refusal(self._host, reason)
        self.close()

    def end(self, ended: EndedStream) -> None:
        """Closes the connection: the node has ended the client's session, or wants it to connect again."""
        self.close()

    def pause(self, is_paused: bool) -> None:
        """Pauses a client that is over a quota, or resumes it."""
        if self._client is not None:
            self._client.pause(is_paused)
            self._flush()

    @property
    def principal(self) -> str:
        """The principal as which the client is authenticated, if it is."""
        signed_in = self._sign_in is not None and self._sign_in.token
        return f"{USER_PREFIX}{self._sign_in.user}" if self._sign_in is not None and signed_in else self._principal

    # -- the client's requests to the node -------------------------------------------------------------------------

    def has_room(self) -> bool:
        """True if the node accepts another request."""
        return self._requests.has_room_for(0)

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[NodeReply], None]) -> int:
        """Submits a request to the node and returns its number."""
        size = message.ByteSize()
        if isinstance(message, ProduceRequest):
            self._listener.meters.produce_requests += 1
            self._listener.meters.produce_bytes += size
        elif isinstance(message, FetchRequest):
            self._listener.meters.fetch_requests += 1
        number = 0

        def take(reply: Reply) -> None:
            told, entries = reply.told, reply.entries
            if isinstance(told, FetchResponse):
                self._listener.meters.fetch_bytes += told.ByteSize() + sum(map(len, chain.from_iterable(entries)))
                on_reply(FetchReply(told, entries) if entries else told)
            else:
                on_reply(told)
            self._requests.times.written(number)

        # A client that authenticates has no session yet that the stream could belong to.
        stream = 0 if isinstance(message, _SIGN_IN) else self._stream
        origin = self._origin(client_id)
        number = self._requests.submit(message, size, take, stream, origin, connected_us=self._opened_us)
        return number

    def abandon(self, number: int) -> None:
        """Drops the reply to a request."""
        self._requests.abandon(number)

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        """Runs work on a worker thread."""
        self._listener.work(wanted, self._host, on_done)

    def count(self, request: KafkaRequest) -> None:
        """Counts a request whose processing has started."""
        self._listener.meters.kafka_requests += 1
        if self._listener.log.debugs:
            kind = type(request.message).__name__
            self._listener.log.debug("kafka_request", request=kind, version=request.version, address=self._host)

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
        """Sends pending output, closes a finished connection, and pauses or resumes reading."""
        client, transport = self._client, self._transport
        if client is None or transport is None or transport.is_closing():
            return
        left = transport.get_write_buffer_size()
        self._reads += left < self._unread_bytes
        client.note_unsent(left)
        output = client.take_output()
        if output:
            transport.writelines(output)
            # More requests may now be answered without the node. They have to wait their turn: otherwise the requests
            # of a single read would be answered for a third of a second.
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
