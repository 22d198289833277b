"""A request names so many things at most. What a client asks for beyond that goes in several requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from quorumlog.v1.request_limits import MAX_ITEMS

Item = TypeVar("Item")


def in_parts(items: Iterable[Item], most: int = MAX_ITEMS) -> Iterator[list[Item]]:
    """The items in their order, in lists that each fit into a request. Nothing for no items.

    Arguments:
        most: that one request of the kind takes.
    """
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part
