"""The client's message of OAUTHBEARER (RFC 7628, section 3.1): whom it asks to be, its token, and extensions."""

from __future__ import annotations

import re
from typing import NamedTuple

from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

MECHANISM = "OAUTHBEARER"
#: Maximum size of the message, in bytes: of the token, and of what is beside it.
MAX_MESSAGE_BYTES = MAX_BEARER_TOKEN_LENGTH + (1 << 10)
#: Response to a rejected token (section 3.2.2).
INVALID_TOKEN = b'{"status":"invalid_token"}'
_SEPARATOR = "\x01"
#: How a client acknowledges that response (section 3.2.3); the authentication then fails.
ACKNOWLEDGEMENT = _SEPARATOR.encode()
_KEY = re.compile(r"[A-Za-z]+")
#: Visible characters and white space.
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
#: RFC 6750, section 2.1; the name of the scheme has no case (RFC 9110, section 11.1).
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*)")


class OauthbearerMessageError(Exception):
    """Raised if a message is invalid. The text repeats nothing of its content."""


class OauthbearerMessage(NamedTuple):
    """The client's message.

    Arguments:
        authorization_id: the user that the client asks to be; empty: the one that the token names.
    """

    authorization_id: str
    token: str

    def __repr__(self) -> str:
        return "OauthbearerMessage(***)"

    @classmethod
    def of(cls, message: bytes) -> OauthbearerMessage:
        """Parses the message. Extensions must be well-formed, and have no effect.

        Raises:
            OauthbearerMessageError: the bytes are not such a message.
        """
        if len(message) > MAX_MESSAGE_BYTES:
            raise OauthbearerMessageError(f"it has {len(message)} bytes, the maximum is {MAX_MESSAGE_BYTES}")
        try:
            header, *pairs = message.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            raise OauthbearerMessageError("it is not UTF-8") from None
        if pairs[-2:] != ["", ""]:
            raise OauthbearerMessageError("it does not end with two separators (0x01)")
        values = _values(pairs[:-2])
        bearer = _BEARER.fullmatch(values.get("auth", ""))
        if bearer is None:
            raise OauthbearerMessageError("it has no token: send auth=Bearer and the token")
        return cls(_authorization_id(header), bearer[1])


def _authorization_id(header: str) -> str:
    """Returns the authorization id in the header (RFC 5801, section 4)."""
    parts = header.split(",")
    if len(parts) != 3 or parts[0] != "n" or parts[2] or parts[1] not in ("", f"a={parts[1][2:]}"):
        raise OauthbearerMessageError("it must start with n,, or n,a=USER, (channel binding is not supported)")
    escaped = parts[1][2:]
    name = escaped.replace("=2C", ",").replace("=3D", "=")
    if parts[1] and (not name or name.replace("=", "=3D").replace(",", "=2C") != escaped):
        raise OauthbearerMessageError("its authorization id is invalid")
    return name


def _values(pairs: list[str]) -> dict[str, str]:
    """Returns the values by key."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise OauthbearerMessageError("it has a part that is not a key and a value")
        if key in values:
            raise OauthbearerMessageError("it has a key twice")
        values[key] = value
    return values
