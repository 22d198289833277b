"""The assignors: who is to read which partition, from what members may read and what each is to have at present.

**uniform**: as many partitions for each as for the others, moving as few as possible. Members keep what they have. What
nobody has is dealt to those with the least, to a member in one of its racks where that leaves the shares equal. Then
those with the most give to those with the least until no gift makes two shares more equal.

That is least movement where all subscribe alike: a partition is taken only from a member that has more than anybody may
keep, or that has one more than some while others have two less. Where subscriptions differ, equally subscribed members
end within one of each other. Otherwise one of the two could still give to the other.

**range**: each topic's partitions in as many stretches as it has readers (Kafka's RangeAssignor). Readers have the same
place in every topic. So members with equal subscriptions get the same numbers of topics with equally many partitions,
which is what joining records by key needs. Static members come first, by their names, so that a restart changes
nobody's place. It does not look at who has what: the partitions and the readers alone decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from quorumlog.server.groups.group import SubscribedTopic
from quorumlog.server.groups.member import PartitionId

#: Which members may read a topic: the classes of equal subscriptions among which they are.
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
    """A consumer group whose partitions are to be given to its members.

    Arguments:
        readers: in the order of their ids.
        topics: those that somebody subscribes to.
        present: the target as it is, by member.
        holders: who has a partition, or has not released it.
        racks: in which racks a partition has replicas, where that is known and matters.
    """

    readers: Sequence[Reader]
    topics: Mapping[bytes, SubscribedTopic]
    present: Mapping[str, frozenset[PartitionId]]
    holders: Mapping[PartitionId, str]
    racks: Mapping[PartitionId, frozenset[str]]


def assign_uniformly(problem: AssignmentInput) -> dict[str, set[PartitionId]]:
    """The partitions of each member: equal shares, with as few moves as possible."""
    assignment = _Assignment(problem)
    assignment.deal()
    while assignment.balance():
        pass
    return assignment.shares()


def assign_ranges(problem: AssignmentInput) -> dict[str, set[PartitionId]]:
    """The partitions of each member: a stretch of each topic."""
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


#: What a consumer group uses unless its members ask for another.
DEFAULT_ASSIGNOR = "uniform"
#: By the names under which members ask for them: each gives the partitions of each member.
ASSIGNORS: Mapping[str, Callable[[AssignmentInput], dict[str, set[PartitionId]]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


class _Assignment:
    """An assignment on its way. ``_hands`` are members' partitions by audience, those to be given away first last."""

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
        """The partitions of each member."""
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

    # -- those with the least -----------------------------------------------------------------------------------------

    def _announce(self, place: int) -> None:
        """Puts a member where those with the least are looked for. What it said before is out of date by that."""
        entry = (self._loads[place], place)
        number, rack = self._class_of[place], self._racks[place]
        heappush(self._pools.setdefault((number, ""), []), entry)
        if rack:
            heappush(self._pools.setdefault((number, rack), []), entry)

    def _least(self, audience: Audience, rack: str = "") -> int | None:
        """The member with the least in an audience, and in a rack where one is said."""
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
        """Gives away what nobody has: first to those who hold it or are near it, while their share allows."""
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
        """How many partitions each member of an audience gets at least, were it alone."""
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
        """Lets those with the most give, from the largest share down; returns whether anybody gave.

        From the top: a member with less would otherwise give what one with more has to give anyway.
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
