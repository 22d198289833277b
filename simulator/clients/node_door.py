"""A node's shipped gRPC services in virtual time: the layer between clients' bytes and ``Node.step``."""

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
from quorumlog.server.transport.clients.transactions_service import transaction_handlers
from quorumlog.simulator.clients.virtual_loop import VirtualLoop
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import OUTSIDER, CommitLabel
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.process import DOOR_NUMBERS, SimProcess
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2, groups_pb2

_END_OF_STREAM: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class Caller(Protocol):
    """The client's end of a call, as the node's end sees it. Its messages travel over their connection."""

    def message(self, data: bytes) -> None:
        """Handles an answer that the node has written."""

    def ended(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str | bytes], ...]) -> None:
        """Handles the end of the call at the node."""


@dataclass(slots=True, frozen=True)
class _CallDetails:
    """The attributes by which a generic handler finds a method."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class _CallAborted(Exception):
    """Raised when a service has ended a call with a status, which was sent."""


class ServedCall:
    """The node's end of one call: the context of a service.

    Arguments:
        deadline_s: by the node's clock; None without one.
        user_agent, peer: the client's description for the service.
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

    # -- events of the connection ----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handles a message of the client."""
        self._received.append(data)
        self._wake()

    def half_close(self) -> None:
        """Handles the end of the client's messages."""
        self._half_closed = True
        self._wake()

    def client_gone(self) -> None:
        """Handles a cancellation by the client, or the loss of its connection."""
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

    # -- interface for services -----------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Returns the next message, or the end of the stream."""
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
        """Returns the seconds until the client's deadline."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of the client."""
        return (("user-agent", f"{self._user_agent} grpc-python/1"),)

    def auth_context(self) -> dict[str, list[bytes]]:
        """Returns the proven identity of the client: none."""
        return {}

    def peer(self) -> str:
        """Returns the address of the client."""
        return self._peer


class NodeDoor:
    """The services of one life of a node's process.

    Arguments:
        process: the node's process.
        rng: determines the times of the loop's turns.
        cluster: notified of members' requests, and of requested deletions.
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
            transaction_handlers(self._requests, meters),
        )

    def _emit(self, event: Event) -> None:
        """Numbers the events of services apart from those of clients that bypass them."""
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
        """Records members' heartbeats, and marks each commit with its member: the models judge by both."""
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
        """Delivers the node's answer to a request of these services."""
        self._member_answered(reply)
        self._requests.deliver(replace(reply, request_id=reply.request_id - DOOR_NUMBERS))

    def pause_stream(self, pause: StreamPause) -> None:
        """Pauses or resumes reading of a client's stream."""
        self._requests.pause_stream(replace(pause, stream=pause.stream - DOOR_NUMBERS))

    def open_call(
        self, method: str, caller: Caller, first: bytes | None, time_left_s: float | None, user_agent: str, peer: str
    ) -> ServedCall:
        """Handles the arrival of a call.

        Arguments:
            first: the message of a unary call; None for a stream.
            time_left_s: the client's timeout.
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
            # It reads the method alone.
            found = service.service(details)  # type: ignore[arg-type]
            if found is not None:
                return found
        raise Violation(f"no service has {method}")

    def stop(self) -> None:
        """Notifies waiting clients of the node's shutdown."""
        self._requests.close()

    def when_closed(self, told: Callable[[bool], None]) -> None:
        """Registers a callback for the end of the process, called with True if its machine is lost too."""
        self._listeners.append(told)

    def pause(self) -> None:
        """Pauses the process."""
        self.loop.paused = True

    def resume(self) -> None:
        """Resumes the process."""
        self.loop.resume()

    def close(self, silent: bool) -> None:
        """Ends the process."""
        self.loop.close()
        for listener in self._listeners:
            listener(silent)
        self._listeners.clear()
