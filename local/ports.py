"""Reserved loopback ports: free until their nodes use them, and while those are down."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection

from quorumlog.local.node_process import ClusterError
from quorumlog.server.config.listening import ListenError, try_to_bind

MAX_PORT = 65_535
_CONNECT_S = 10.0
_ASK_AGAIN_S = 0.02


class ReservedPorts:
    """Ports that are bound here but not listened on.

    The kernel does not assign a bound port to a process that requests any port, but lets a process that names it listen
    beside a socket that does not, if both allow reuse of the address (gRPC does). So there is no race between choosing
    a port and using it, nor while a killed node is down.
    """

    def __init__(self, count: int, host: str = "127.0.0.1") -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._sockets.append(reserved)
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((host, 0))
        except OSError:
            self.close()
            raise

    @property
    def ports(self) -> list[int]:
        """The port numbers."""
        return [reserved.getsockname()[1] for reserved in self._sockets]

    def close(self) -> None:
        """Releases them."""
        for reserved in self._sockets:
            reserved.close()
        self._sockets.clear()


def are_free(host: str, ports: Collection[int]) -> bool:
    """True if all ports exist and no other process listens on them."""
    if max(ports) > MAX_PORT:
        return False
    try:
        for port in ports:
            require_free(f"{host}:{port}")
    except ClusterError:
        return False
    return True


def require_free(address: str) -> None:
    """Checks that no process listens at an address.

    Raises:
        ClusterError: a process does.
    """
    try:
        try_to_bind("listen", address)
    except ListenError as error:
        raise ClusterError(str(error)) from None


def wait_listening(address: str, deadline: float) -> None:
    """Waits until a process listens at an address, if it is not empty.

    A node's listener for Kafka's clients starts a moment after the others.

    Raises:
        ClusterError: no process does, by the deadline.
    """
    host, _, port = address.rpartition(":")
    while address:
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise ClusterError(f"no listener for Kafka's clients at {address}") from None
            time.sleep(_ASK_AGAIN_S)
