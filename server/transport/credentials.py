"""TLS credentials for gRPC: of this node's listeners, and of its connections to peers.

Files are read again when they change. gRPC asks a server for its certificate at each new connection, on a thread of its
own; for outgoing connections, credentials are created each time. Existing connections keep their certificate.
"""

from __future__ import annotations

import grpc
import grpc.aio

from quorumlog.server.certificates.names import node_host
from quorumlog.server.certificates.pairs import Pair, WatchedPair, changed_since
from quorumlog.server.transport.channel_options import PEER_CHANNEL_OPTIONS
from quorumlog.server.transport.tls_contexts import ClientTlsContexts


def server_credentials(watched: WatchedPair) -> grpc.ServerCredentials:
    """Returns the credentials of a listener. It requires client certificates if the pair has authorities."""
    served = watched.pair

    def changed() -> grpc.ServerCertificateConfiguration:
        nonlocal served
        pair = changed_since(watched, served)
        if pair is None:
            return None  # type: ignore[return-value] # None means "no change"; the stubs do not say so
        served = pair
        return _configuration(pair)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served), changed, require_client_authentication=served.authorities is not None
    )


def _configuration(pair: Pair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], root_certificates=pair.authorities)


class PeerDialer:
    """Opens connections to other nodes.

    Arguments:
        watched: this node's key pair, with the certificate authorities of nodes; None: connect without TLS.
    """

    def __init__(self, watched: WatchedPair | None = None) -> None:
        self._watched = watched
        #: For connections without gRPC; None: without TLS.
        self.contexts = None if watched is None else ClientTlsContexts(watched)

    def channel(self, address: str, node_id: int | None) -> grpc.aio.Channel:
        """Opens a separate connection. With TLS, the handshake fails if the server has the certificate of another node.

        Arguments:
            address: host:port.
            node_id: id of the node expected there. None: unknown, and the certificate must be valid for the host.
        """
        if self._watched is None:
            return grpc.aio.insecure_channel(address, options=PEER_CHANNEL_OPTIONS)
        pair = self._watched.current()
        credentials = grpc.ssl_channel_credentials(pair.authorities, pair.key, pair.certificate)
        expected = () if node_id is None else (("grpc.ssl_target_name_override", node_host(node_id)),)
        return grpc.aio.secure_channel(address, credentials, options=(*PEER_CHANNEL_OPTIONS, *expected))
