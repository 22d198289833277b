"""The servers of a node's pages over HTTP: one for this machine, and one for whoever has a certificate.

Python's own, as the client library of Prometheus uses it: a thread for each connection, and of those only so many.
"""

from __future__ import annotations

import socket
import ssl
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.client_origin import ClientOrigin, Listener
from quorumlog.server.transport.principals import auth_context_of, principal_of, serial_of
from quorumlog.server.transport.tls_contexts import TlsContexts

#: A client that says nothing for so long is cut off.
SILENCE_S = 10.0
HANDSHAKE_S = 5.0
#: Connections at once; what comes beyond them is closed.
MAX_CONNECTIONS = 32
#: Where a request says who makes it: a ClientOrigin.
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of connections that break."""


class TlsPageServer(PageServer):
    """The same for clients with a certificate.

    Arguments:
        watched: the node's pair, with the authorities of clients.
    """

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler], watched: WatchedPair) -> None:
        self._contexts = TlsContexts(watched)
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shakes hands, and serves whoever has proved who they are."""
        assert isinstance(request, socket.socket)
        request.settimeout(HANDSHAKE_S)
        with self._contexts.current().wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)


def client_of(connection: ssl.SSLSocket, host: str) -> ClientOrigin:
    """Who is at the other end, by the certificate."""
    proved = auth_context_of(connection)
    assert proved, "nobody comes in without a certificate"
    return ClientOrigin("metrics", host, principal_of(proved), Listener.CLIENT, serial_of(proved))
