"""A JWKS file that is read again when it changes: keys are added and removed while a node runs.

A new version is used only if it is complete and valid. Until then the previous keys stay in use.
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

#: Minimum interval between two checks of the file, in seconds.
LOOKED_AT_S = 1.0
#: Maximum size of the file in bytes.
MAX_FILE_BYTES = 256 << 10
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_keys(options: TokenOptions) -> KeySet:
    """Reads and validates the file.

    Raises:
        KeySetError: it cannot be read, others than its owner may write it, or it has no usable key.
    """
    path = options.key_file
    try:
        # Opening a pipe would block the node until another process writes to it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else None
    except IsADirectoryError:
        content = None
    except OSError as error:
        raise KeySetError(f"cannot read {path}: {error.strerror}") from None
    if content is None:
        raise KeySetError(f"{path} is not a file: give one")
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OTHERS_WRITE:
        # Anyone who can write the file can authenticate as any user.
        raise KeySetError(f"{path} may be written by others than its owner (mode {mode:o}): chmod go-w {path}")
    if len(content) > MAX_FILE_BYTES:
        raise KeySetError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    try:
        return parse_keys(content, options.algorithms)
    except KeySetError as problem:
        raise KeySetError(f"{path}: {problem}") from None


class WatchedKeys:
    """The current keys of a file. May be used on any thread.

    Arguments:
        on_refused: called with the reason why a changed file was rejected, once per reason.
        on_taken: called with the number of new keys.

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
        """Returns a verifier with the current keys; the same object as long as nothing changes."""
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
            return  # Replaced while it was read, so the content may be mixed. The next check decides.
        self._seen, self._refusal = stamp, ""
        self._verifier = JwtVerifier(keys, self._options)
        self._on_taken(len(keys.keys))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    # A change of permissions changes neither time nor size.
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
