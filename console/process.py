"""The console served on a socket, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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

#: How long one question to the cluster may take.
REQUEST_TIMEOUT_MS = 3_000
#: How long a node is looked for in the beginning: less, so that who finds none is told its address.
FIRST_ANSWER_MS = 2_500
#: How long a record that is sent by hand may take.
SEND_WITHIN_MS = 10_000
#: How long streams have to end when the console does.
STOP_WITHIN_S = 2
CLIENT_ID = "quorumlog-console"


@dataclass(slots=True, frozen=True)
class ConsoleOptions:
    """How a console is served.

    Arguments:
        bootstrap_servers: of the cluster.
        host, port: where it listens; port 0 is any free one.
        names: further hosts at which browsers reach it, with a port where it is an unusual one.
        hide_values: of records only keys are shown.
        allow_changes: the page may change what the console's own identity may change in the cluster.
        security: how nodes are reached, as keyword arguments of clients.
    """

    bootstrap_servers: str
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    hide_values: bool = False
    allow_changes: bool = False
    security: SecurityOptions = field(default_factory=SecurityOptions)


class CannotListenError(Exception):
    """The console cannot listen where it was told to; the message says why."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(options: ConsoleOptions) -> socket.socket:
    """A socket that listens.

    Raises:
        CannotListenError: it cannot listen there.
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
    """What ``Host`` may be."""
    names = {_in_url(options.host)}
    if is_loopback(options.host) or options.host in ("0.0.0.0", "::", "[::]"):
        names |= {"127.0.0.1", "localhost", "[::1]"}
    # A proxy has a port of its own, which a browser leaves out where it is the usual one.
    proxies = set(options.names)
    return {f"{name}:{port}" for name in names | proxies} | proxies | (names if port == 80 else set())


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


async def serve(options: ConsoleOptions, announce: Callable[[str], None], nodes: NodeControls | None = None) -> None:
    """Serves until SIGTERM or SIGINT.

    Arguments:
        announce: is told the address, with the token, once the cluster has answered.
        nodes: of a cluster to play with; None: it is somebody's, and nothing is done to it.

    Raises:
        NoBrokersAvailableError: no node of the cluster answers.
        CannotListenError: the address cannot be listened on.
    """
    picture, pages = SharedState(), OpenPages()
    admin = AsyncAdmin(
        bootstrap_servers=options.bootstrap_servers,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        bootstrap_timeout_ms=FIRST_ANSWER_MS,
        client_id=CLIENT_ID,
        **options.security,
    )
    consumer = AsyncConsumer(
        bootstrap_servers=options.bootstrap_servers,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        client_id=CLIENT_ID,
        **options.security,
    )
    async with admin, consumer:
        # A wrong address is said here, and not on a page that stays empty.
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
        poller = Poller(admin, consumer, picture, pages)
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
    """uvicorn, with streams that end when it does, and no signal handlers of its own."""

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
        """Leaves signals to whoever runs the event loop."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends, the streams first: they would last for ever."""
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
