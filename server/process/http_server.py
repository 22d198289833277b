"""HTTP servers for a node's pages: one for this machine, and one for clients with a certificate.

They use Python's own, as the client library of Prometheus does: a thread for each connection, with a limit on their
number.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.transport.failed_handshakes import reason_of
from quorumlog.server.transport.principals import auth_context_of, principal_of, serial_of
from quorumlog.server.transport.tls_contexts import TlsContexts

#: A client that sends nothing for this long is disconnected.
SILENCE_S = 10.0
HANDSHAKE_S = 5.0
#: Time limit of a request, including its answer: otherwise a client that sends a byte now and then would hold its
#: connection indefinitely.
REQUEST_S = 30.0
#: Connections at a time; further ones are closed.
MAX_CONNECTIONS = 32
#: Key of the RequestContext in a request's environment.
CLIENT = "quorumlog.client"


class PageHandler(WSGIRequestHandler):
    """Request handler that writes no line per request."""

    timeout = SILENCE_S

    def get_environ(self) -> dict[str, Any]:
        """Returns the request's environment; with TLS it includes the client's identity."""
        environ: dict[str, Any] = super().get_environ()
        if isinstance(self.connection, ssl.SSLSocket):
            environ[CLIENT] = client_of(self.connection, str(self.client_address[0]))
        return environ

    def log_message(self, format: str, *args: object) -> None:  # parameter name of the overridden method
        """Suppresses the log line."""


class PageServer(ThreadingMixIn, WSGIServer):
    """HTTP server with a thread for each connection, so that a slow reader delays no other."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        #: Connections being served, with their deadline on the monotonic clock. Guarded by the lock.
        self._ends_s: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection on its own thread, or closes it if too many are open."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Reads and answers a request, with a deadline."""
        with self._lock:
            self._ends_s[request] = time.monotonic() + REQUEST_S
        try:
            super().finish_request(request, client_address)
        finally:
            with self._lock:
                del self._ends_s[request]

    def service_actions(self) -> None:
        """Closes connections past their deadline. Called by the loop that accepts connections."""
        now_s = time.monotonic()
        with self._lock:
            for request, ends_s in self._ends_s.items():
                if now_s >= ends_s:
                    with contextlib.suppress(OSError):  # It has been closed already.
                        # The plain socket, not the TLS one, which its own thread is using.
                        socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Suppresses the report of connections that break."""


class TlsPageServer(PageServer):
    """HTTP server for clients with a certificate.

    Arguments:
        watched: the node's pair, with the authorities of clients.
        failed: called with address and reason of each failed handshake, on any thread.
    """

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[WSGIRequestHandler],
        watched: WatchedPair,
        failed: Callable[[str, str], None],
    ) -> None:
        self._contexts = TlsContexts(watched)
        self._failed = failed
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Performs the TLS handshake, and serves a client that has authenticated."""
        assert isinstance(request, socket.socket)
        request.settimeout(HANDSHAKE_S)
        try:
            secured = self._contexts.current().wrap_socket(request, server_side=True)
        except OSError as problem:  # TLS raises many kinds, and so does a timeout.
            self._failed(str(client_address[0]), reason_of(problem))
            return
        with secured:
            super().finish_request(secured, client_address)


def client_of(connection: ssl.SSLSocket, host: str) -> RequestContext:
    """Returns the identity of a client, by its certificate."""
    proved = auth_context_of(connection)
    assert proved, "clients without a certificate are rejected in the handshake"
    return RequestContext("metrics", host, principal_of(proved), Listener.CLIENT, serial_of(proved))
