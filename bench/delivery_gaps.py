"""How long partitions were not read around a change of a group's members, from when its members were given records."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from quorumlog.chaos.processes.member_log import Event, MemberEvent


class MemberDelivery(NamedTuple):
    """A poll that brought records of a partition."""

    at_ns: int
    member: str


#: Deliveries of each partition, in the order of time.
Deliveries = Mapping[int, Sequence[MemberDelivery]]


def deliveries_of(members: Iterable[tuple[str, Iterable[MemberEvent]]]) -> dict[int, list[MemberDelivery]]:
    """What members were given, out of what they have written down."""
    found: dict[int, list[MemberDelivery]] = defaultdict(list)
    for name, events in members:
        for event in events:
            if event.event is Event.WORKED:
                found[event.partition].append(MemberDelivery(event.given_ns, name))
    return {partition: sorted(deliveries) for partition, deliveries in sorted(found.items())}


def longest_gap_ms(deliveries: Sequence[MemberDelivery], first_ns: int, last_ns: int) -> float:
    """The longest time between two deliveries of a partition, of those whose gap touches [first, last]."""
    gaps = [b.at_ns - a.at_ns for a, b in pairwise(deliveries) if b.at_ns > first_ns and a.at_ns < last_ns]
    return max(gaps, default=last_ns - first_ns) / 1e6


@dataclass(slots=True)
class Effect:
    """What a change did to the delivery, in milliseconds, one entry per partition.

    Arguments:
        unmoved: longest gaps of the partitions that stayed where they were.
        undisturbed: longest gaps of the same partitions in as long a time without a change.
        moved: of the others, from the old owner's last record to the new owner's first.
    """

    unmoved: list[float] = field(default_factory=list)
    undisturbed: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)

    def add(self, other: Effect) -> None:
        """Takes in those of another change of the same kind."""
        self.unmoved += other.unmoved
        self.undisturbed += other.undisturbed
        self.moved += other.moved


def effect_of(deliveries: Deliveries, before_ns: int, began_ns: int, ended_ns: int) -> Effect:
    """What a change did that began at one moment, and was over at another.

    Arguments:
        before_ns: since when nothing had changed.
    """
    effect = Effect()
    for each in deliveries.values():
        owner, taker = _owner(each, began_ns), _owner(each, ended_ns)
        if owner == taker:
            effect.unmoved.append(longest_gap_ms(each, began_ns, ended_ns))
            effect.undisturbed.append(longest_gap_ms(each, before_ns, began_ns))
        else:
            last = max(one.at_ns for one in each if one.member == owner and one.at_ns <= ended_ns)
            first = min(one.at_ns for one in each if one.member == taker and one.at_ns > began_ns)
            effect.moved.append((first - last) / 1e6)
    return effect


def _owner(deliveries: Sequence[MemberDelivery], at_ns: int) -> str:
    place = bisect_right(deliveries, (at_ns, "\U0010ffff"))
    return deliveries[max(0, place - 1)].member
