"""Headers of messages: API, version and client of a request, and the request that a response belongs to.

Kafka's headers are structures of their own, in two versions each: flexible ones have tagged fields behind them.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from quorumlog.server.kafka.codec.primitives import (
    MOST_ELEMENTS,
    MalformedKafkaMessageError,
    pack_nullable_string,
    skip_tags,
    unpack_nullable_string,
)

_HEAD = Struct(">hhi")
_CORRELATION = Struct(">i")


class RequestHead(NamedTuple):
    """The part of a request's header that has one form, whatever is asked for.

    Arguments:
        correlation_id: chosen by the client; the response repeats it.
    """

    api_key: int
    api_version: int
    correlation_id: int


def unpack_request_head(data: bytes) -> RequestHead:
    """The head of a request.

    Raises:
        MalformedKafkaMessageError: there are too few bytes.
    """
    if len(data) < _HEAD.size:
        raise MalformedKafkaMessageError(f"a request of {len(data)} bytes is shorter than its header")
    return RequestHead(*_HEAD.unpack_from(data))


def unpack_client_id(data: bytes, *, flexible: bool) -> tuple[str | None, int]:
    """Returns the client ID, and the offset at which the message starts.

    The client ID has a 16-bit length also in flexible headers: a node that does not support the version must find it.

    Raises:
        MalformedKafkaMessageError: the bytes are not a header.
    """
    try:
        client_id, at = unpack_nullable_string(data, _HEAD.size)
        if flexible:
            at, _ = skip_tags(data, at, MOST_ELEMENTS)
    except (error, IndexError, UnicodeDecodeError):
        raise MalformedKafkaMessageError("a request's header is cut off, or its client id is not text") from None
    return client_id, at


def pack_request_header(head: RequestHead, client_id: str | None, *, flexible: bool) -> bytes:
    """The whole header of a request, as a client sends it."""
    return _HEAD.pack(*head) + pack_nullable_string(client_id) + (b"\0" if flexible else b"")


def pack_response_header(correlation_id: int, *, flexible: bool) -> bytes:
    """The whole header of a response."""
    return _CORRELATION.pack(correlation_id) + (b"\0" if flexible else b"")


def unpack_response_header(data: bytes, *, flexible: bool) -> tuple[int, int]:
    """The correlation id of a response, and where its message starts.

    Raises:
        MalformedKafkaMessageError: the bytes are not a header.
    """
    if len(data) < _CORRELATION.size + flexible:
        raise MalformedKafkaMessageError(f"a response of {len(data)} bytes is shorter than its header")
    (correlation_id,) = _CORRELATION.unpack_from(data)
    at = _CORRELATION.size
    try:
        return correlation_id, skip_tags(data, at, MOST_ELEMENTS)[0] if flexible else at
    except IndexError:
        raise MalformedKafkaMessageError("a response's header is cut off") from None
