"""Splits requests that exceed the limit of items in one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from quorumlog.sdk.arguments import MAX_TEXT_BYTES
from quorumlog.wire.request_limits import MAX_ITEMS

Item = TypeVar("Item")


def _no_text(item: object) -> int:
    return 0


def in_parts(
    items: Iterable[Item], most: int = MAX_ITEMS, text_bytes: Callable[[Item], int] = _no_text
) -> Iterator[list[Item]]:
    """Yields the items in order, in lists that each fit into a request. Yields nothing for no items.

    Arguments:
        most: limit of items in one request.
        text_bytes: size of an item beyond a few dozen bytes. One request has ``MAX_TEXT_BYTES`` at most.
    """
    part: list[Item] = []
    room = MAX_TEXT_BYTES
    for item in items:
        size = text_bytes(item)
        if part and (len(part) >= most or size > room):
            yield part
            part, room = [], MAX_TEXT_BYTES
        part.append(item)
        room -= size
    if part:
        yield part
