"""Bytes that moves still have to copy: reported by the leaders for copies under way, estimated for the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, ReplicaCopy

#: A topic's name and a partition's number.
Place = tuple[str, int]


def copies_under_way(admin: Admin) -> list[ReplicaCopy]:
    """Returns the replicas that are being added anywhere, as far as nodes answer."""
    from quorumlog.sdk import NodeDescription

    return [copy for node in admin.describe_nodes() if isinstance(node, NodeDescription) for copy in node.copies]


class BytesLeft:
    """The bytes that are left to be copied for some partitions.

    Arguments:
        moved: all of those partitions.
        sizes: sizes of their logs, as far as a plan contains them; others become known while they are being copied.
            Until then each counts as one of the mean size.
    """

    def __init__(self, moved: Collection[Place], sizes: Mapping[Place, int]) -> None:
        self._moved = moved
        self._sizes = {place: size for place, size in sizes.items() if size}

    @property
    def all_bytes(self) -> int:
        """Estimated bytes of all partitions; 0 while nothing is known."""
        return sum(self._sizes.get(place, self._mean) for place in self._moved)

    @property
    def _mean(self) -> int:
        return sum(self._sizes.values()) // len(self._sizes) if self._sizes else 0

    def of(self, left: Iterable[Place], copies: Iterable[ReplicaCopy]) -> int:
        """Returns the estimated number of bytes left.

        Arguments:
            left: the partitions whose moves have not ended.
            copies: the copies that are under way.
        """
        places = set(left)
        sizes: dict[Place, int] = defaultdict(int)
        lacking: dict[Place, int] = defaultdict(int)
        for copy in copies:
            place = (copy.topic, copy.partition)
            if place in places:
                sizes[place] += copy.size_bytes
                lacking[place] += copy.left_bytes
        # A log that grows during the copy, and a second replica whose copy starts later, increase the total.
        self._sizes.update({place: max(size, self._sizes.get(place, 0)) for place, size in sizes.items() if size})
        mean = self._mean
        return sum(lacking[place] if place in lacking else self._sizes.get(place, mean) for place in places)
