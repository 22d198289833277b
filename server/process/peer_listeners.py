"""Services for peers: the streams at each listener that peers may use, and the sockets for frames."""

from __future__ import annotations

from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.settings import Settings
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process.driver import DrivenNode, Driver
from quorumlog.server.step.request_context import Listener
from quorumlog.server.transport.clients.unary_calls import Handlers
from quorumlog.server.transport.peers.disk_loss_report import loss_report_handlers
from quorumlog.server.transport.peers.peer_service import PeerService
from quorumlog.server.transport.peers.peer_sockets import PeerSocketListener
from quorumlog.server.transport.peers.refused_peers import RefusedPeers
from quorumlog.server.transport.tls_contexts import TlsContexts


class PeerListeners:
    """The services of a node for its peers."""

    def __init__(self, settings: Settings, node: DrivenNode, driver: Driver, log: Log, meters: Meters) -> None:
        self._settings = settings
        self._node = node
        self._driver = driver
        self._meters = meters
        self._refused = RefusedPeers(log, driver.tell_audit)
        self._sockets: PeerSocketListener | None = None

    def handlers(self, listener: Listener, watched: WatchedPair | None) -> tuple[Handlers, ...]:
        """Returns the handlers for the gRPC server of a listener; none for one that peers may not use.

        Arguments:
            watched: the listener's certificate; None: without TLS.
        """
        if listener not in (Listener.PEER, Listener.PLAINTEXT):
            return ()
        sockets = None
        place = self._settings.peer_socket_place
        if listener is self._settings.peer_listener and place is not None:
            sockets = self._sockets = PeerSocketListener(place, None if watched is None else TlsContexts(watched))
        by_certificate = listener is Listener.PEER
        service = PeerService(
            self._node, self._driver.links, self._refused, by_certificate=by_certificate, sockets=sockets
        )
        if not by_certificate:
            return (service.handlers(),)
        return (service.handlers(), loss_report_handlers(self._driver.requests, self._meters))

    async def start(self) -> None:
        """Starts to accept sockets.

        Raises:
            OSError: it cannot listen on the address.
        """
        if self._sockets is not None:
            await self._sockets.start()
            self._driver.supervisor.start(self._sockets.run(), "peer-sockets")

    def close(self) -> None:
        """Closes the sockets."""
        if self._sockets is not None:
            self._sockets.close()

    @property
    def connections(self) -> int:
        """Number of sockets on which peers send entries."""
        return 0 if self._sockets is None else self._sockets.connections
