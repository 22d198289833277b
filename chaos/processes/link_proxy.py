"""A TCP proxy in front of every node of a local cluster, so that real links can be cut without root privileges.

Nodes advertise their proxy's address, so that peers and clients alike use it; the kernel's socket tables show which
process opened a connection. A cut link is silent, like an unplugged one: connections stay open and carry nothing, new
ones are not answered; data sent during the cut arrives after it, if its connection still exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_START_TIMEOUT_S = 30.0
_CALL_TIMEOUT_S = 30.0
_Result = TypeVar("_Result")


class LinkProxies:
    """The proxies, on a thread of their own between ``__enter__`` and ``__exit__``.

    Arguments:
        nodes: ids of the nodes.
        host: listening address of the proxies.
        ports: ports of each node that has several, on which its proxies listen too; otherwise any.
    """

    def __init__(
        self, nodes: Iterable[int], host: str = HOST, ports: Mapping[int, Iterable[int]] | None = None
    ) -> None:
        #: The address that each node must advertise; known once entered.
        self.addresses: dict[int, str] = {}
        self._nodes = tuple(nodes)
        self._host = host
        self._ports = {node: tuple((ports or {}).get(node, (0,))) for node in self._nodes}
        self._same_ports = ports is not None
        self._targets: Mapping[int, str] = {}
        self._pid_of: Callable[[int], int | None] = lambda node: None
        self._isolated: set[int] = set()
        self._deaf: set[int] = set()
        self._links: set[_Link] = set()
        self._asking: asyncio.Task[None] | None = None
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
        """Sets the real addresses of the nodes, and their processes."""
        self._targets, self._pid_of = targets, pid_of

    def isolate(self, node: int) -> None:
        """Cuts every link to and from a node, including its clients'."""
        # The owners of connections are looked up on this thread, so that heartbeats pass in the meantime.
        links = self._on_loop(lambda: [link for link in self._links if not link.source_known])
        owners = owners_of({link.port for link in links}, self._pids())

        def cut() -> None:
            self._know(links, owners)
            self._isolated.add(node)
            self._apply()

        self._on_loop(cut)

    def deafen(self, node: int) -> None:
        """Cuts every link to a node. Connections that it opened itself work in both directions."""
        self._deaf.add(node)
        self._on_loop(self._apply)

    def rejoin(self, node: int) -> None:
        """Restores all links of a node."""
        self._isolated.discard(node)
        self._deaf.discard(node)
        self._on_loop(self._apply)

    # -- on the loop's thread -------------------------------------------------------------------------------------

    def _on_loop(self, work: Callable[[], _Result]) -> _Result:
        async def run() -> _Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_TIMEOUT_S)

    def _apply(self) -> None:
        for link in self._links:
            self._set(link)

    def _set(self, link: _Link) -> None:
        if link.target in self._deaf | self._isolated or link.source in self._isolated:
            link.passes.clear()
        elif self._isolated and not link.source_known:
            link.passes.clear()
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._ask())
        else:
            link.passes.set()

    async def _ask(self) -> None:
        """Looks up the owners of new connections, all at once, until none is unknown.

        On a busy machine, looking up each one separately and on the loop blocked all traffic: connections timed out,
        were opened again, and it never ended.
        """
        while links := [link for link in self._links if not link.source_known]:
            self._know(links, await asyncio.to_thread(owners_of, {link.port for link in links}, self._pids()))
            self._apply()
        self._asking = None

    def _know(self, links: Iterable[_Link], owners: Mapping[int, int]) -> None:
        for link in links:
            link.source, link.source_known = owners.get(link.port), True

    def _pids(self) -> dict[int, int | None]:
        return {node: self._pid_of(node) for node in self._nodes}

    async def _listen(self) -> None:
        for node in self._nodes:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node) -> None:
                await self._serve(node, reader, writer)

            for port in self._ports[node]:
                server = await asyncio.start_server(serve, self._host, port)
                self._servers.append(server)
                self.addresses.setdefault(node, f"{self._host}:{server.sockets[0].getsockname()[1]}")

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer.get_extra_info("peername")[1], node)
        self._links.add(link)
        self._set(link)
        try:
            await link.passes.wait()
            host, _, port = self._targets[node].rpartition(":")
            if self._same_ports:
                port = writer.get_extra_info("sockname")[1]
            try:
                to_node, from_node = await asyncio.open_connection(host, int(port))
            except OSError:
                return
            try:
                await link.carry((reader, from_node), (to_node, writer))
            finally:
                from_node.close()
        except asyncio.CancelledError:
            # The proxies are closing. (The server's own callback would complain of a cancelled task.)
            return
        finally:
            self._links.discard(link)
            writer.close()


class _Link:
    """One connection, from a port to a node. ``source`` is the node that opened it, None for clients; ``passes`` is
    cleared while it is cut.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.source: int | None = None
        self.source_known = False
        self.target = target
        self.passes = asyncio.Event()

    async def carry(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Forwards bytes in both directions until either end closes."""
        tasks = [asyncio.ensure_future(self._carry(reader, writer)) for reader, writer in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A reset connection has ended like any other.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await self.passes.wait()
                writer.write(data)
                await writer.drain()
            # The end of a connection does not pass a cut link either.
            await self.passes.wait()


def owners_of(ports: Collection[int], pids: Mapping[int, int | None]) -> dict[int, int]:
    """Returns the process that has a TCP socket at each of some local ports of this machine, if one of the given ones
    has.

    Arguments:
        pids: process ids by the names to return.
    """
    port_of: dict[str, int] = {}
    # gRPC uses IPv4 through IPv6 sockets.
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split(maxsplit=10)
            port = int(fields[1].rpartition(":")[2], 16)
            if port in ports:
                port_of[f"socket:[{fields[9]}]"] = port
    found: dict[int, int] = {}
    for name, pid in pids.items():
        if pid is not None:
            found.update((port_of[socket], name) for socket in _open_files(pid) if socket in port_of)
    return found


def _open_files(pid: int) -> list[str]:
    files: list[str] = []
    # Processes exit, and descriptors close, during the lookup.
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.append(str(descriptor.readlink()))
    return files
