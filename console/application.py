"""The console as an ASGI application: the page, its files, its stream of events."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.poller import PageWish

#: Views of the page: each has an address of its own, at which the page opens that view.
VIEWS = (
    "/",
    "/nodes",
    "/topics",
    "/topics/{topic}",
    "/topics/{topic}/{partition:int}",
    "/topics/{topic}/{partition:int}/{offset:int}",
    "/partitions",
    "/groups",
    "/groups/{group:path}",
    "/transactions",
    "/transactions/{transaction:path}",
    "/quorum",
    "/acls",
    "/users",
)
#: Maximum number of names that one page may request at once.
MAX_NAMES = 64


class ConsoleEndpoints:
    """HTTP endpoints of the console.

    Arguments:
        streams: event streams of the open pages.
        assets: the page's files.
        more: further routes of this console.
    """

    def __init__(self, streams: PageStreams, assets: Assets, more: Sequence[Route] = ()) -> None:
        self._streams = streams
        self._assets = assets
        self._more = more

    async def page(self, request: Request) -> Response:
        """Serves the page, which shows the view that its address names."""
        return self._assets.answer("index.html", request.headers)

    async def lost(self, request: Request, error: Exception) -> Response:
        """Answers 404; a browser gets the page, which reports that and offers links."""
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("Not Found", 404)
        answer = self._assets.answer(
            "index.html", Headers({"accept-encoding": request.headers.get("accept-encoding", "")})
        )
        answer.status_code = 404
        return answer

    async def file(self, request: Request) -> Response:
        """Serves a file of the page."""
        return self._assets.answer(request.path_params["name"], request.headers)

    async def events(self, request: Request) -> Response:
        """Streams the events of one page. ``topic``, ``group`` and ``transaction`` name, one each, what it shows in
        detail; ``since`` is the id of the last event that it has received.
        """
        if self._streams.full:
            return PlainTextResponse("too many pages are open\n", 503)
        selection = PageWish(*(_names(request, kind) for kind in ("topic", "group", "transaction")))
        last_id = request.headers.get("last-event-id") or request.query_params.get("since")
        return StreamingResponse(self._streams.events(selection, last_id), media_type="text/event-stream")

    def application(self) -> Starlette:
        """Returns the ASGI application."""
        return Starlette(
            routes=[
                Route("/events", self.events),
                *self._more,
                Route("/static/{name:path}", self.file),
                *(Route(view, self.page) for view in VIEWS),
            ],
            exception_handlers={404: self.lost},
        )


def _names(request: Request, name: str) -> tuple[str, ...] | None:
    """Returns the names that a page requests; None if it requests none. A single empty name means an empty
    selection.
    """
    values = request.query_params.getlist(name)
    return tuple(each for each in values[:MAX_NAMES] if each) if values else None
