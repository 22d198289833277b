"""Authentication by bearer token (OAUTHBEARER); the token is read again at each authentication.

So a process that renews tokens, such as an agent that writes them to a file, need not notify the client.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import Protocol, TypeAlias

from quorumlog.sdk.errors import IllegalArgumentError, SaslAuthenticationFailedError
from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

MECHANISM = "OAUTHBEARER"
#: b64token of RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class TokenProvider(Protocol):
    """An object with a token, as in kafka-python's clients."""

    def token(self) -> str:
        """Returns the current token. May block."""


AnyTokenProvider: TypeAlias = TokenProvider | Callable[[], str]


class BearerIdentity:
    """The identity that a token names.

    Arguments:
        source: origin of the token, for messages.
        read: returns it.
    """

    def __init__(self, source: str, read: Callable[[], object]) -> None:
        self._source = source
        self._read = read

    def __repr__(self) -> str:
        return f"BearerIdentity({self._source})"

    def token(self) -> str:
        """Returns the current token. May block: do not call it on an event loop.

        Raises:
            IllegalArgumentError: no valid token is available. The message never quotes it.
        """
        token = self._read()
        if not isinstance(token, str):
            raise IllegalArgumentError(f"{self._source}: the token is not text")
        if not 1 <= len(token) <= MAX_BEARER_TOKEN_LENGTH:
            wrong = f"{len(token)} characters, and tokens have 1 to {MAX_BEARER_TOKEN_LENGTH}"
            raise IllegalArgumentError(f"{self._source}: {wrong}")
        if not _TOKEN.fullmatch(token):
            raise IllegalArgumentError(f"{self._source}: the token has characters that tokens cannot have")
        return token

    @classmethod
    def of_file(cls, path: str, option: str) -> BearerIdentity:
        """Returns an identity with the token from a file.

        Arguments:
            option: that gave the path, for messages.
        """

        def read() -> str:
            try:
                # A pipe would block the client indefinitely until another process writes to it.
                with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise ValueError("it is not a file")
                    return file.read(2 * MAX_BEARER_TOKEN_LENGTH).decode("ascii", "replace").strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise IllegalArgumentError(f"{option}: cannot read {path}: {reason}") from None

        return cls(f"{option}: {path}", read)

    @classmethod
    def of_provider(cls, provider: AnyTokenProvider, option: str) -> BearerIdentity:
        """Returns an identity with the provider's token."""
        ask = provider if callable(provider) else provider.token

        def read() -> object:
            try:
                return ask()
            except BaseException as error:
                # Also exceptions such as SystemExit, which would stop the event loop that all clients share. No signal
                # is delivered to the thread that calls this.
                raise SaslAuthenticationFailedError(f"{option} failed: {type(error).__name__}") from error

        return cls(option, read)
