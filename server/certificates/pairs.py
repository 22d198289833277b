"""A certificate with its key and the trusted authorities, read from files that may change.

An operator replaces files while the node runs. They must be read in one consistent state: a certificate whose key has
not been replaced yet is not a pair, and the previous pair stays in use. A file of authorities may have several, one
after the other: the former one and the next, while all nodes and users get new certificates.
"""

from __future__ import annotations

import os
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quorumlog.server.certificates.x509 import CertificateError, Validity, check_certificates, validity
from quorumlog.server.config.options import PairFiles

#: Minimum interval between checks of the files (s).
LOOKED_AT_S = 1.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(slots=True, frozen=True)
class Pair:
    """Content of the files, in PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes | None
    validity: Validity


def read_pair(files: PairFiles, wall_s: Callable[[], float] = time.time) -> Pair:
    """Reads the files, and checks that they can be used.

    Raises:
        CertificateError: one cannot be read, users other than its owner may read the key, the key does not belong to
            the certificate, or the certificate is not valid now.
    """
    certificate, key = _read(files.certificate), _read(files.key)
    mode = files.key.stat().st_mode
    if mode & _OTHERS:
        raise CertificateError(
            f"{files.key} is readable by users other than its owner (mode {stat.S_IMODE(mode):o}):"
            f" chmod 600 {files.key}"
        )
    authorities = None if files.authorities is None else _read(files.authorities)
    valid = _validity(certificate, files.certificate)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, OSError, CertificateError):
        raise CertificateError(f"{files.key} is not the key of {files.certificate}, or has a password") from None
    if authorities is not None and files.authorities is not None:
        _check_authorities(authorities, files.authorities)
    now_s = wall_s()
    if now_s > valid.ends_s:
        raise CertificateError(f"{files.certificate} expired at {_when(valid.ends_s)}: replace it")
    if now_s < valid.begins_s:
        raise CertificateError(f"{files.certificate} is valid from {_when(valid.begins_s)} on: check the clock")
    return Pair(certificate, key, authorities, valid)


class WatchedPair:
    """A pair that is read again when its files have changed. Thread-safe.

    Arguments:
        on_refused: called with the reason for which a changed pair was refused, once for each reason.
        on_taken: called with a pair that has replaced the previous one.

    Raises:
        CertificateError: the files cannot be used.
    """

    def __init__(self, files: PairFiles, on_refused: Callable[[str], None], on_taken: Callable[[Pair], None]) -> None:
        self.files = files
        self._on_refused = on_refused
        self._on_taken = on_taken
        self._seen = self._stamp()
        self.pair = read_pair(files)
        self._looked_at_s = time.monotonic()
        self._refusal = ""

    def current(self) -> Pair:
        """Returns the current pair; the same object while nothing changes."""
        now_s = time.monotonic()
        if now_s < self._looked_at_s + LOOKED_AT_S:
            return self.pair
        self._looked_at_s = now_s
        stamp = self._stamp()
        if stamp != self._seen or self._refusal:
            self._read_again(stamp)
        return self.pair

    def _read_again(self, stamp: tuple[tuple[int, int, int], ...]) -> None:
        try:
            pair = read_pair(self.files)
        except CertificateError as error:
            self._seen = stamp
            if str(error) != self._refusal:
                self._refusal = str(error)
                self._on_refused(self._refusal)
            return
        if stamp != self._stamp():
            return  # Replaced while it was read, so it may be inconsistent. The next check decides.
        self._seen, self._refusal = stamp, ""
        if pair != self.pair:
            self.pair = pair
            self._on_taken(pair)

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in (self.files.certificate, self.files.key, self.files.authorities):
            try:
                status = path.stat() if path is not None else None
            except OSError:
                status = None
            stamps.append((0, 0, 0) if status is None else (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)


def changed_since(watched: WatchedPair, known: Pair) -> Pair | None:
    """Returns the current pair if it is not ``known``; otherwise None.

    Each server that uses a pair tracks its own: another caller's check must not hide a change from it.
    """
    pair = watched.current()
    return None if pair is known else pair


def _no_password() -> bytes:
    raise CertificateError("the key has a password")


def _check_authorities(pem: bytes, path: Path) -> None:
    try:
        check_certificates(pem)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None


def _validity(pem: bytes, path: Path) -> Validity:
    try:
        return validity(pem)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
                raise IsADirectoryError
            return file.read(1 << 20)
    except IsADirectoryError:
        raise CertificateError(f"{path} is a directory: specify a file") from None
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
