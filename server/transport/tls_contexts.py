"""TLS contexts without gRPC, from certificate files that may change."""

from __future__ import annotations

import ssl

from quorumlog.server.certificates.pairs import Pair, WatchedPair, changed_since


class TlsContexts:
    """Contexts for new connections.

    If the pair has certificate authorities, clients must present a certificate.
    """

    def __init__(self, watched: WatchedPair) -> None:
        self._watched = watched
        self._pair = watched.pair
        self._context = self._context_of(watched, self._pair)

    def current(self) -> ssl.SSLContext:
        """Returns a context with the newest pair, or with the previous one if that cannot be loaded."""
        pair = changed_since(self._watched, self._pair)
        if pair is not None:
            try:
                self._context = self._context_of(self._watched, pair)
            except (ssl.SSLError, OSError):
                return self._context  # The files are being replaced at the moment: the next connection retries.
            self._pair = pair
        return self._context

    def _context_of(self, watched: WatchedPair, pair: Pair) -> ssl.SSLContext:
        return _context_of(ssl.PROTOCOL_TLS_SERVER, watched, pair)


class ClientTlsContexts(TlsContexts):
    """Contexts for new connections to servers, which must present a certificate of the pair's authorities."""

    def _context_of(self, watched: WatchedPair, pair: Pair) -> ssl.SSLContext:
        return _context_of(ssl.PROTOCOL_TLS_CLIENT, watched, pair)


def _context_of(protocol: int, watched: WatchedPair, pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if pair.authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=pair.authorities.decode("ascii", "ignore"))
    context.load_cert_chain(watched.files.certificate, watched.files.key)
    return context
