"""The gRPC server of a node: clients, peers, health and reflection on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from quorumlog.server.config.listening import ListenError
from quorumlog.server.transport.channel_options import DEFAULT_LIMITS, ConnectionLimits, server_options
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.guarded_reflection import guard_reflection
from quorumlog.server.transport.clients.unary_calls import Handlers
from quorumlog.v1 import admin_pb2, data_plane_pb2, groups_pb2, peer_pb2, sign_in_pb2

_SERVICES = (
    *(service.full_name for service in data_plane_pb2.DESCRIPTOR.services_by_name.values()),
    *(service.full_name for service in admin_pb2.DESCRIPTOR.services_by_name.values()),
    *(service.full_name for service in groups_pb2.DESCRIPTOR.services_by_name.values()),
    *(service.full_name for service in sign_in_pb2.DESCRIPTOR.services_by_name.values()),
)
_PEER_SERVICES = tuple(service.full_name for service in peer_pb2.DESCRIPTOR.services_by_name.values())
#: Time for cancelled calls to finish (s).
LAST_CALLS_S = 1.0


class GrpcServer:
    """Serves handlers at one address, with health and reflection.

    Arguments:
        credentials: with TLS.
        name: name of the setting with the address, for messages.
        requests: asks the node whether a caller may use reflection; None: every caller may.
        interceptors: run before all services.

    Raises:
        ListenError: listening on the address failed.
    """

    def __init__(
        self,
        address: str,
        handlers: tuple[Handlers, ...],
        limits: ConnectionLimits = DEFAULT_LIMITS,
        credentials: grpc.ServerCredentials | None = None,
        name: str = "listen",
        requests: ClientRequests | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor[bytes, bytes]] = (),
    ) -> None:
        self._server = grpc.aio.server(options=server_options(limits), interceptors=tuple(interceptors))
        self._server.add_generic_rpc_handlers(handlers)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs leave it out
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*_SERVICES, *_PEER_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        if requests is None:
            reflection.enable_server_reflection(names, self._server)
        else:
            guard_reflection(names, requests, self._server)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise ListenError(
                f"{name} = {address}: cannot listen on this address: check that it is local and not in use"
            )
        self._serving: bool | None = None

    async def start(self) -> None:
        """Starts serving; not yet healthy."""
        await self.set_serving(False)
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of the health service, for the node as a whole and for each client service."""
        if serving == self._serving:
            return
        self._serving = serving
        statuses = health_pb2.HealthCheckResponse
        for name in ("", *_SERVICES):
            await self._health.set(name, statuses.SERVING if serving else statuses.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, waits ``grace_s`` seconds for calls in progress, cancels them, and waits for their tasks.

        gRPC does not wait for the tasks in which it serves calls. If the event loop stopped before them, each would log
        an error.
        """
        await self.end_calls(grace_s)
        await wait_for_calls()

    async def end_calls(self, grace_s: float) -> None:
        """Does the same without waiting for the tasks."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


async def wait_for_calls() -> None:
    """Waits until all other tasks of the loop have finished, for a limited time."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=LAST_CALLS_S)
