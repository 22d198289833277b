"""The stream of Server-Sent Events of one page: the whole state once, and then its changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from quorumlog.console.poller import OpenPages, PageWish
from quorumlog.console.shared_state import SharedState

#: Maximum number of open pages; more are refused.
MAX_PAGES = 32
#: Interval at which something is sent without news (s), so that a dead connection is noticed.
HEARTBEAT_S = 10.0
#: Minimum interval between updates (s): more frequent ones would not be visible.
AT_MOST_EVERY_S = 0.1


class PageStreams:
    """The streams of all pages.

    Arguments:
        picture: the state that they show.
        pages: registry of open pages.
    """

    def __init__(self, picture: SharedState, pages: OpenPages) -> None:
        self._picture = picture
        self._pages = pages

    @property
    def full(self) -> bool:
        """True if no further page can be opened."""
        return len(self._pages) >= MAX_PAGES

    async def events(self, wish: PageWish, last_id: str | None) -> AsyncIterator[bytes]:
        """Yields the events until the state is closed or the client disconnects.

        Arguments:
            last_id: id of the last event that the page has received, to continue from; None: it has nothing.
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
