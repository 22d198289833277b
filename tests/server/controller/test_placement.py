"""Replicas and leaders are spread evenly over nodes and racks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.server.controller.placement import Candidate, place

LOADS = st.integers(0, 50)


@st.composite
def flat_cluster(draw: st.DrawFn) -> tuple[int, int, list[Candidate]]:
    """Partitions, replication factor, and nodes without racks that carry some load."""
    nodes = draw(st.integers(1, 9))
    candidates = [Candidate(node, "", draw(LOADS), draw(LOADS)) for node in range(1, nodes + 1)]
    return draw(st.integers(1, 40)), draw(st.integers(1, nodes)), candidates


@st.composite
def racked_cluster(draw: st.DrawFn, *, even: bool) -> tuple[int, int, list[Candidate]]:
    """Partitions, replication factor of at most the number of racks, and nodes in racks."""
    racks = draw(st.integers(1, 5))
    size = draw(st.integers(1, 4))
    candidates = []
    for rack in range(racks):
        for _ in range(size if even else draw(st.integers(1, 4))):
            candidates.append(Candidate(len(candidates) + 1, f"rack-{rack}", draw(LOADS), draw(LOADS)))
    return draw(st.integers(1, 40)), draw(st.integers(1, racks)), candidates


def spread(counts: Counter[int], candidates: list[Candidate]) -> int:
    """Returns the difference between the counts of the fullest and the emptiest candidate."""
    values = [counts[candidate.node_id] for candidate in candidates]
    return max(values) - min(values)


@given(flat_cluster())
@settings(max_examples=200, deadline=None)
def test_replicas_are_on_distinct_nodes_and_even(cluster: tuple[int, int, list[Candidate]]) -> None:
    partitions, factor, candidates = cluster
    placed = place(partitions, factor, candidates)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert spread(Counter(node for replicas in placed for node in replicas), candidates) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), candidates) <= 1


@given(racked_cluster(even=True))
@settings(max_examples=150, deadline=None)
def test_racks_of_one_size_are_distinct_and_nodes_still_even(cluster: tuple[int, int, list[Candidate]]) -> None:
    partitions, factor, candidates = cluster
    rack_of = {candidate.node_id: candidate.rack for candidate in candidates}
    placed = place(partitions, factor, candidates)
    assert all(len({rack_of[node] for node in replicas}) == factor for replicas in placed)
    assert spread(Counter(node for replicas in placed for node in replicas), candidates) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), candidates) <= 1


@given(racked_cluster(even=False))
@settings(max_examples=100, deadline=None)
def test_racks_of_any_size_are_distinct(cluster: tuple[int, int, list[Candidate]]) -> None:
    partitions, factor, candidates = cluster
    rack_of = {candidate.node_id: candidate.rack for candidate in candidates}
    for replicas in place(partitions, factor, candidates):
        assert len({rack_of[node] for node in replicas}) == factor


def test_with_fewer_racks_than_replicas_no_rack_holds_more_than_it_must() -> None:
    candidates = [Candidate(node, f"rack-{node % 2}") for node in range(6)]
    for replicas in place(12, 3, candidates):
        assert sorted(Counter(node % 2 for node in replicas).values()) == [1, 2]


def test_a_small_topic_goes_to_the_nodes_that_have_least() -> None:
    loaded = [Candidate(1, "", 9, 5), Candidate(2, "", 1, 0), Candidate(3, "", 9, 2), Candidate(4, "", 0, 0)]
    assert place(1, 1, loaded) == [(4,)]
    assert place(2, 1, loaded) == [(4,), (2,)]


def test_when_a_node_is_gone_its_leaderships_spread_over_the_others() -> None:
    placed = place(12, 3, [Candidate(node) for node in (1, 2, 3)])
    for gone in (1, 2, 3):
        heirs = Counter(replicas[1] for replicas in placed if replicas[0] == gone)
        assert sorted(heirs.values()) == [2, 2], f"of node {gone}: {heirs}"


def test_topics_of_one_partition_rotate_their_leaders() -> None:
    leaders: Counter[int] = Counter()
    for _ in range(9):
        candidates = [Candidate(node, "", sum(leaders.values()), leaders[node]) for node in (1, 2, 3)]
        leaders[place(1, 3, candidates)[0][0]] += 1
    assert set(leaders.values()) == {3}


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="4 replicas do not fit on 3 nodes"):
        place(1, 4, [Candidate(1), Candidate(2), Candidate(3)])


def test_nodes_without_a_rack_are_racks_of_their_own_beside_nodes_with_one() -> None:
    candidates = [Candidate(1), Candidate(2), Candidate(3, "a"), Candidate(4, "a")]
    for replicas in place(8, 3, candidates):
        assert {1, 2} < set(replicas), "two replicas share rack a while a node without a rack has none"
