"""The servers of a node's pages over HTTP: one for this machine, and one for whoever has a certificate.

Python's own, as the client library of Prometheus uses it: a thread for each connection, and of those only so many.
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

#: A client that says nothing for so long is cut off.
SILENCE_S = 10.0
HANDSHAKE_S = 5.0
#: A request takes no longer, with its answer: whoever says a byte now and then would hold its connection for ever.
REQUEST_S = 30.0
#: Connections at once; what comes beyond them is closed.
MAX_CONNECTIONS = 32
#: Where a request says who makes it: a RequestContext.
CLIENT = "quorumlog.client"


class PageHandler(WSGIRequestHandler):
    """Writes no line per request."""

    timeout = SILENCE_S

    def get_environ(self) -> dict[str, Any]:
        """What the request says; with TLS also who makes it."""
        environ: dict[str, Any] = super().get_environ()
        if isinstance(self.connection, ssl.SSLSocket):
            environ[CLIENT] = client_of(self.connection, str(self.client_address[0]))
        return environ

    def log_message(self, format: str, *args: object) -> None:  # the name that is overridden
        """Says nothing."""


class PageServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection, so that a slow reader holds up nobody."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        #: Connections that are served, and until when on the monotonic clock. Held while it changes: the lock.
        self._ends_s: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection on a thread of its own, if there is room for it."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Reads a request and answers it, for so long as that may take."""
        with self._lock:
            self._ends_s[request] = time.monotonic() + REQUEST_S
        try:
            super().finish_request(request, client_address)
        finally:
            with self._lock:
                del self._ends_s[request]

    def service_actions(self) -> None:
        """Called by the loop that takes connections: cuts off those whose time is over."""
        now_s = time.monotonic()
        with self._lock:
            for request, ends_s in self._ends_s.items():
                if now_s >= ends_s:
                    with contextlib.suppress(OSError):  # It has gone by itself.
                        # Not that of TLS, which its own thread is using.
                        socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of connections that break."""


class TlsPageServer(PageServer):
    """The same for clients with a certificate.

    Arguments:
        watched: the node's pair, with the authorities of clients.
        failed: is told of each handshake that failed: from which address, and why. Called on any thread.
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
        """Shakes hands, and serves whoever has proved who they are."""
        assert isinstance(request, socket.socket)
        request.settimeout(HANDSHAKE_S)
        try:
            secured = self._contexts.current().wrap_socket(request, server_side=True)
        except OSError as problem:  # TLS has many, and silence is one.
            self._failed(str(client_address[0]), reason_of(problem))
            return
        with secured:
            super().finish_request(secured, client_address)


def client_of(connection: ssl.SSLSocket, host: str) -> RequestContext:
    """Who is at the other end, by the certificate."""
    proved = auth_context_of(connection)
    assert proved, "nobody comes in without a certificate"
    return RequestContext("metrics", host, principal_of(proved), Listener.CLIENT, serial_of(proved))
