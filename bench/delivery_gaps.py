"""Times in which partitions were not read around a change of a group's members, by the records that members
received.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from quorumlog.chaos.processes.member_log import Event, MemberEvent


class MemberDelivery(NamedTuple):
    """A poll that returned records of a partition."""

    at_ns: int
    member: str


#: Deliveries of each partition, in time order.
Deliveries = Mapping[int, Sequence[MemberDelivery]]


def deliveries_of(members: Iterable[tuple[str, Iterable[MemberEvent]]]) -> dict[int, list[MemberDelivery]]:
    """Returns the deliveries to members, from their logs."""
    found: dict[int, list[MemberDelivery]] = defaultdict(list)
    for name, events in members:
        for event in events:
            if event.event is Event.WORKED:
                found[event.partition].append(MemberDelivery(event.given_ns, name))
    return {partition: sorted(deliveries) for partition, deliveries in sorted(found.items())}


def longest_gap_ms(deliveries: Sequence[MemberDelivery], first_ns: int, last_ns: int) -> float:
    """Returns the longest time between two deliveries of a partition, among those whose gap overlaps [first, last]."""
    gaps = [b.at_ns - a.at_ns for a, b in pairwise(deliveries) if b.at_ns > first_ns and a.at_ns < last_ns]
    return max(gaps, default=last_ns - first_ns) / 1e6


@dataclass(slots=True)
class Effect:
    """The effect of a change on the delivery, in milliseconds, one entry per partition.

    Arguments:
        unmoved: longest gaps of the partitions that kept their owner.
        undisturbed: longest gaps of the same partitions in a period of equal length without a change.
        moved: for the others, from the old owner's last record to the new owner's first.
    """

    unmoved: list[float] = field(default_factory=list)
    undisturbed: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)

    def add(self, other: Effect) -> None:
        """Adds the gaps of another change of the same kind."""
        self.unmoved += other.unmoved
        self.undisturbed += other.undisturbed
        self.moved += other.moved


def effect_of(deliveries: Deliveries, before_ns: int, began_ns: int, ended_ns: int) -> Effect:
    """Returns the effect of a change with its start and end.

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
