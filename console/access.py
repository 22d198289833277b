"""Access control of the console, and the security headers of every response.

The printed address contains a token, which is exchanged for a cookie. ``Host`` must be a name at which the console is
reached; otherwise a foreign page could resolve its own name to this address (DNS rebinding). ``Origin`` must be our
own.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NOT_LET_IN = "Open the address that 'quorumlog console' has printed: it contains the access token.\n"


class ConsoleGate:
    """Passes requests to an application only if they come from the console's own page with a valid session.

    Arguments:
        app: the application behind the gate.
        hosts: accepted values of ``Host``, with the port.
        port: the listening port; cookies of one host are shared by all of its ports, so it is part of the cookie's
            name.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], port: int) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = f"quorumlog_console_{port}"
        self._session = secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rejects a request, or passes it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return PlainTextResponse("this console is not served under that host name\n", 400)
        origin = headers.get("origin")
        changes = scope["method"] not in ("GET", "HEAD")
        if (origin is None and changes) or (
            origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}")
        ):
            return PlainTextResponse("only the console's own page may send this request\n", 403)
        query = parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if tokens and scope["method"] == "GET":
            return self._exchanged(scope["path"], query, tokens[0])
        if not self._is_known(headers):
            return PlainTextResponse(NOT_LET_IN, 401)
        return None

    def _exchanged(self, path: str, query: list[tuple[str, str]], token: str) -> Response:
        if not _equal(token, self.token):
            return PlainTextResponse(NOT_LET_IN, 401)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # A path with two leading slashes would be the address of another host.
        answer = RedirectResponse(f"/{path.lstrip('/')}{'?' + rest if rest else ''}", 303)
        answer.set_cookie(self._cookie, self._session, path="/", httponly=True, samesite="strict")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        session = cookies.get(self._cookie)
        return session is not None and _equal(session.value, self._session)


def _equal(given: str, right: str) -> bool:
    """True if a secret is correct, compared in constant time."""
    return hmac.compare_digest(given.encode(), right.encode())
