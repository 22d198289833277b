"""The assignors: they compute target assignments from the members' subscriptions and their present assignments.

**uniform**: equal shares with as few moves as possible. Members keep what they have. Unassigned partitions are dealt to
the members with the fewest, to a member in one of the partition's racks if that leaves the shares equal. Then members
with the most partitions give to those with the fewest until no transfer makes two shares more equal.

This is the least movement if all members subscribe alike: a partition is taken only from a member that has more than
the largest fair share, or that has one more than some while others have two less. With different subscriptions, equally
subscribed members end within one of each other. Otherwise one of the two could still give to the other.

**range**: each topic's partitions are split into as many ranges as the topic has readers (Kafka's RangeAssignor).
Readers have the same rank in every topic. So members with equal subscriptions get the same numbers of topics with
equally many partitions, which joining records by key needs. Static members come first, ordered by their names, so that
a restart changes no member's rank. Present assignments do not matter: the partitions and the readers alone decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from quorumlog.server.groups.group import SubscribedTopic
from quorumlog.server.groups.member import PartitionId

#: The members that may read a topic, as the classes of equal subscriptions that they belong to.
Audience = tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Reader:
    """A member as assignors see it."""

    member_id: str
    instance_id: str
    rack: str
    topics: frozenset[bytes]


@dataclass(slots=True, frozen=True)
class AssignmentInput:
    """A consumer group whose partitions must be assigned to its members.

    Arguments:
        readers: in the order of their ids.
        topics: those with at least one subscriber.
        present: the present target, by member.
        holders: the member that has a partition, or has not released it.
        racks: the racks of a partition's replicas, where they are known and matter.
    """

    readers: Sequence[Reader]
    topics: Mapping[bytes, SubscribedTopic]
    present: Mapping[str, frozenset[PartitionId]]
    holders: Mapping[PartitionId, str]
    racks: Mapping[PartitionId, frozenset[str]]


def assign_uniformly(problem: AssignmentInput) -> dict[str, set[PartitionId]]:
    """Returns the partitions of each member: equal shares, with as few moves as possible."""
    assignment = _Assignment(problem)
    assignment.deal()
    while assignment.balance():
        pass
    return assignment.shares()


def assign_ranges(problem: AssignmentInput) -> dict[str, set[PartitionId]]:
    """Returns the partitions of each member: one range of each topic."""
    assigned: dict[str, set[PartitionId]] = {reader.member_id: set() for reader in problem.readers}
    in_order = sorted(
        problem.readers, key=lambda reader: (not reader.instance_id, reader.instance_id, reader.member_id)
    )
    for topic_id, topic in problem.topics.items():
        readers = [reader for reader in in_order if topic_id in reader.topics]
        if not readers:
            continue
        share, longer = divmod(topic.partitions, len(readers))
        first = 0
        for place, reader in enumerate(readers):
            beyond = first + share + (place < longer)
            assigned[reader.member_id].update((topic_id, number) for number in range(first, beyond))
            first = beyond
    return assigned


#: Assignor of a consumer group whose members request none.
DEFAULT_ASSIGNOR = "uniform"
#: Assignors by the names that members use: each returns the partitions of each member.
ASSIGNORS: Mapping[str, Callable[[AssignmentInput], dict[str, set[PartitionId]]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


class _Assignment:
    """An assignment under construction. ``_hands`` are members' partitions by audience; the last of each is given away
    first."""

    def __init__(self, problem: AssignmentInput) -> None:
        self._problem = problem
        self._readers = problem.readers
        self._places = {reader.member_id: place for place, reader in enumerate(problem.readers)}
        self._racks = [reader.rack for reader in problem.readers]
        classes: dict[frozenset[bytes], int] = {}
        self._class_of = [classes.setdefault(reader.topics, len(classes)) for reader in problem.readers]
        self._audiences: dict[bytes, Audience] = {
            topic_id: tuple(number for topics, number in classes.items() if topic_id in topics)
            for topic_id in problem.topics
        }
        self._hands: list[dict[Audience, list[PartitionId]]] = [{} for _ in problem.readers]
        self._loads = [0] * len(problem.readers)
        self._pools: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._keep()
        for place in range(len(problem.readers)):
            self._announce(place)

    def shares(self) -> dict[str, set[PartitionId]]:
        """Returns the partitions of each member."""
        return {
            reader.member_id: {partition for hand in self._hands[place].values() for partition in hand}
            for place, reader in enumerate(self._readers)
        }

    def _keep(self) -> None:
        for place, reader in enumerate(self._readers):
            kept = sorted(self._problem.present.get(reader.member_id, ()), key=lambda row: (row[1], row[0]))
            for partition in kept:
                topic = self._problem.topics.get(partition[0])
                if topic is not None and topic.topic_id in reader.topics and partition[1] < topic.partitions:
                    self._hands[place].setdefault(self._audiences[topic.topic_id], []).append(partition)
                    self._loads[place] += 1

    # -- least loaded members -----------------------------------------------------------------------------------------

    def _announce(self, place: int) -> None:
        """Enters a member into the pools that `_least` searches. Its earlier entries become stale and are skipped."""
        entry = (self._loads[place], place)
        number, rack = self._class_of[place], self._racks[place]
        heappush(self._pools.setdefault((number, ""), []), entry)
        if rack:
            heappush(self._pools.setdefault((number, rack), []), entry)

    def _least(self, audience: Audience, rack: str = "") -> int | None:
        """Returns the member with the fewest partitions in an audience, and in a rack if one is given; None if there is
        none."""
        best: tuple[int, int] | None = None
        for number in audience:
            pool = self._pools.get((number, rack), [])
            while pool and self._loads[pool[0][1]] != pool[0][0]:
                heappop(pool)
            if pool and (best is None or pool[0] < best):
                best = pool[0]
        return best[1] if best is not None else None

    # -- dealing ------------------------------------------------------------------------------------------------------

    def deal(self) -> None:
        """Assigns the unassigned partitions: first to their holder or to a member in their racks, up to its fair
        share."""
        fair = self._fair_shares()
        rest = []
        for partition in self._unassigned():
            audience = self._audiences[partition[0]]
            place = self._favoured(partition, audience, fair.get(audience, 0))
            if place is None:
                rest.append(partition)
            else:
                self._give(place, audience, partition)
        for partition in rest:
            audience = self._audiences[partition[0]]
            place = self._least(audience)
            if place is not None:
                self._give(place, audience, partition)

    def _unassigned(self) -> list[PartitionId]:
        taken = {partition for hands in self._hands for hand in hands.values() for partition in hand}
        everything = ((topic.topic_id, number) for topic in self._problem.topics.values()
                      for number in range(topic.partitions))  # fmt: skip
        return [partition for partition in everything if partition not in taken]

    def _fair_shares(self) -> dict[Audience, int]:
        """Returns the minimum number of partitions for each member of an audience, as if it read no other topics."""
        partitions: Counter[Audience] = Counter()
        for topic_id, topic in self._problem.topics.items():
            partitions[self._audiences[topic_id]] += topic.partitions
        sizes = Counter(self._class_of)
        return {
            audience: count // max(1, sum(sizes[number] for number in audience))
            for audience, count in partitions.items()
        }

    def _favoured(self, partition: PartitionId, audience: Audience, fair_share: int) -> int | None:
        holder = self._places.get(self._problem.holders.get(partition, ""))
        if holder is not None and self._class_of[holder] in audience and self._loads[holder] < fair_share:
            return holder
        near = (self._least(audience, rack) for rack in sorted(self._problem.racks.get(partition, ())))
        places = [place for place in near if place is not None and self._loads[place] < fair_share]
        return min(places, key=lambda place: (self._loads[place], place), default=None)

    def _give(self, place: int, audience: Audience, partition: PartitionId) -> None:
        self._hands[place].setdefault(audience, []).append(partition)
        self._loads[place] += 1
        self._announce(place)

    # -- balancing ----------------------------------------------------------------------------------------------------

    def balance(self) -> bool:
        """Lets the members with the most partitions give some away, from the largest share down; returns True if any
        gave.

        It starts with the largest share: otherwise a member with less would give what one with more has to give anyway.
        """
        by_load: dict[int, list[int]] = {}
        for place, load in enumerate(self._loads):
            by_load.setdefault(load, []).append(place)
        moved = False
        for load in range(max(by_load, default=0), 1, -1):
            for place in by_load.get(load, ()):
                if self._give_away(place):
                    by_load.setdefault(load - 1, []).append(place)
                    moved = True
        return moved

    def _give_away(self, place: int) -> bool:
        load = self._loads[place]
        for audience, hand in self._hands[place].items():
            least = self._least(audience) if hand else None
            if least is not None and self._loads[least] <= load - 2:
                self._loads[place] -= 1
                self._announce(place)
                self._give(least, audience, hand.pop())
                return True
        return False
