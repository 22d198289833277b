"""Calls and streams to the nodes: every request is recorded before it is sent, every answer is checked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Mapping

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from quorumlog.chaos.hostile.access import Entrance, metadata_of
from quorumlog.chaos.hostile.known_ids import Vocabulary
from quorumlog.chaos.hostile.record import Action, SentLog, SentRequest
from quorumlog.chaos.hostile.services import Method
from quorumlog.v1.errors_pb2 import ErrorCode

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_reconnect_backoff_ms", 500),
)
#: Status codes that a node returns only if it has failed internally.
INTERNAL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
#: Time after which a stream that accepts no request is given up (s).
_WRITE_S = 2.0
#: One in this many answers with records is checked.
_FETCHES_READ = 8


class Wire:
    """The connections of one client process.

    Arguments:
        entrance: access to the nodes.
        first_stream: number of the first stream, distinct from those of other processes.
        tokens: node id -> session token there, for authenticated clients.
    """

    def __init__(
        self,
        entrance: Entrance,
        vocabulary: Vocabulary,
        recorder: SentLog,
        first_stream: int,
        tokens: Mapping[int, str] | None = None,
    ) -> None:
        credentials, nodes = entrance.credentials(), entrance.nodes
        if credentials is None:
            self._channels = {node: grpc.aio.insecure_channel(at, options=_OPTIONS) for node, at in nodes.items()}
        else:
            self._channels = {
                node: grpc.aio.secure_channel(at, credentials, options=_OPTIONS) for node, at in nodes.items()
            }
        self._session = {node: metadata_of((tokens or {}).get(node)) for node in nodes}
        self._forbidden = [each.encode() for each in entrance.forbidden]
        self._vocabulary = vocabulary
        self._recorder = recorder
        self._streams = itertools.count(first_stream + 1)
        self._fetches = 0
        #: Requests sent, and counts of how calls ended.
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.by_method: Counter[str] = Counter()
        #: Method and error code of each part of an answer: they show how far requests were processed.
        self.answers: Counter[str] = Counter()
        #: One line for each invalid answer.
        self.findings: list[str] = []

    def note(self, node: int, stream: int, action: Action, method: Method, data: bytes = b"") -> None:
        """Records an action before it is sent to a node."""
        self._recorder.note(SentRequest(time.time_ns() // 1_000, node, stream, action, method.path, data))
        if action in (Action.CALL, Action.SEND):
            self.sent += 1
            self.by_method[method.name] += 1

    async def call(self, node: int, method: Method, data: bytes, timeout_s: float) -> Message | None:
        """Makes a unary call; returns the answer, or None if it failed."""
        self.note(node, 0, Action.CALL, method, data)
        try:
            call = self._channels[node].unary_unary(method.path, bytes, bytes)
            answer = await call(data, timeout=timeout_s, metadata=self._session[node])
        except grpc.aio.AioRpcError as error:
            self.ended(node, method, error.code(), error.details())
            return None
        self.outcomes["OK"] += 1
        return self.learn(node, method, answer)

    def open(self, node: int, method: Method, metadata: tuple[tuple[str, str], ...] = ()) -> WireStream:
        """Opens a stream."""
        number = next(self._streams)
        self.note(node, number, Action.OPEN, method)
        made = self._channels[node].stream_stream(method.path, bytes, bytes)
        call = made(None, metadata=(*metadata, *self._session[node]))
        keep_the_nodes_status(call)
        return WireStream(self, node, method, number, call)

    def learn(self, node: int, method: Method, data: bytes) -> Message | None:
        """Evaluates an answer."""
        self._look_for_secrets(node, method, data)
        if method.name == "Fetch":
            self._fetches += 1
            if self._fetches % _FETCHES_READ:
                return None
        try:
            message = method.response.FromString(data)
        except DecodeError:
            self.findings.append(
                f"node {node} answered {method.name} with bytes that are not a {method.response.__name__}"
            )
            return None
        self._vocabulary.learn(message)
        for code in error_codes(message):
            self.answers[f"{method.name} {ErrorCode.Name(code)}"] += 1
            if code == ErrorCode.UNKNOWN_SERVER_ERROR:
                self.findings.append(f"node {node} answered {method.name} with UNKNOWN_SERVER_ERROR")
        return message

    def _look_for_secrets(self, node: int, method: Method, data: bytes) -> None:
        if any(secret in data for secret in self._forbidden):
            self.findings.append(f"node {node} answered {method.name} with a secret")

    def ended(self, node: int, method: Method, code: grpc.StatusCode, details: str | None) -> None:
        """Evaluates the status with which a call or a stream ended."""
        self.outcomes[code.name] += 1
        self._look_for_secrets(node, method, (details or "").encode())
        if code in INTERNAL:
            self.findings.append(
                f"node {node} answered {method.name} with {code.name}: {' '.join((details or '').split())}"
            )

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels.values():
            await channel.close(None)


def error_codes(message: Message) -> list[ErrorCode.ValueType]:
    """Returns the error of an answer, or of each of its parts; NONE for a success."""
    parts: list[Message] = [message]
    for each, value in message.ListFields():
        if each.message_type is not None and each.is_repeated and "error" in each.message_type.fields_by_name:
            parts = list(value)
    return [part.error.code for part in parts if "error" in part.DESCRIPTOR.fields_by_name]  # type: ignore[attr-defined]


class _StatusKept:
    """gRPC's internal part of a call, with a status that a failed write cannot replace."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> object:
        return getattr(self._part, name)

    def set_internal_error(self, text: str) -> None:
        """Does nothing: the writer then waits for the status of the node."""


def keep_the_nodes_status(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
    """Makes a call end with the status from the node, regardless of failed writes.

    gRPC gives a call that has ended during a write the local status INTERNAL, "Internal error from Core". The node's
    own status can then no longer be read, and that may be an INTERNAL which must be found.
    """
    call._cython_call = _StatusKept(call._cython_call)  # type: ignore[attr-defined]


class WireStream:
    """One stream of requests. Answers are read as they arrive, so that none blocks the node."""

    def __init__(
        self, wire: Wire, node: int, method: Method, number: int, call: grpc.aio.StreamStreamCall[bytes, bytes]
    ) -> None:
        self._wire = wire
        self._node = node
        self._method = method
        self._number = number
        self._call = call
        self._news = asyncio.Event()
        self._last: Message | None = None
        #: Number of received answers, and True once no more will arrive.
        self.answered = 0
        self.over = False
        self._reader = asyncio.ensure_future(self._read())

    async def send(self, data: bytes) -> bool:
        """Sends a request; returns False if the stream has ended."""
        if self.over:
            return False
        self._wire.note(self._node, self._number, Action.SEND, self._method, data)
        try:
            async with asyncio.timeout(_WRITE_S):
                await self._call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError, TimeoutError):
            # The node has ended the stream because of an earlier request, or does not read: both are allowed.
            return False
        except asyncio.CancelledError:
            # Also raised where gRPC cancels the call; only a cancelled task must propagate it.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return False
        return True

    async def ask(self, data: bytes, timeout_s: float) -> Message | None:
        """Sends a request and waits for the next answer; None if none exists in time."""
        self._news.clear()
        return await self._next(timeout_s) if await self.send(data) else None

    async def _next(self, timeout_s: float) -> Message | None:
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return None
        return self._last

    async def settle(self, answers: int, timeout_s: float) -> None:
        """Waits for a number of answers, the end of the stream, or the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.answered < answers and not self.over:
                    self._news.clear()
                    await self._news.wait()

    async def half_close(self, timeout_s: float) -> None:
        """Closes the sending side, and waits for the end; cancels a stream that does not end in time."""
        self._wire.note(self._node, self._number, Action.HALF_CLOSE, self._method)
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            await asyncio.wait_for(self._call.done_writing(), timeout_s)
            await asyncio.wait_for(asyncio.shield(self._reader), timeout_s)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancels the stream."""
        if not self.over:
            self._wire.note(self._node, self._number, Action.CANCEL, self._method)
            self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                data = await self._call.read()
                if not isinstance(data, bytes):
                    break
                self.answered += 1
                self._last = self._wire.learn(self._node, self._method, data)
                self._news.set()
            self._wire.ended(self._node, self._method, await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as error:
            self._wire.ended(self._node, self._method, error.code(), error.details())
        except (asyncio.InvalidStateError, grpc.aio.UsageError):
            self._wire.outcomes["CANCELLED"] += 1
        finally:
            self.over = True
            self._news.set()
