"""A node's shipped gRPC services on virtual time: what stands between clients' bytes and ``Node.step``."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import grpc
import grpc.aio

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientGone, ClientRequest, Event, Reply, StreamClosed, StreamPause
from quorumlog.server.transport.clients.admin_service import admin_handlers
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.clients.groups_service import GroupsService
from quorumlog.simulator.clients.virtual_loop import VirtualLoop
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.process import DOOR_NUMBERS, SimProcess
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2, groups_pb2

_END_OF_STREAM: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class Caller(Protocol):
    """The client's end of a call, as the node's end sees it. What is told travels over their connection."""

    def message(self, data: bytes) -> None:
        """The node has written an answer."""

    def ended(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str | bytes], ...]) -> None:
        """The node has ended the call."""


@dataclass(slots=True, frozen=True)
class _CallDetails:
    """What a generic handler asks for to find a method."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class _CallAborted(Exception):
    """A service has ended a call with a status, which it has told."""


class ServedCall:
    """The node's end of one call: what a service sees of it as its context.

    Arguments:
        deadline_s: by the node's clock; None without one.
        user_agent, peer: what the service is told of the client.
    """

    def __init__(self, loop: VirtualLoop, caller: Caller, deadline_s: float | None, user_agent: str, peer: str) -> None:
        self._loop = loop
        self._caller = caller
        self._deadline_s = deadline_s
        self._user_agent = user_agent
        self._peer = peer
        self._received: list[bytes] = []
        self._half_closed = False
        self._reader: asyncio.Future[None] | None = None
        self._over = False
        self.task: asyncio.Task[None] | None = None

    # -- what the connection brings -------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """A message of the client has arrived."""
        self._received.append(data)
        self._wake()

    def half_close(self) -> None:
        """The client writes no more."""
        self._half_closed = True
        self._wake()

    def client_gone(self) -> None:
        """The client has cancelled the call, or its connection is lost."""
        self._over = True
        if self.task is not None:
            self.task.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def run(self, serve: Callable[[], Awaitable[bytes | None]]) -> None:
        """Serves the call to its end."""
        try:
            answer = await serve()
        except _CallAborted:
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a defect of the service: gRPC would answer UNKNOWN, and log it
            place = traceback.format_exception(error)[-3:]
            self._loop.fail(Violation(f"a service raises {type(error).__name__}: {error} {''.join(place)}"))
            return
        if answer is not None:
            await self.write(answer)
        self._end(grpc.StatusCode.OK, "", ())

    def _end(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str | bytes], ...]) -> None:
        if not self._over:
            self._over = True
            self._caller.ended(code, details, trailing)

    # -- what services call ---------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The next message, or the end of the stream."""
        while not self._received and not self._half_closed:
            self._reader = self._loop.create_future()
            await self._reader
        return self._received.pop(0) if self._received else _END_OF_STREAM

    async def write(self, data: bytes) -> None:
        """Sends an answer."""
        if not self._over:
            self._caller.message(data)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str | bytes], ...] = ()
    ) -> None:
        """Ends the call with a status."""
        self._end(code, details, tuple(trailing_metadata))
        raise _CallAborted

    def time_remaining(self) -> float | None:
        """Seconds until the client gives the call up."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """What the client has sent before its message."""
        return (("user-agent", f"{self._user_agent} grpc-python/1"),)

    def auth_context(self) -> dict[str, list[bytes]]:
        """What the connection proves of the client: nothing."""
        return {}

    def peer(self) -> str:
        """Where the client is."""
        return self._peer


class NodeDoor:
    """The services of one life of a node's process.

    Arguments:
        process: whose node answers.
        rng: draws when the loop's turns happen.
        cluster: is told what members say, and what somebody asks to delete.
    """

    def __init__(
        self,
        process: SimProcess,
        scheduler: Scheduler,
        rng: random.Random,
        limits: NodeLimits,
        cluster: SimCluster,
    ) -> None:
        self._process = process
        self._scheduler = scheduler
        self._cluster = cluster
        self._members = cluster.invariants.coordinators.heard
        self._heartbeats: dict[int, tuple[groups_pb2.GroupHeartbeatRequest, int]] = {}
        self._listeners: list[Callable[[bool], None]] = []
        self.loop = VirtualLoop(scheduler, rng, f"the services of node {process.node_id}")
        self._requests = ClientRequests(self._emit)
        meters = Meters()
        self._handlers = (
            DataPlaneService(self._requests, limits, meters).handlers(),
            admin_handlers(self._requests, meters),
            GroupsService(self._requests, meters).handlers(),
        )

    def _emit(self, event: Event) -> None:
        """Events of services are numbered apart from those of clients that speak to the node without services."""
        match event:
            case ClientRequest():
                self._watch(event)
                stream = event.stream + DOOR_NUMBERS if event.stream else 0
                event = replace(event, request_id=event.request_id + DOOR_NUMBERS, stream=stream)
            case ClientGone():
                event = replace(event, request_id=event.request_id + DOOR_NUMBERS)
            case StreamClosed():
                event = replace(event, stream=event.stream + DOOR_NUMBERS)
        self._process.deliver(event)

    def _watch(self, event: ClientRequest) -> None:
        """Notes what a member says, and puts on each commit whose it is: the models judge by both."""
        message = event.message
        if isinstance(message, groups_pb2.GroupHeartbeatRequest):
            self._members.sent(message)
            self._heartbeats[event.request_id] = (message, self._scheduler.now)
        elif isinstance(message, groups_pb2.CommitOffsetsRequest):
            label = CommitLabel(message.member_id or OUTSIDER, message.member_epoch, message.number)
            for offset in message.offsets:
                offset.metadata = str(label)
        elif isinstance(message, admin_pb2.DeleteRecordsRequest):
            self._cluster.may_delete(message)

    def _member_answered(self, reply: Reply) -> None:
        heartbeat = self._heartbeats.pop(reply.request_id - DOOR_NUMBERS, None)
        if heartbeat is None:
            return
        request, arrived_us = heartbeat
        assert isinstance(reply.message, groups_pb2.GroupHeartbeatResponse)
        if not reply.message.HasField("error") and self._cluster.coordinates(self._process.node_id, request.group_id):
            self._members.answered(request, arrived_us)

    def reply(self, reply: Reply) -> None:
        """The node has answered a request that came through here."""
        self._member_answered(reply)
        self._requests.deliver(replace(reply, request_id=reply.request_id - DOOR_NUMBERS))

    def pause_stream(self, pause: StreamPause) -> None:
        """The node has a client of a stream wait, or no longer."""
        self._requests.pause_stream(replace(pause, stream=pause.stream - DOOR_NUMBERS))

    def open_call(
        self, method: str, caller: Caller, first: bytes | None, time_left_s: float | None, user_agent: str, peer: str
    ) -> ServedCall:
        """A call has arrived.

        Arguments:
            first: the message of a unary call; None for a stream.
            time_left_s: what the client said that it waits.
        """
        self._scheduler.trace(f"{self._process.node_id} is called: {method} {len(first or b'')}")
        deadline_s = None if time_left_s is None else self.loop.time() + time_left_s
        call = ServedCall(self.loop, caller, deadline_s, user_agent, peer)
        handler = self._handler(method)
        serve = handler.stream_stream if first is None else handler.unary_unary
        call.task = self.loop.create_task(call.run(lambda: serve(first, call)))
        return call

    def _handler(self, method: str) -> Any:
        details = _CallDetails(method)
        for service in self._handlers:
            found = service.service(details)  # type: ignore[arg-type]  # it asks for the method alone
            if found is not None:
                return found
        raise Violation(f"no service has {method}")

    def stop(self) -> None:
        """The node ends in good order: whoever waits is told so."""
        self._requests.close()

    def when_closed(self, told: Callable[[bool], None]) -> None:
        """Has ``told`` called when the process is gone, with whether its machine is gone with it."""
        self._listeners.append(told)

    def pause(self) -> None:
        """The process stands still."""
        self.loop.paused = True

    def resume(self) -> None:
        """It goes on."""
        self.loop.resume()

    def close(self, silent: bool) -> None:
        """The process is gone."""
        self.loop.close()
        for told in self._listeners:
            told(silent)
        self._listeners.clear()
