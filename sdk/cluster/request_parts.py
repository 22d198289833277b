"""A request names so many things at most. What a client asks for beyond that goes in several requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

#: Items that a node takes in any list of a request.
MOST_ITEMS = 10_000

Item = TypeVar("Item")


def in_parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in their order, in lists that each fit into a request. Nothing for no items."""
    rest = iter(items)
    while part := list(islice(rest, MOST_ITEMS)):
        yield part
