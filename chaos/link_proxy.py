"""A TCP proxy in front of every node of a local cluster, so that real links can be cut without being root.

Nodes advertise their proxy's address, so peers and clients alike come through it; who is at the other end of a
connection the kernel says. A cut link is silent, as an unplugged one is: connections stay open and carry nothing, new
ones are not answered; what was sent meanwhile arrives after the cut, if its connection still lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_START_TIMEOUT_S = 10.0


class LinkProxies:
    """The proxies, on a thread of their own between ``__enter__`` and ``__exit__``.

    Arguments:
        nodes: ids of the nodes.
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        #: Where each node is to say that it is reached; known once entered.
        self.addresses: dict[int, str] = {}
        self._nodes = tuple(nodes)
        self._targets: Mapping[int, str] = {}
        self._pid_of: Callable[[int], int | None] = lambda node: None
        self._isolated: set[int] = set()
        self._deaf: set[int] = set()
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link-proxies", daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> LinkProxies:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_START_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lead_to(self, targets: Mapping[int, str], pid_of: Callable[[int], int | None]) -> None:
        """Says where the nodes really listen, and which process each of them is."""
        self._targets, self._pid_of = targets, pid_of

    def isolate(self, node: int) -> None:
        """Cuts every link to and from a node, its clients' included."""
        self._isolated.add(node)
        self._call(self._apply)

    def deafen(self, node: int) -> None:
        """Cuts every link to a node. Those that it opened itself carry on, both ways."""
        self._deaf.add(node)
        self._call(self._apply)

    def rejoin(self, node: int) -> None:
        """All links of a node carry again."""
        self._isolated.discard(node)
        self._deaf.discard(node)
        self._call(self._apply)

    # -- on the loop's thread -------------------------------------------------------------------------------------

    def _call(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(_START_TIMEOUT_S)

    def _apply(self) -> None:
        for link in self._links:
            self._set(link)

    def _set(self, link: _Link) -> None:
        if link.target in self._deaf or self._isolated & {link.source, link.target}:
            link.passes.clear()
        else:
            link.passes.set()

    async def _listen(self) -> None:
        for node in self._nodes:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node) -> None:
                await self._serve(node, reader, writer)

            server = await asyncio.start_server(serve, HOST, 0)
            self._servers.append(server)
            self.addresses[node] = f"{HOST}:{server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pids = {other: self._pid_of(other) for other in self._nodes}
        link = _Link(owner_of(writer.get_extra_info("peername")[1], pids), node)
        self._links.add(link)
        self._set(link)
        try:
            await link.passes.wait()
            host, _, port = self._targets[node].rpartition(":")
            try:
                to_node, from_node = await asyncio.open_connection(host, int(port))
            except OSError:
                return
            try:
                await link.carry((reader, from_node), (to_node, writer))
            finally:
                from_node.close()
        except asyncio.CancelledError:
            # The proxies close. (The server's own callback would complain of a cancelled task.)
            return
        finally:
            self._links.discard(link)
            writer.close()


class _Link:
    """One connection. ``source`` is the node that opened it, None for clients; ``passes`` is clear while it is cut."""

    def __init__(self, source: int | None, target: int) -> None:
        self.source = source
        self.target = target
        self.passes = asyncio.Event()

    async def carry(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Carries bytes both ways until either end closes."""
        tasks = [asyncio.ensure_future(self._carry(reader, writer)) for reader, writer in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that is reset has ended like any other.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await self.passes.wait()
                writer.write(data)
                await writer.drain()
            # Nor does the end of a connection pass a cut link.
            await self.passes.wait()


def owner_of(port: int, pids: Mapping[int, int | None]) -> int | None:
    """Which of some processes has a TCP socket at a local port of this machine; None when none of them.

    Arguments:
        pids: process ids by the name under which they are returned.
    """
    wanted = f":{port:04X}"
    # gRPC speaks IPv4 through IPv6 sockets.
    for line in (line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()):
        fields = line.split()
        if fields[1].endswith(wanted):
            socket = f"socket:[{fields[9]}]"
            for name, pid in pids.items():
                if pid is not None and _holds(pid, socket):
                    return name
    return None


def _holds(pid: int, socket: str) -> bool:
    # Processes end, and descriptors close, while they are looked at.
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) == socket:
                    return True
    return False
