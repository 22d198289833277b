"""Assignors: equal shares, least movement, ranges, racks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import combinations

import pytest
from group_samples import GROUP, Client, Coordinator, Topics, partitions, request, topic_id, until_stable
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.server.groups.assignors import AssignmentInput, Reader, assign_ranges, assign_uniformly
from quorumlog.server.groups.group import SubscribedTopic
from quorumlog.server.groups.member import PartitionId
from quorumlog.server.groups.member_changes import expire_session

Assignment = dict[str, set[PartitionId]]


def problem(
    readers: Mapping[str, Iterable[str]],
    counts: Mapping[str, int],
    present: Mapping[str, Iterable[PartitionId]] | None = None,
    *,
    instances: Mapping[str, str] | None = None,
    racks: Mapping[str, str] | None = None,
    replica_racks: Mapping[PartitionId, frozenset[str]] | None = None,
    holders: Mapping[PartitionId, str] | None = None,
) -> AssignmentInput:
    return AssignmentInput(
        [
            Reader(name, (instances or {}).get(name, ""), (racks or {}).get(name, ""), frozenset(map(topic_id, names)))
            for name, names in sorted(readers.items())
        ],
        {topic_id(name): SubscribedTopic(topic_id(name), name, count, count) for name, count in counts.items()},
        {name: frozenset(row) for name, row in (present or {}).items()},
        holders or {},
        replica_racks or {},
    )


def fewest_moves(before: Mapping[str, set[PartitionId]], members: Iterable[str], partition_count: int) -> int:
    """Returns the least number of partitions that surviving members must give up for shares that differ by at most one.

    Tries every choice of the members that have one more than the others.
    """
    members = sorted(members)
    share, more = divmod(partition_count, len(members))
    loads = {name: len(before.get(name, ())) for name in members}
    return min(
        sum(max(0, loads[name] - share - (name in longer)) for name in members)
        for longer in combinations(members, more)
    )


def moves(before: Mapping[str, set[PartitionId]], after: Mapping[str, set[PartitionId]]) -> int:
    """Returns the number of partitions that surviving members have lost."""
    return sum(len(before[name] - after[name]) for name in before if name in after)


def assert_balanced(assignment: Mapping[str, set[PartitionId]], partition_count: int) -> None:
    loads = [len(row) for row in assignment.values()]
    assert sum(loads) == partition_count
    assert len(set().union(*assignment.values())) == partition_count
    assert max(loads) - min(loads) <= 1


# -- uniform, through the whole protocol ------------------------------------------------------------------------------


def owned(clients: Iterable[Client]) -> Assignment:
    return {client.member_id: set(client.owned) for client in clients}


@pytest.mark.parametrize("partition_count", range(1, 9))
def test_joins_leaves_and_crashes_move_no_more_than_they_must(partition_count: int) -> None:
    """Up to eight members come, then all but one go again, in turn by leaving and by crashing."""
    coordinator = Coordinator(Topics(t=partition_count))
    rng = random.Random(partition_count)
    clients: list[Client] = []
    for number in range(8):
        before = owned(clients)
        clients.append(Client(coordinator, f"m{number}"))
        until_stable(clients)
        after = owned(clients)
        assert_balanced(after, partition_count)
        assert moves(before, after) == fewest_moves(before, after, partition_count)
    while len(clients) > 1:
        gone = clients.pop(rng.randrange(len(clients)))
        before = owned(clients)
        if len(clients) % 2:
            gone.leave()
        else:
            coordinator.decide(lambda draft, name=gone.member_id: expire_session(draft, GROUP, name))
        until_stable(clients)
        after = owned(clients)
        assert_balanced(after, partition_count)
        assert moves(before, after) == 0 == fewest_moves(before, after, partition_count)


@pytest.mark.parametrize("partition_count", range(1, 9))
@pytest.mark.parametrize("member_count", range(1, 9))
def test_one_comes_and_one_goes_at_once(partition_count: int, member_count: int) -> None:
    coordinator = Coordinator(Topics(t=partition_count))
    clients = [Client(coordinator, f"m{number}") for number in range(member_count)]
    until_stable(clients)
    for gone in list(clients):
        clients.remove(gone)
        clients.append(Client(coordinator, f"after-{gone.member_id}"))
        before = owned(clients)
        coordinator.heartbeats(clients[-1].request(), request(gone.member_id, -1))
        until_stable(clients)
        after = owned(clients)
        assert_balanced(after, partition_count)
        assert moves(before, after) == fewest_moves(before, after, partition_count)


# -- uniform assignor alone -------------------------------------------------------------------------------------------

NAMES = "abcdefgh"


@st.composite
def alike(draw: st.DrawFn) -> tuple[AssignmentInput, int]:
    """Members with the same subscription, and a present target of any shape."""
    members = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    counts = {"t": draw(st.integers(0, 12)), "u": draw(st.integers(0, 12))}
    everything = [(topic_id(name), number) for name, count in counts.items() for number in range(count)]
    owners = draw(st.lists(st.sampled_from([*members, "gone"]), min_size=len(everything), max_size=len(everything)))
    present: dict[str, set[PartitionId]] = {name: set() for name in members}
    for partition, owner in zip(everything, owners, strict=True):
        present.setdefault(owner, set()).add(partition)
    present.pop("gone", None)
    return problem(dict.fromkeys(members, ("t", "u")), counts, present), len(everything)


@given(alike())
@settings(max_examples=200, deadline=None)
def test_equal_subscriptions_get_equal_shares_by_least_movement(case: tuple[AssignmentInput, int]) -> None:
    requests, partition_count = case
    before = {name: set(row) for name, row in requests.present.items()}
    after = assign_uniformly(requests)
    assert_balanced(after, partition_count)
    assert moves(before, after) == fewest_moves(before, after, partition_count)


@given(
    subscriptions=st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from("tuv")), min_size=1),
    counts=st.fixed_dictionaries({name: st.integers(0, 9) for name in "tuv"}),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=200, deadline=None)
def test_equally_subscribed_members_are_within_one_whatever_others_read(
    subscriptions: dict[str, set[str]], counts: dict[str, int], seed: int
) -> None:
    rng = random.Random(seed)
    present: dict[str, set[PartitionId]] = {name: set() for name in subscriptions}
    for name, count in counts.items():
        for number in range(count):
            present[rng.choice(sorted(subscriptions))].add((topic_id(name), number))
    after = assign_uniformly(problem(subscriptions, counts, present))
    for one, other in combinations(after, 2):
        assert after[one].isdisjoint(after[other])
        if subscriptions[one] == subscriptions[other]:
            assert abs(len(after[one]) - len(after[other])) <= 1
    for name, row in after.items():
        assert {topic for topic, _ in row} <= set(map(topic_id, subscriptions[name]))
    read = set().union(*subscriptions.values())
    assert sum(map(len, after.values())) == sum(counts[name] for name in read)


def test_topics_are_spread_over_the_members() -> None:
    after = assign_uniformly(
        problem({"a": "tu", "b": "tu"}, {"t": 2, "u": 2}, {"a": partitions("t", 0, 1) | partitions("u", 0, 1)})
    )
    assert after == {"a": partitions("t", 0) | partitions("u", 0), "b": partitions("t", 1) | partitions("u", 1)}


def test_what_somebody_still_holds_is_dealt_to_it() -> None:
    request = problem({"a": "t", "b": "t"}, {"t": 4}, holders=dict.fromkeys(partitions("t", 2, 3), "a"))
    assert assign_uniformly(request) == {"a": partitions("t", 2, 3), "b": partitions("t", 0, 1)}


def test_partitions_go_to_racks_that_have_them() -> None:
    replica_racks = {(topic_id("t"), number): frozenset("x" if number < 3 else "y") for number in range(6)}
    readers, racks = {"a": "t", "b": "t", "c": "t"}, {"a": "y", "b": "x", "c": "z"}
    after = assign_uniformly(problem(readers, {"t": 6}, racks=racks, replica_racks=replica_racks))
    assert after["a"] == partitions("t", 3, 4)
    assert after["b"] == partitions("t", 0, 1)
    assert_balanced(after, 6)


def test_nothing_moves_for_a_rack() -> None:
    replica_racks = {(topic_id("t"), 0): frozenset("x"), (topic_id("t"), 1): frozenset("y")}
    present = {"a": partitions("t", 0), "b": partitions("t", 1)}
    racks = {"a": "y", "b": "x"}
    request = problem({"a": "t", "b": "t"}, {"t": 2}, present, racks=racks, replica_racks=replica_racks)
    assert assign_uniformly(request) == present


# -- range ------------------------------------------------------------------------------------------------------------


def test_range_gives_stretches_and_the_same_ones_in_each_topic() -> None:
    after = assign_ranges(problem(dict.fromkeys("abc", "tu"), {"t": 7, "u": 7}))
    assert after["a"] == partitions("t", 0, 1, 2) | partitions("u", 0, 1, 2)
    assert after["b"] == partitions("t", 3, 4) | partitions("u", 3, 4)
    assert after["c"] == partitions("t", 5, 6) | partitions("u", 5, 6)


def test_range_counts_only_readers_of_the_topic() -> None:
    after = assign_ranges(problem({"a": "t", "b": "tu", "c": "u"}, {"t": 2, "u": 4, "v": 1}))
    assert after == {
        "a": partitions("t", 0),
        "b": partitions("t", 1) | partitions("u", 0, 1),
        "c": partitions("u", 2, 3),
    }


def test_range_keeps_static_members_in_their_places() -> None:
    one = assign_ranges(problem({"x": "t", "y": "t"}, {"t": 2}, instances={"x": "two", "y": "one"}))
    other = assign_ranges(problem({"a": "t", "z": "t"}, {"t": 2}, instances={"a": "two", "z": "one"}))
    assert (one["y"], one["x"]) == (other["z"], other["a"]) == (partitions("t", 0), partitions("t", 1))


# -- which one --------------------------------------------------------------------------------------------------------


def test_most_members_choose_the_assignor() -> None:
    coordinator = Coordinator(Topics(t=4))
    a = Client(coordinator, "a")
    until_stable([a])
    assert coordinator.group.header.assignor == "uniform"
    b = Client(coordinator, "b", assignor="range")
    until_stable([a, b])
    assert coordinator.group.header.assignor == "range"
    assert a.owned == partitions("t", 0, 1)
    c = Client(coordinator, "c", assignor="uniform")
    until_stable([a, b, c])
    assert coordinator.group.header.assignor == "range", "the present one stays among equals"
    a.wishes = {"assignor": "uniform"}
    until_stable([a, b, c])
    assert coordinator.group.header.assignor == "uniform"
    assert coordinator.group.group_epoch == 4
