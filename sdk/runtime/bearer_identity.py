"""Sign-in by bearer token (OAUTHBEARER) as a client does it: the token is asked for anew at each sign-in.

So whoever renews tokens, such as an agent that writes them into a file, needs to tell nobody.
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
    """Has a token, as kafka-python's clients ask for one."""

    def token(self) -> str:
        """The token as it is now. May wait."""


AnyTokenProvider: TypeAlias = TokenProvider | Callable[[], str]


class BearerIdentity:
    """Whoever a token names.

    Arguments:
        source: what the token comes from, for messages.
        read: brings it.
    """

    def __init__(self, source: str, read: Callable[[], object]) -> None:
        self._source = source
        self._read = read

    def __repr__(self) -> str:
        return f"BearerIdentity({self._source})"

    def token(self) -> str:
        """The token as it is now. May take a while: call it where that does no harm.

        Raises:
            IllegalArgumentError: there is none. It is never repeated.
        """
        token = self._read()
        if not isinstance(token, str):
            raise IllegalArgumentError(f"{self._source}: what it gives is no text")
        if not 1 <= len(token) <= MAX_BEARER_TOKEN_LENGTH:
            wrong = f"{len(token)} characters, and tokens have 1 to {MAX_BEARER_TOKEN_LENGTH}"
            raise IllegalArgumentError(f"{self._source}: {wrong}")
        if not _TOKEN.fullmatch(token):
            raise IllegalArgumentError(f"{self._source}: what it gives has characters that no token has")
        return token

    @classmethod
    def of_file(cls, path: str, option: str) -> BearerIdentity:
        """Whoever the token in a file names.

        Arguments:
            option: that gave the path, for messages.
        """

        def read() -> str:
            try:
                # A pipe would keep the client waiting for whoever writes it, for ever.
                with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        raise ValueError("it is no file")
                    return file.read(2 * MAX_BEARER_TOKEN_LENGTH).decode("ascii", "replace").strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise IllegalArgumentError(f"{option}: cannot read {path}: {reason}") from None

        return cls(f"{option}: {path}", read)

    @classmethod
    def of_provider(cls, provider: AnyTokenProvider, option: str) -> BearerIdentity:
        """Whoever the provider's token names."""
        ask = provider if callable(provider) else provider.token

        def read() -> object:
            try:
                return ask()
            except BaseException as error:
                # Also what is no Exception, such as SystemExit: it would end the event loop that all clients share. No
                # signal comes to the thread where this is called.
                raise SaslAuthenticationFailedError(f"{option} failed: {type(error).__name__}") from error

        return cls(option, read)
