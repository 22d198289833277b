"""Common parts of requests for changes: a bounded JSON body, and errors of one line for the page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quorumlog.console.changes.reset_plan import ResetError
from quorumlog.sdk import QuorumlogError

#: Maximum size of a request in bytes; a record that is sent by hand is smaller.
LARGEST_BODY = 1 << 20
LARGEST_NUMBER = (1 << 63) - 1


class BadChangeError(ValueError):
    """Raised for an invalid request; the message says what is wrong."""


def answering(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Returns an endpoint whose errors are one line for the page."""

    async def answering(request: Request) -> Response:
        try:
            return await answer(request)
        except (BadChangeError, ResetError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        except QuorumlogError as error:
            return PlainTextResponse(f"{error.message}\n", 409)

    return answering


async def body_of(request: Request) -> dict[str, Any]:
    """Returns the object that a request carries as JSON.

    Raises:
        BadChangeError: it carries something else, or is too large.
    """
    if request.headers.get("content-type") != "application/json":
        raise BadChangeError("expected JSON")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > LARGEST_BODY:
            raise BadChangeError(f"the request has more than {LARGEST_BODY} bytes")
    try:
        body = json.loads(received)
        json.dumps(body, ensure_ascii=False).encode()  # An escape may be half a surrogate pair, which no text contains.
    except (ValueError, RecursionError):
        raise BadChangeError("the body is not JSON, or not Unicode") from None
    if not isinstance(body, dict):
        raise BadChangeError("expected an object")
    return body


def text_of(body: dict[str, Any], field: str) -> str:
    """Returns a field of a request that must be a non-empty string."""
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise BadChangeError(f"{field} must be a non-empty string")
    return value


def whole(value: object, least: int = 0) -> int:
    """Returns an integer, which may come as text because a browser would round a large number."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal() and len(value) < 21:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_NUMBER:
        raise BadChangeError(f"{str(value)[:30]!r} is not a valid number")
    return value
