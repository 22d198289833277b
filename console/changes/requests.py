"""What requests for changes have in common: a bounded body of JSON, and errors that are one line for the page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quorumlog.console.changes.reset_plan import ResetError
from quorumlog.sdk import QuorumlogError

#: Bytes of a request; a record that is sent by hand is smaller.
LARGEST_BODY = 1 << 20
LARGEST_NUMBER = (1 << 63) - 1


class BadChangeError(ValueError):
    """A request that means nothing; the message says what is wrong."""


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
        BadChangeError: it carries something else, or too much.
    """
    if request.headers.get("content-type") != "application/json":
        raise BadChangeError("JSON is expected")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > LARGEST_BODY:
            raise BadChangeError(f"the request has more than {LARGEST_BODY} bytes")
    try:
        body = json.loads(received)
        json.dumps(body, ensure_ascii=False).encode()  # An escape may be half a character, which no text has.
    except (ValueError, RecursionError):
        raise BadChangeError("this is no JSON, or not Unicode") from None
    if not isinstance(body, dict):
        raise BadChangeError("an object is expected")
    return body


def text_of(body: dict[str, Any], field: str) -> str:
    """Returns a field of a request that must be a text, and not empty."""
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise BadChangeError(f"{field} is expected, and is a text")
    return value


def whole(value: object, least: int = 0) -> int:
    """Returns a whole number, which may come as text: a browser would round a large one."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal() and len(value) < 21:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_NUMBER:
        raise BadChangeError(f"{str(value)[:30]!r} is not a number that is meant here")
    return value
