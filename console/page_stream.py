"""The stream of Server-Sent Events of one page: the whole picture once, and then what changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from quorumlog.console.poller import OpenPages, PageWish
from quorumlog.console.shared_state import SharedState

#: More pages than this are refused.
MAX_PAGES = 32
#: Without news, something is sent so often: whoever is behind a dead connection notices.
HEARTBEAT_S = 10.0
#: A page that is shown more often than this shows nothing better.
AT_MOST_EVERY_S = 0.1


class PageStreams:
    """The streams of all pages.

    Arguments:
        picture: what they show.
        pages: where they are written down while they are open.
    """

    def __init__(self, picture: SharedState, pages: OpenPages) -> None:
        self._picture = picture
        self._pages = pages

    @property
    def full(self) -> bool:
        """Whether no page more can be opened."""
        return len(self._pages) >= MAX_PAGES

    async def events(self, wish: PageWish, last_id: str | None) -> AsyncIterator[bytes]:
        """The events, until the picture is closed or nobody reads any more.

        Arguments:
            last_id: of the last event that the page has had, to go on from; None: it has nothing.
        """
        page = object()
        self._pages.open(page, wish)
        try:
            yield b"retry: 1000\n\n"
            version = self._version(last_id)
            while not self._picture.closed:
                if version is None or version != self._picture.version:
                    change, version = self._picture.since(version), self._picture.version
                    yield f"id: {self._picture.run}-{version}\ndata: {json.dumps(change)}\n\n".encode()
                    await asyncio.sleep(AT_MOST_EVERY_S)
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._picture.newer_than(version)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._pages.close(page)

    def _version(self, event_id: str | None) -> int | None:
        run, _, version = (event_id or "").partition("-")
        return int(version) if run == self._picture.run and version.isdecimal() and len(version) < 16 else None
