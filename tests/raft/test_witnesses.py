"""Witnesses: who may be one, when they are sent what, and what they are not.

Their stories are transcripts, 23a to 23i.
"""

from __future__ import annotations

import pytest
from raft_cluster import Cluster

from quorumlog.raft.engagement import Engagement
from quorumlog.raft.progress import Inflights, Progress, ProgressState
from quorumlog.raft.types import ORIGIN, AppendRequest, AppendResponse, Configuration, EntryKind


def test_what_a_witness_has_is_no_copy() -> None:
    cluster = Cluster((1, 2, 3), witnesses=(3,))
    cluster.elect(1)
    cluster.propose(1, b"a")
    core = cluster.core(1)
    cluster.drain(1)
    cluster.persist(1)
    core.peer_lost(0, 2)
    core.step(0, AppendResponse(3, 1, 1, 2))
    assert core.commit_index == 2
    assert [core.match_of(n) for n in (1, 2, 3)] == [2, 1, 0]


def test_neither_a_witness_nor_a_replica_keeps_what_is_meant_for_the_other() -> None:
    cluster = Cluster((1, 2, 3), witnesses=(3,))
    whole = cluster.sealer.entry(EntryKind.COMMAND, 1, 1, 0, b"a")
    trace = cluster.sealer.trace(whole, 0)
    for node_id, entry in ((3, whole), (2, trace)):
        core = cluster.core(node_id)
        core.step(0, AppendRequest(1, node_id, 1, 0, 0, 0, [entry]))
        assert core.last_id == ORIGIN
        assert core.leader_id == 1


@pytest.mark.parametrize(
    ("members", "witnesses"),
    [
        (((1, 2, 3), (), ()), (2, 3)),
        (((1, 2, 3), (), ()), (4,)),
        (((1, 2, 3), (), ()), (3, 3)),
        (((1, 2, 3), (), (3,)), (3,)),
        (((1,), (), ()), (1,)),
    ],
)
def test_witnesses_are_members_and_fewer_than_a_quorum_of_each_half(
    members: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], witnesses: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="witnesses"):
        Configuration(*members, witnesses)


def follower(match: int, *, last_contact: int = 0, state: ProgressState = ProgressState.REPLICATE) -> Progress:
    progress = Progress(match + 1, last_contact, Inflights(1, 1))
    progress.match_index = match
    progress.state = state
    return progress


def test_a_slow_data_replica_engages_no_witness() -> None:
    engagement = Engagement(silence_us=300, committed=5)
    engagement.review(299, 100, [follower(5)])
    assert not engagement.engaged


@pytest.mark.parametrize(
    "gone",
    [
        follower(5, last_contact=-300),
        follower(4),
        follower(5, state=ProgressState.SNAPSHOT),
    ],
    ids=["silent", "lacks what is committed", "takes a snapshot"],
)
def test_a_data_replica_that_is_gone_engages_the_witness(gone: Progress) -> None:
    engagement = Engagement(silence_us=300, committed=5)
    engagement.review(0, 5, [follower(5), gone])
    assert engagement.engaged


def test_a_lost_connection_engages_the_witness_until_the_replica_has_caught_up_quickly() -> None:
    engagement = Engagement(silence_us=300, committed=0)
    other = follower(0)
    other.lost = True
    engagement.review(0, 10, [other])
    assert engagement.engaged
    other.heard(1_000)
    other.match_index = 10
    engagement.review(1_000, 50, [other])
    assert engagement.engaged, "it took longer than the silence that is allowed"
    other.match_index = 49
    engagement.review(1_200, 60, [other])
    assert engagement.engaged
    other.match_index = 50
    engagement.review(1_250, 60, [other])
    assert not engagement.engaged
