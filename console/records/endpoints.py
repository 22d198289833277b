"""Records for the page: searches and what is followed, as lines of JSON that end when the page goes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quorumlog.console.picture import Thing
from quorumlog.console.records.conditions import FilterError, RecordFilter, parse_filter
from quorumlog.console.records.follow import follow_topic
from quorumlog.console.records.search import MOST_ROWS, Stretch, TopicSearch
from quorumlog.sdk import QuorumlogError
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer

#: Readers at a time, of all pages: each has connections and buffers of its own.
MOST_READERS = 6
_LARGEST = (1 << 63) - 1


class RecordEndpoints:
    """What the page asks of records.

    Arguments:
        admin: says which partitions there are.
        make_consumer: a consumer for one question.
        hide_values: values and headers are not shown, and no filter looks at them.
    """

    def __init__(self, admin: AsyncAdmin, make_consumer: Callable[[], AsyncConsumer], *, hide_values: bool) -> None:
        self._admin = admin
        self._make_consumer = make_consumer
        self._hide_values = hide_values
        self._readers = 0

    def routes(self) -> list[Route]:
        """What the page may ask for."""
        return [Route("/records/{topic}/search", self.search), Route("/records/{topic}/follow", self.follow)]

    async def search(self, request: Request) -> Response:
        """A search; see :class:`Stretch` for the parameters."""
        topic = str(request.path_params["topic"])
        try:
            stretch, wanted = _stretch(request.query_params), self._filter(request.query_params)
        except FilterError as error:
            return PlainTextResponse(f"{error}\n", 400)

        def events(consumer: AsyncConsumer) -> AsyncIterator[Thing]:
            search = TopicSearch(consumer, self._admin, topic, stretch, wanted, hide_values=self._hide_values)
            return search.events()

        return self._answer(events)

    async def follow(self, request: Request) -> Response:
        """What is written from now on."""
        topic = str(request.path_params["topic"])
        try:
            partition, wanted = _number(request.query_params, "partition"), self._filter(request.query_params)
        except FilterError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return self._answer(
            lambda consumer: follow_topic(
                consumer, self._admin, topic, partition, wanted, hide_values=self._hide_values
            )
        )

    def _filter(self, query: QueryParams) -> RecordFilter:
        wanted = parse_filter(query.get("filter", ""))
        if self._hide_values and wanted.looks_at_values:
            # Whoever may ask whether a value begins with an a, and then ab, reads it letter by letter.
            raise FilterError("this console hides values: filter by key")
        return wanted

    def _answer(self, events: Callable[[AsyncConsumer], AsyncIterator[Thing]]) -> Response:
        if self._readers >= MOST_READERS:
            return PlainTextResponse("too many searches are under way: end one, or try again\n", 503)
        return StreamingResponse(self._lines(events), media_type="application/x-ndjson")

    async def _lines(self, events: Callable[[AsyncConsumer], AsyncIterator[Thing]]) -> AsyncIterator[bytes]:
        self._readers += 1
        try:
            async with self._make_consumer() as consumer, aclosing(events(consumer)) as found:  # type: ignore[type-var]
                async for event in found:
                    yield json.dumps(event).encode() + b"\n"
        except QuorumlogError as error:
            yield json.dumps({"kind": "error", "message": error.message}).encode() + b"\n"
        finally:
            self._readers -= 1


def _stretch(query: QueryParams) -> Stretch:
    limit = _number(query, "limit")
    return Stretch(
        partition=_number(query, "partition"),
        offset=_number(query, "offset"),
        last=_number(query, "last"),
        since_ms=_number(query, "since"),
        everywhere=query.get("everywhere") == "1",
        limit=min(MOST_ROWS, max(1, 50 if limit is None else limit)),
    )


def _number(query: QueryParams, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= _LARGEST):
        raise FilterError(f"{name} is {text[:30]!r}: it is a whole number from 0 to {_LARGEST}")
    return int(text)
