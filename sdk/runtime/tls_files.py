"""The TLS files of a client: its authorities, its certificate and its key, read again when they have changed.

A client may run longer than its certificate is valid, and longer than its nodes are trusted by the same authority.
Changed files are used only when they are complete and match: a certificate whose key has not been replaced yet is not.
Until then the previous content stays in use, and a log message says why.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from quorumlog.sdk.errors import IllegalArgumentError

_log = logging.getLogger("quorumlog.sdk")

#: Files are checked at most once in this many seconds.
LOOKED_AT_S = 1.0
_LARGEST_BYTES = 1 << 20
_BEGIN, _END = b"-----BEGIN ", b"-----END "
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(slots=True, frozen=True)
class TlsContent:
    """Content of such files, in PEM; None if not given."""

    authorities: bytes | None
    certificate: bytes | None
    key: bytes | None


class TlsFiles:
    """The files of one client, for all of its connections. Used on one event loop, or in one thread.

    Arguments:
        authorities, certificate, key: paths; None if not given. Certificate and key must be given together.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        authorities: str | None,
        certificate: str | None,
        key: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authorities = authorities
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._content = TlsContent(None, None, None)
        self._seen: _Stamp = ()
        self._refusal = ""
        self._looked_at_s = 0.0
        self._state = 0

    def look(self, *, at_once: bool = False) -> int:
        """Returns the number of the state of the files in use, counted from 1.

        Arguments:
            at_once: check even if the last check was a moment ago.

        Raises:
            IllegalArgumentError: they cannot be used, and never could.
        """
        now_s = self._clock()
        if self._state and not at_once and now_s < self._looked_at_s + LOOKED_AT_S:
            return self._state
        self._looked_at_s = now_s
        stamp = self._stamp()
        if not self._state:
            self._content = self._read()
            self._seen, self._state = stamp, 1
        elif stamp != self._seen or self._refusal:
            self._read_again(stamp)
        return self._state

    def _read_again(self, stamp: _Stamp) -> None:
        try:
            content = self._read()
        except IllegalArgumentError as error:
            self._seen = stamp
            if error.message != self._refusal:
                self._refusal = error.message
                _log.warning("files of TLS are not taken, those read before stay in use: %s", self._refusal)
            return
        if stamp != self._stamp():
            return  # Replaced while they were read: a part may be old. The next check decides.
        self._seen, self._refusal = stamp, ""
        if content != self._content:
            self._content = content
            self._state += 1
            _log.info("files of TLS were read again: connections are made with them from now on")

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns the credentials for a connection.

        Raises:
            IllegalArgumentError: the files cannot be used, and never could.
        """
        self.look()
        content = self._content
        return grpc.ssl_channel_credentials(content.authorities, content.key, content.certificate)

    def _read(self) -> TlsContent:
        """Reads and validates all files."""
        content = TlsContent(
            _read_pem("ssl_ca_location", self._authorities),
            _read_pem("ssl_certificate_location", self._certificate),
            _read_pem("ssl_key_location", self._key),
        )
        if content.authorities is not None:
            try:
                # Text between certificates is for people, in any script.
                text = content.authorities.decode("ascii", "ignore")
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
            except (ssl.SSLError, ValueError):
                raise IllegalArgumentError(
                    f"ssl_ca_location: {self._authorities} has something else than certificates"
                ) from None
        if self._certificate is not None and self._key is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            try:
                context.load_cert_chain(self._certificate, self._key, password=_no_password)
            except (ssl.SSLError, OSError, ValueError, _HasPasswordError):
                raise IllegalArgumentError(
                    f"ssl_key_location: {self._key} is not the key of {self._certificate}, or has a password"
                ) from None
        return content

    def _stamp(self) -> _Stamp:
        stamps = []
        for path in (self._authorities, self._certificate, self._key):
            try:
                status = os.stat(path) if path is not None else None
            except (OSError, ValueError):
                status = None
            stamps.append((0, 0, 0) if status is None else (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)


class _HasPasswordError(Exception):
    """A key has a password, which is not supported."""


def _no_password() -> bytes:
    raise _HasPasswordError


def _read_pem(name: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_BYTES)
    except (OSError, ValueError) as error:
        raise IllegalArgumentError(f"{name}: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if _BEGIN not in content:
        raise IllegalArgumentError(f"{name}: {path} is not in PEM: it has no line -----BEGIN")
    if content.count(_BEGIN) != content.count(_END):
        raise IllegalArgumentError(f"{name}: {path} is not whole: a line -----BEGIN or -----END is missing")
    return content
