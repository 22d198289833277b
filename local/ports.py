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
#: Ranges of ports that are tried.
_ATTEMPTS = 100


class ReservedPorts:
    """Ports that are bound here but not listened on.

    The kernel does not assign a bound port to a process that requests any port, but lets a process that names it listen
    beside a socket that does not, if both allow reuse of the address (gRPC does). So there is no race between choosing
    a port and using it, nor while a killed node is down.

    Arguments:
        count: number of ports, or of ranges of ports.
        beside: number of consecutive ports in each range.
    """

    def __init__(self, count: int, host: str = "127.0.0.1", *, beside: int = 1) -> None:
        self._host = host
        self._beside = beside
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._reserve()
        except OSError:
            self.close()
            raise

    def _reserve(self) -> None:
        """Reserves one range: a port that the system chooses, and those after it, or another one if one is taken."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            found = [self._bound(0)]
            first = found[0].getsockname()[1]
            try:
                found.extend(self._bound(port) for port in range(first + 1, first + self._beside))
            except (OSError, OverflowError):
                for each in found:
                    each.close()
                if not attempts_left:
                    raise
                continue
            self._sockets += found
            return

    def _bound(self, port: int) -> socket.socket:
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Only afterwards: with it, the port could be one that another process has reserved.
            reserved.bind((self._host, port))
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except BaseException:
            reserved.close()
            raise
        return reserved

    @property
    def ports(self) -> list[int]:
        """The port numbers, of ranges the first ones."""
        return [reserved.getsockname()[1] for reserved in self._sockets[:: self._beside]]

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
