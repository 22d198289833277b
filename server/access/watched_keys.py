"""A JWKS file that is read again when it has changed: keys come and go while a node runs.

What is read is taken only when it is whole and of use. Until then the keys before it stay in use.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import KeySet, KeySetError, parse_keys
from quorumlog.server.step.bearer_tokens import TokenOptions, TokenVerifier

#: The file is looked at once in so many seconds at most.
LOOKED_AT_S = 1.0
#: Bytes of the file.
MAX_FILE_BYTES = 256 << 10
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_keys(options: TokenOptions) -> KeySet:
    """Reads the file, and checks it.

    Raises:
        KeySetError: it cannot be read, others than its owner may write it, or it has no keys that can be used.
    """
    path = options.key_file
    try:
        # A pipe would keep the node waiting for whoever writes it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
    except IsADirectoryError:
        content = None
    except OSError as error:
        raise KeySetError(f"cannot read {path}: {error.strerror}") from None
    if content is None:
        raise KeySetError(f"{path} is no file: give one")
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OTHERS_WRITE:
        # Whoever writes it can sign in as anybody.
        raise KeySetError(f"{path} may be written by others than its owner (mode {mode:o}): chmod go-w {path}")
    if len(content) > MAX_FILE_BYTES:
        raise KeySetError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    try:
        return parse_keys(content, options.algorithms)
    except KeySetError as problem:
        raise KeySetError(f"{path}: {problem}") from None


class WatchedKeys:
    """The keys of a file as it is now. May be asked on any thread.

    Arguments:
        on_refused: told why a changed file was not taken, once per reason.
        on_taken: told how many keys took the place of those before.

    Raises:
        KeySetError: the file cannot be used.
    """

    def __init__(
        self, options: TokenOptions, on_refused: Callable[[str], None], on_taken: Callable[[int], None]
    ) -> None:
        self._options = options
        self._on_refused = on_refused
        self._on_taken = on_taken
        self._seen = _stamp(options.key_file)
        self._content = read_keys(options)
        self._verifier = JwtVerifier(self._content, options)
        self._looked_at_s = time.monotonic()
        self._refusal = ""

    def current(self) -> TokenVerifier:
        """A verifier with the keys as they are now. As long as nothing changes it is the same object."""
        now_s = time.monotonic()
        if now_s < self._looked_at_s + LOOKED_AT_S:
            return self._verifier
        self._looked_at_s = now_s
        stamp = _stamp(self._options.key_file)
        if stamp != self._seen or self._refusal:
            self._read_again(stamp)
        return self._verifier

    def _read_again(self, stamp: tuple[int, ...]) -> None:
        try:
            keys = read_keys(self._options)
        except KeySetError as error:
            self._seen = stamp
            if str(error) != self._refusal:
                self._refusal = str(error)
                self._on_refused(self._refusal)
            return
        if stamp != _stamp(self._options.key_file):
            return  # Replaced while it was read: perhaps half of it is of before. The next look decides.
        self._seen, self._refusal = stamp, ""
        self._verifier = JwtVerifier(keys, self._options)
        self._on_taken(len(keys.keys))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    # A change of who may write it changes neither its time nor its size.
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
