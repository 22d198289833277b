"""A certificate with its key, and the authorities whose certificates are trusted, as files that change now and then.

An operator replaces files while the node runs. What is read must be one state of them: a certificate whose key has not
been replaced yet is no pair, and the one before stays in use. Authorities may be several, one after the other in their
file: the former one and the next, while everybody gets new certificates.
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

#: Files are looked at once in so many seconds at most.
LOOKED_AT_S = 1.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(slots=True, frozen=True)
class Pair:
    """The content of such files, in PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes | None
    validity: Validity


def read_pair(files: PairFiles, wall_s: Callable[[], float] = time.time) -> Pair:
    """Reads the files, and checks that they can be used.

    Raises:
        CertificateError: one cannot be read, others than its owner may read the key, the key is not the certificate's,
            or the certificate is not valid now.
    """
    certificate, key = _read(files.certificate), _read(files.key)
    mode = files.key.stat().st_mode
    if mode & _OTHERS:
        raise CertificateError(
            f"{files.key} may be read by others than its owner (mode {stat.S_IMODE(mode):o}): chmod 600 {files.key}"
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
        raise CertificateError(f"{files.certificate} was valid until {_when(valid.ends_s)}: replace it")
    if now_s < valid.begins_s:
        raise CertificateError(f"{files.certificate} is valid from {_when(valid.begins_s)} on: look at the clock")
    return Pair(certificate, key, authorities, valid)


class WatchedPair:
    """A pair that is read again when its files have changed. May be asked on any thread.

    Arguments:
        on_refused: told why a changed pair was not taken, once per reason.
        on_taken: told of a pair that took the place of the one before.

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
        """The pair as it is now. As long as nothing changes it is the same object."""
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
            return  # Replaced while it was read: perhaps half of it is of before. The next look decides.
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
    """The pair as it is now, where it is another one than ``known``; else None.

    Each of those that serve with a pair knows which one it has: whoever else looks at it takes no change from them.
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
        raise CertificateError(f"{path} is a directory: give a file") from None
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
