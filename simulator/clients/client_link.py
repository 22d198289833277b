"""The replacement of a gRPC channel: one connection between a client's process and the process that listens at an
address.

Messages keep their order in each direction, as with TCP. A connection can be stalled: all data in flight arrives late,
perhaps long after the client has given up and another node leads. It can be broken: data in flight to the node may
still arrive, but the client receives nothing. gRPC's own rules are kept: a call fails with UNAVAILABLE when its
connection is lost, with DEADLINE_EXCEEDED when its time is over, and the node is notified of a cancelled call after all
data that was sent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from quorumlog.simulator.clients.node_door import NodeDoor, ServedCall
from quorumlog.simulator.clients.virtual_loop import VirtualLoop
from quorumlog.simulator.world.scheduler import Scheduler

_END_OF_STREAM: Any = grpc.aio.EOF  # type: ignore[attr-defined]
DELAY_US = (80, 2_000)
#: Timeout of connection attempts through a cut: the client's own setting (µs).
CONNECT_TIMEOUT_US = 1_000_000
#: Time until clients notice the loss of a node's machine through TCP, unless it answers again before (µs).
SILENT_LOSS_US = (100_000, 3_000_000)

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]
Trailing = tuple[tuple[str, str | bytes], ...]


class ClientNetwork(Protocol):
    """The network between clients and nodes."""

    def listener(self, address: str) -> tuple[int, NodeDoor] | None:
        """Returns the node whose process listens at an address; None if none exists."""

    def blocked_until(self, client: str, node: int) -> int:
        """Returns the time (µs) until which nothing passes between a client and a node."""


class _ClientEnd(Protocol):
    """The client's end of a call."""

    def message(self, data: bytes) -> None:
        """Handles an answer that has arrived."""

    def ended(self, code: grpc.StatusCode, details: str, trailing: Trailing) -> None:
        """Handles the end of the call."""


class _Connection:
    """One connection of a link: from its opening to a process until either end is gone."""

    def __init__(self, link: ClientLink, node: int, door: NodeDoor) -> None:
        self.node = node
        self.door = door
        self.open = True
        #: Calls with the node's end of each; None until the call has arrived there.
        self.calls: dict[_ClientEnd, ServedCall | None] = {}
        self._link = link
        self._to_node_us = self._to_client_us = 0
        #: Set once it is broken: data that has not arrived by then is lost.
        self._accepts_until_us: int | None = None
        door.when_closed(self._node_died)

    def open_call(
        self,
        call: _ClientEnd,
        method: str,
        first: bytes | None,
        timeout: float | None,
        opened: Callable[[ServedCall], None],
    ) -> None:
        """Opens a call at the node.

        Arguments:
            first: the message of a unary call; None for a stream.
            opened: called with the node's end, once the call has arrived.
        """
        self.calls[call] = None

        def arrive() -> None:
            served = self._link.open_call(self, call, method, first, timeout)
            opened(served)
            if call in self.calls:
                self.calls[call] = served

        self.to_node(arrive)

    def to_node(self, action: Callable[[], None]) -> None:
        """Runs an action at the node's end, after all that was sent before."""
        self._to_node_us = self._link.arrival(self.node, self._to_node_us)

        def arrive() -> None:
            until = self._accepts_until_us
            if self.door.loop.is_running() and (until is None or self._link.scheduler.now <= until):
                action()

        self._link.scheduler.at(self._to_node_us, arrive)

    def to_client(self, call: _ClientEnd, action: Callable[[], None], last: bool = False) -> None:
        """Runs an action at the client's end, after all that was answered before."""
        self._to_client_us = self._link.arrival(self.node, self._to_client_us)

        def arrive() -> None:
            if self.open and call in self.calls:
                if last:
                    del self.calls[call]
                action()

        self._link.scheduler.at(self._to_client_us, arrive)

    def stall(self, until_us: int) -> None:
        """Delays all that is sent from now on, in both directions, at least until a time."""
        self._to_node_us = max(self._to_node_us, until_us)
        self._to_client_us = max(self._to_client_us, until_us)

    def lose(self, why: str, accepts_us: int) -> None:
        """Breaks the connection. Data in flight to the node arrives for another ``accepts_us``; then its calls are
        cancelled.
        """
        if not self.open:
            return
        self.open = False
        self._accepts_until_us = self._link.scheduler.now + accepts_us
        calls, self.calls = self.calls, {}

        def gone() -> None:
            for served in calls.values():
                if served is not None:
                    served.client_gone()

        self._link.scheduler.after(accepts_us + 1, gone)
        for call in calls:
            call.ended(grpc.StatusCode.UNAVAILABLE, why, ())

    def accept_no_more(self) -> None:
        """Drops data in flight, if the connection is broken."""
        if not self.open:
            self._accepts_until_us = self._link.scheduler.now

    def _node_died(self, silent: bool) -> None:
        delay_us = self._link.rng.randint(*(SILENT_LOSS_US if silent else DELAY_US))
        self._link.scheduler.after(delay_us, lambda: self.lose("Connection reset by peer", 0))


class ClientLink:
    """A client's channel to one address. Has the parts of ``grpc.aio.Channel`` that clients use.

    Arguments:
        client: the client's name.
        machine: its machine, as nodes see it.
    """

    def __init__(
        self,
        client: str,
        machine: str,
        address: str,
        loop: VirtualLoop,
        scheduler: Scheduler,
        rng: random.Random,
        network: ClientNetwork,
    ) -> None:
        self.client = client
        self.address = address
        self.loop = loop
        self.scheduler = scheduler
        self.rng = rng
        self.connection: _Connection | None = None
        self._machine = machine
        self._network = network
        self._closed = False
        self._former: list[_Connection] = []
        self._connecting: list[Callable[[_Connection | str], None]] = []

    # -- gRPC's interface -----------------------------------------------------------------------------------------

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer,
        response_deserializer: Deserializer,
        _registered_method: bool | None = None,
    ) -> Callable[..., asyncio.Future[Any]]:
        """Returns a method with one request and one answer."""

        def call(request: Any, timeout: float | None = None) -> asyncio.Future[Any]:
            return UnaryCall(self, method, request_serializer(request), response_deserializer, timeout).answer

        return call

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer,
        response_deserializer: Deserializer,
        _registered_method: bool | None = None,
    ) -> Callable[[], StreamCall]:
        """Returns a method with many requests and many answers."""
        return lambda: StreamCall(self, method, request_serializer, response_deserializer)

    async def close(self, grace: float | None = None) -> None:
        """Ends all calls."""
        self._closed = True
        self.lose("Channel closed", self.rng.randint(*DELAY_US))

    # -- the connection -------------------------------------------------------------------------------------------

    def arrival(self, node: int, after_us: int) -> int:
        """Returns when (µs) data arrives that is sent now, after other data that arrives at ``after_us``."""
        sent_us = max(self.scheduler.now, self._network.blocked_until(self.client, node))
        return max(sent_us + self.rng.randint(*DELAY_US), after_us + 1)

    def connect(self, use: Callable[[_Connection | str], None]) -> None:
        """Calls ``use`` with the open connection, immediately or once it is open, or with the reason why there is
        none.
        """
        if self.connection is not None and self.connection.open:
            use(self.connection)
            return
        self._connecting.append(use)
        if len(self._connecting) > 1:
            return
        found = self._network.listener(self.address)
        blocked_us = 0 if found is None else self._network.blocked_until(self.client, found[0]) - self.scheduler.now
        delay_us = self.rng.randint(*DELAY_US) + max(0, min(blocked_us, CONNECT_TIMEOUT_US))
        self.scheduler.after(delay_us, self._connect)

    def _connect(self) -> None:
        waiting, self._connecting = self._connecting, []
        if not self.loop.is_running():
            return
        found = self._network.listener(self.address)
        outcome: _Connection | str
        if self._closed:
            outcome = "Channel closed"
        elif found is None:
            outcome = f"failed to connect to {self.address}: Connection refused"
        elif self._network.blocked_until(self.client, found[0]) > self.scheduler.now:
            outcome = f"failed to connect to {self.address}: Timeout"
        else:
            outcome = self.connection = _Connection(self, *found)
            self._former.append(outcome)
        for use in waiting:
            use(outcome)

    def lose(self, why: str, accepts_us: int) -> None:
        """Breaks the connection, if there is one; see :class:`_Connection`."""
        if self.connection is not None:
            self.connection.lose(why, accepts_us)

    def forget(self) -> None:
        """Drops data in flight of broken connections."""
        for former in self._former:
            former.accept_no_more()
        self._former.clear()

    def open_call(
        self, connection: _Connection, call: _ClientEnd, method: str, first: bytes | None, timeout: float | None
    ) -> ServedCall:
        """Opens a call at the node, where it has arrived."""
        return connection.door.open_call(
            method, _Answers(connection, call), first, timeout, self.client, f"ipv4:{self._machine}:40000"
        )


class _Answers:
    """Answers of a node on a call, on their way to the client."""

    def __init__(self, connection: _Connection, call: _ClientEnd) -> None:
        self._connection = connection
        self._call = call

    def message(self, data: bytes) -> None:
        """Handles an answer that the node has written."""
        self._connection.to_client(self._call, lambda: self._call.message(data))

    def ended(self, code: grpc.StatusCode, details: str, trailing: Trailing) -> None:
        """Handles the end of the call at the node."""
        self._connection.to_client(self._call, lambda: self._call.ended(code, details, trailing), last=True)


def rpc_error(code: grpc.StatusCode, details: str, trailing: Trailing = ()) -> grpc.aio.AioRpcError:
    """Returns the exception that gRPC raises for a failed call."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details, None)


class UnaryCall:
    """A request and its answer.

    Attributes:
        answer: the future that the caller awaits; cancelling it cancels the call.
    """

    def __init__(
        self, link: ClientLink, method: str, request: bytes, deserialize: Deserializer, timeout: float | None
    ) -> None:
        self._link = link
        self._deserialize = deserialize
        self._connection: _Connection | None = None
        self._served: ServedCall | None = None
        self.answer: asyncio.Future[Any] = link.loop.create_future()
        self._timer = None if timeout is None else link.loop.call_later(timeout, self._timed_out)
        self.answer.add_done_callback(self._done)
        link.connect(lambda found: self._begin(found, method, request, timeout))

    def _begin(self, found: _Connection | str, method: str, request: bytes, timeout: float | None) -> None:
        if self.answer.done():
            return
        if isinstance(found, str):
            self.ended(grpc.StatusCode.UNAVAILABLE, found, ())
            return
        self._connection = found
        found.open_call(self, method, request, timeout, self._opened)

    def _opened(self, served: ServedCall) -> None:
        self._served = served

    def message(self, data: bytes) -> None:
        """Handles the arrival of the answer."""
        if not self.answer.done():
            self.answer.set_result(self._deserialize(data))

    def ended(self, code: grpc.StatusCode, details: str, trailing: Trailing) -> None:
        """Handles the failure of the call, or the status after its answer."""
        if not self.answer.done():
            self.answer.set_exception(rpc_error(code, details, trailing))

    def _timed_out(self) -> None:
        self.ended(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())

    def _done(self, answer: asyncio.Future[Any]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not answer.cancelled():
            answer.exception()  # The caller may no longer wait for it.
        connection = self._connection
        if connection is None or not connection.open or self not in connection.calls:
            return
        del connection.calls[self]
        connection.to_node(lambda: self._served.client_gone() if self._served is not None else None)


class StreamCall:
    """A call with many requests and many answers."""

    def __init__(self, link: ClientLink, method: str, serialize: Serializer, deserialize: Deserializer) -> None:
        self._link = link
        self._method = method
        self._serialize = serialize
        self._deserialize = deserialize
        self._connection: _Connection | None = None
        self._served: ServedCall | None = None
        self._unsent: list[Callable[[], None]] = []
        self._messages: list[bytes] = []
        self._status: tuple[grpc.StatusCode, str, Trailing] | None = None
        self._cancelled = False
        self._reader: asyncio.Future[None] | None = None
        link.connect(self._begin)

    def _begin(self, found: _Connection | str) -> None:
        if self._over:
            return
        if isinstance(found, str):
            self.ended(grpc.StatusCode.UNAVAILABLE, found, ())
            return
        self._connection = found
        found.open_call(self, self._method, None, None, self._opened)
        for send in self._unsent:
            found.to_node(send)
        self._unsent.clear()

    def _opened(self, served: ServedCall) -> None:
        self._served = served

    @property
    def _over(self) -> bool:
        return self._cancelled or self._status is not None

    def _send(self, action: Callable[[ServedCall], None]) -> None:
        def arrive() -> None:
            if self._served is not None:
                action(self._served)

        if self._connection is None:
            self._unsent.append(arrive)
        elif self._connection.open:
            self._connection.to_node(arrive)

    def message(self, data: bytes) -> None:
        """Handles an answer that has arrived."""
        self._messages.append(data)
        self._wake()

    def ended(self, code: grpc.StatusCode, details: str, trailing: Trailing) -> None:
        """Handles the end of the call, or the loss of its connection."""
        if self._status is None:
            self._status = (code, details, trailing)
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # -- gRPC's interface -----------------------------------------------------------------------------------------

    async def read(self) -> Any:
        """Returns the next answer, or the end of the stream."""
        while not self._messages and not self._over:
            self._reader = self._link.loop.create_future()
            await self._reader
        if self._cancelled:
            raise asyncio.CancelledError
        if self._messages:
            return self._deserialize(self._messages.pop(0))
        assert self._status is not None
        code, details, trailing = self._status
        if code is not grpc.StatusCode.OK:
            raise rpc_error(code, details, trailing)
        return _END_OF_STREAM

    async def write(self, request: Any) -> None:
        """Sends a request."""
        if self._over:
            raise asyncio.InvalidStateError("the call is over")
        data = self._serialize(request)
        self._send(lambda served: served.receive(data))
        await asyncio.sleep(0)

    async def done_writing(self) -> None:
        """Closes the sending side."""
        self._send(ServedCall.half_close)

    def cancel(self) -> bool:
        """Cancels the call; the node is notified after all that was sent."""
        if self._over:
            return False
        self._cancelled = True
        self._wake()
        connection = self._connection
        if connection is not None and connection.open and self in connection.calls:
            del connection.calls[self]
            self._send(ServedCall.client_gone)
        return True

    async def code(self) -> grpc.StatusCode:
        """Returns the status of the ended call."""
        return grpc.StatusCode.CANCELLED if self._status is None else self._status[0]

    async def details(self) -> str:
        """Returns the reason of the status."""
        return "" if self._status is None else self._status[1]
