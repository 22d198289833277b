"""Serves the console on a socket until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.changes.administration import AdministrationEndpoints
from quorumlog.console.changes.endpoints import ChangeEndpoints
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.playground.controls import NodeControls, Playground
from quorumlog.console.playground.workload import Life
from quorumlog.console.poller import OpenPages, Poller
from quorumlog.console.records.endpoints import RecordEndpoints
from quorumlog.console.shared_state import SharedState, Thing
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from quorumlog.sdk.runtime.security import SecurityOptions

#: Time limit for one request to the cluster, with all attempts (ms); on a busy machine one may take seconds.
REQUEST_TIMEOUT_MS = 10_000
#: Time limit for finding a node at the start (ms): shorter, so that the error names the address.
FIRST_ANSWER_MS = 2_500
#: Time limit for a record that is sent by hand (ms).
SEND_WITHIN_MS = 10_000
#: Time that streams have to end when the console stops (s).
STOP_WITHIN_S = 2
CLIENT_ID = "quorumlog-console"


@dataclass(slots=True, frozen=True)
class ConsoleOptions:
    """Options of a console.

    Arguments:
        bootstrap_servers: addresses of the cluster.
        host, port: listening address; port 0 is any free one.
        names: further hosts at which browsers reach it, with the port if it is not the default.
        hide_values: only keys of records are shown.
        allow_changes: the page may change what the console's own identity may change in the cluster.
        security: connection settings, as keyword arguments of clients.
    """

    bootstrap_servers: str
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    hide_values: bool = False
    allow_changes: bool = False
    security: SecurityOptions = field(default_factory=SecurityOptions)


class CannotListenError(Exception):
    """Raised if the console cannot listen on the given address; the message says why."""


def is_loopback(host: str) -> bool:
    """True if a host is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(options: ConsoleOptions) -> socket.socket:
    """Returns a listening socket.

    Raises:
        CannotListenError: the address cannot be used.
    """
    host = options.host.strip("[]")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, options.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise CannotListenError(error.strerror or str(error)) from None
    return listening


def served_hosts(options: ConsoleOptions, port: int) -> set[str]:
    """Returns the accepted values of ``Host``."""
    names = {_in_url(options.host)}
    if is_loopback(options.host) or options.host in ("0.0.0.0", "::", "[::]"):
        names |= {"127.0.0.1", "localhost", "[::1]"}
    # A proxy has a port of its own, which a browser leaves out if it is the default.
    proxies = set(options.names)
    return {f"{name}:{port}" for name in names | proxies} | proxies | (names if port == 80 else set())


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


async def serve(options: ConsoleOptions, announce: Callable[[str], None], nodes: NodeControls | None = None) -> None:
    """Serves until SIGTERM or SIGINT.

    Arguments:
        announce: called with the address, including the token, once the cluster has answered.
        nodes: nodes of a demo cluster; None: a real cluster, without node actions.

    Raises:
        NoBrokersAvailableError: no node of the cluster answers.
        CannotListenError: the address cannot be used.
    """
    picture, pages = SharedState(), OpenPages()
    common: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "client_id": CLIENT_ID,
        **options.security,
    }
    admin = AsyncAdmin(bootstrap_timeout_ms=FIRST_ANSWER_MS, **common)
    # Its ends are those that nodes report, of which the rates are computed, too.
    consumer = AsyncConsumer(isolation_level="read_uncommitted", **common)
    committed = AsyncConsumer(isolation_level="read_committed", **common)
    async with admin, consumer, committed:
        # A wrong address is reported here, and not on a page that stays empty.
        await admin.describe_cluster()
        listening = listen(options)
        port = listening.getsockname()[1]
        playground = None if nodes is None else Playground(nodes, Life(options.bootstrap_servers), picture)
        records = RecordEndpoints(
            admin,
            lambda: AsyncConsumer(
                bootstrap_servers=options.bootstrap_servers,
                client_id=CLIENT_ID,
                fetch_max_wait_ms=200,
                **options.security,
            ),
            hide_values=options.hide_values,
        )
        changes = ChangeEndpoints(
            admin,
            consumer,
            lambda: AsyncProducer(
                bootstrap_servers=options.bootstrap_servers,
                client_id=CLIENT_ID,
                delivery_timeout_ms=SEND_WITHIN_MS,
                **options.security,
            ),
            allowed=options.allow_changes,
        )
        administration = AdministrationEndpoints(admin, allowed=options.allow_changes)
        rights: Thing = {"changes": options.allow_changes, "hide_values": options.hide_values}
        picture.put("options", {"options": rights})
        more = [
            *records.routes(),
            *changes.routes(),
            *administration.routes(),
            *([] if playground is None else playground.routes()),
        ]
        endpoints = ConsoleEndpoints(PageStreams(picture, pages), Assets(), more)
        gate = ConsoleGate(endpoints.application(), served_hosts(options, port), port)
        server = ConsoleServer(gate, picture)
        poller = Poller(admin, consumer, committed, picture, pages)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(poller.run())]
            if playground is not None:
                running.append(tasks.create_task(playground.run()))
            with _stopped_by_signals(server):
                announce(f"http://{_in_url(options.host)}:{port}/?token={gate.token}")
                await server.serve([listening])
            for task in running:
                task.cancel()
        await changes.close()


class ConsoleServer(uvicorn.Server):
    """uvicorn, with streams that end when it stops, and without signal handlers of its own."""

    def __init__(self, gate: ConsoleGate, picture: SharedState) -> None:
        super().__init__(
            uvicorn.Config(
                gate,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=STOP_WITHIN_S,
            )
        )
        self._picture = picture

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the owner of the event loop."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts down, the streams first: they would never end."""
        self._picture.close()
        await super().shutdown(sockets)


@contextlib.contextmanager
def _stopped_by_signals(server: ConsoleServer) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
