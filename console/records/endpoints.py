"""Endpoints for records: searches and followed topics, as JSON lines that end when the page disconnects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from enum import Enum
from typing import TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quorumlog.console.records.conditions import FilterError, RecordFilter, parse_filter
from quorumlog.console.records.download import MEDIA_TYPES, MOST_RECORDS, DownloadFormat, RecordFile
from quorumlog.console.records.follow import follow_topic
from quorumlog.console.records.search import MOST_ROWS, Stretch, TopicSearch
from quorumlog.console.records.shown import ALONE, IN_A_LIST, ContentFormat, RowFormat
from quorumlog.console.shared_state import Thing
from quorumlog.sdk import QuorumlogError
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer

#: Maximum number of concurrent readers, for all pages: each has connections and buffers of its own.
MOST_READERS = 6
TOO_MANY = "too many searches are running: stop one, or try again\n"
_LARGEST = (1 << 63) - 1
_Choice = TypeVar("_Choice", bound=Enum)


class RecordEndpoints:
    """Endpoints for records.

    Arguments:
        admin: lists the partitions.
        make_consumer: returns a consumer for one request.
        hide_values: values and headers are not shown, and filters on them are rejected.
    """

    def __init__(self, admin: AsyncAdmin, make_consumer: Callable[[], AsyncConsumer], *, hide_values: bool) -> None:
        self._admin = admin
        self._make_consumer = make_consumer
        self._hide_values = hide_values
        self._readers = 0

    def routes(self) -> list[Route]:
        """Returns the routes for records."""
        return [
            Route("/records/{topic}/search", self.search),
            Route("/records/{topic}/follow", self.follow),
            Route("/records/{topic}/download", self.download),
        ]

    async def search(self, request: Request) -> Response:
        """Runs a search; see :class:`Stretch` for the parameters, and :class:`ContentFormat` for ``key`` and
        ``value``.
        """
        topic = str(request.path_params["topic"])
        try:
            stretch, wanted = _stretch(request.query_params, MOST_ROWS), self._filter(request.query_params)
            form = self._row_format(request.query_params, ALONE if stretch.limit == 1 else IN_A_LIST)
        except FilterError as error:
            return PlainTextResponse(f"{error}\n", 400)

        def events(consumer: AsyncConsumer) -> AsyncIterator[Thing]:
            return TopicSearch(consumer, self._admin, topic, stretch, wanted, form.rows).events()

        return self._answer(events)

    async def follow(self, request: Request) -> Response:
        """Streams new records."""
        topic = str(request.path_params["topic"])
        try:
            partition, wanted = _number(request.query_params, "partition"), self._filter(request.query_params)
            form = self._row_format(request.query_params, IN_A_LIST)
        except FilterError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return self._answer(lambda consumer: follow_topic(consumer, self._admin, topic, partition, wanted, form))

    async def download(self, request: Request) -> Response:
        """Returns the result of a search as a file in the requested ``format``. The file's name shows if it is
        partial.
        """
        topic = str(request.path_params["topic"])
        try:
            stretch, wanted = _stretch(request.query_params, MOST_RECORDS), self._filter(request.query_params)
            form = _choice(DownloadFormat, request.query_params, "format", DownloadFormat.JSON_LINES)
        except FilterError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if self._readers >= MOST_READERS:
            return PlainTextResponse(TOO_MANY, 503)
        file = RecordFile(topic, form, hide_values=self._hide_values)
        self._readers += 1
        try:
            async with self._make_consumer() as consumer:
                found = TopicSearch(consumer, self._admin, topic, stretch, wanted, file.shape).events()
                async with aclosing(found):  # type: ignore[type-var]
                    content = await file.fill(found)
        except QuorumlogError as error:
            return PlainTextResponse(f"{error.message}\n", 409)
        finally:
            self._readers -= 1
        # Topic names contain no character that would need to be quoted.
        name = f"{topic}{'' if stretch.partition is None else f'-{stretch.partition}'}"
        name += f"{'-partial' if file.is_partial else ''}.{form.value}"
        said = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=MEDIA_TYPES[form], headers=said)

    def _row_format(self, query: QueryParams, most: int) -> RowFormat:
        key, value = (_choice(ContentFormat, query, name, ContentFormat.AUTO) for name in ("key", "value"))
        return RowFormat(most, self._hide_values, key, value)

    def _filter(self, query: QueryParams) -> RecordFilter:
        wanted = parse_filter(query.get("filter", ""))
        if self._hide_values and wanted.looks_at_values:
            # A client that may filter by the first letters of a value could read it letter by letter.
            raise FilterError("this console hides values: filter by key")
        return wanted

    def _answer(self, events: Callable[[AsyncConsumer], AsyncIterator[Thing]]) -> Response:
        if self._readers >= MOST_READERS:
            return PlainTextResponse(TOO_MANY, 503)
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


def _stretch(query: QueryParams, most_rows: int) -> Stretch:
    limit = _number(query, "limit")
    return Stretch(
        partition=_number(query, "partition"),
        offset=_number(query, "offset"),
        last=_number(query, "last"),
        since_ms=_number(query, "since"),
        everywhere=query.get("everywhere") == "1",
        limit=min(most_rows, max(1, 50 if limit is None else limit)),
    )


def _choice(kind: type[_Choice], query: QueryParams, name: str, default: _Choice) -> _Choice:
    try:
        return kind(query.get(name) or default.value)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise FilterError(f"{name} is {query[name][:30]!r}: choose from {known}") from None


def _number(query: QueryParams, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= _LARGEST):
        raise FilterError(f"{name} is {text[:30]!r}: expected a whole number from 0 to {_LARGEST}")
    return int(text)
