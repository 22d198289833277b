"""The state that all pages show: a flat map of items with a version, and the changes since a version."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TypeAlias

#: JSON values. 64-bit numbers are text: a browser would round them.
Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
#: One item of the state, such as a partition, under a key such as ``partition/orders/0``.
Thing: TypeAlias = dict[str, Json]

#: Maximum number of removed keys kept for pages that have not received the removal. A page that was disconnected for
#: longer gets the whole state.
MAX_GONE = 10_000


class SharedState:
    """The newest state, and the version at which each part of it changed. Used on one event loop.

    A slow page gets one change with the newest state of everything that has changed, however often it did.

    Attributes:
        run: identifies this state; versions of another one mean nothing here.
        version: counts changes.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.version = 0
        self._things: dict[str, Thing] = {}
        self._changed: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        #: Changes before this version are no longer known.
        self._told_since = 0
        self._news = asyncio.Event()
        self.closed = False

    def put(self, prefix: str, things: Mapping[str, Thing]) -> None:
        """Replaces all items whose keys start with ``prefix``.

        Arguments:
            things: the items by their whole keys.
        """
        changed = [key for key, thing in things.items() if self._things.get(key) != thing]
        gone = [key for key in self._things if key.startswith(prefix) and key not in things]
        if not changed and not gone:
            return
        self.version += 1
        for key in changed:
            self._things[key] = things[key]
            self._changed[key] = self.version
            self._gone.pop(key, None)
        for key in gone:
            del self._things[key], self._changed[key]
            self._gone[key] = self.version
        while len(self._gone) > MAX_GONE:
            oldest = next(iter(self._gone))
            self._told_since = self._gone.pop(oldest)
        self._wake()

    def since(self, version: int | None) -> dict[str, Json]:
        """Returns the changes since a version; everything if that is None, or is not known here.

        Returns:
            ``all``: True if it is everything. ``set``: items by their keys. ``gone``: keys.
        """
        if version is None or not self._told_since <= version <= self.version:
            return {"all": True, "set": {**self._things}, "gone": []}
        changed: dict[str, Json] = {
            key: self._things[key] for key, changed in self._changed.items() if changed > version
        }
        return {"all": False, "set": changed, "gone": [key for key, gone in self._gone.items() if gone > version]}

    async def newer_than(self, version: int) -> None:
        """Returns once there is a newer version, or the state is closed."""
        while self.version <= version and not self.closed:
            await self._news.wait()

    def close(self) -> None:
        """Wakes all waiting streams."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
