"""The controller refuses an impossible metadata quorum, and gives the reason in one line."""

from __future__ import annotations

import pytest
from test_controller import Cluster

from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def alter(cluster: Cluster, add: tuple[int, ...] = (), remove: tuple[int, ...] = ()) -> admin_pb2.AlterQuorumResponse:
    response = cluster.ask(alter_quorum=admin_pb2.AlterQuorumRequest(add=add, remove=remove))
    if response.HasField("error"):
        return admin_pb2.AlterQuorumResponse(error=response.error)
    return response.alter_quorum


@pytest.mark.parametrize(
    ("add", "remove", "why"),
    [
        ((), (), "no node is named"),
        ((4,), (4,), "node 4 cannot be added and removed at once"),
        ((9,), (), "node 9 is not registered; the nodes are 1, 2, 3, 4, 5"),
        ((), (5,), "node 5 is not a voter of the metadata quorum; the voters are 1, 2, 3"),
        ((), (1, 2, 3), "no voter would be left"),
    ],
)
def test_what_cannot_be_is_refused(add: tuple[int, ...], remove: tuple[int, ...], why: str) -> None:
    answer = alter(Cluster(nodes=5), add, remove)
    assert answer.error.code == ErrorCode.INVALID_REQUEST
    assert why in answer.error.message


def test_no_more_voters_than_a_quorum_can_bear() -> None:
    answer = alter(Cluster(nodes=12), tuple(range(4, 13)))
    assert "12 voters in the metadata quorum: at most 9 are allowed" in answer.error.message


def test_voters_of_which_no_majority_is_up_are_refused() -> None:
    cluster = Cluster(nodes=5)
    cluster.run_until(cluster.now + 4_000_000, beating=(1, 4, 5))
    assert cluster.fenced() == [2, 3]
    assert "of the voters 1, 2, 3, 4 only 2 would be up, which is not a majority" in alter(cluster, (4,)).error.message
    assert list(alter(cluster, (4,), (3,)).voters) == [1, 2, 4]


def test_a_node_that_is_down_is_not_added() -> None:
    cluster = Cluster(nodes=4)
    cluster.run_until(cluster.now + 4_000_000, beating=(1, 2, 3))
    assert "node 4 is down and could not copy the metadata" in alter(cluster, (4,)).error.message


def test_the_same_wish_again_changes_nothing() -> None:
    cluster = Cluster(nodes=4)
    assert list(alter(cluster, (4,), (1,)).voters) == [2, 3, 4]
    index = cluster.image.applied_index
    assert list(alter(cluster, (4,)).voters) == [2, 3, 4]
    assert cluster.image.applied_index == index


def test_a_wish_that_is_based_on_an_older_one_is_refused_when_it_is_applied() -> None:
    cluster = Cluster(nodes=5)
    first = cluster.decide(alter_quorum=admin_pb2.AlterQuorumRequest(add=(4,)))
    second = cluster.decide(alter_quorum=admin_pb2.AlterQuorumRequest(add=(5,)))
    assert list(cluster.commit(first).alter_quorum.voters) == [1, 2, 3, 4]
    assert cluster.commit(second).alter_quorum.error.code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image.quorum.voters == (1, 2, 3, 4)


def test_a_check_only_changes_nothing() -> None:
    cluster = Cluster(nodes=4)
    response = cluster.ask(alter_quorum=admin_pb2.AlterQuorumRequest(add=(4,), validate_only=True))
    assert list(response.alter_quorum.voters) == [1, 2, 3, 4]
    assert cluster.image.quorum.voters == ()


def test_the_wish_survives_a_snapshot() -> None:
    cluster = Cluster(nodes=4)
    alter(cluster, (4,), (1,))
    restored = type(cluster.image).from_snapshot(cluster.image.to_snapshot())
    assert (restored.quorum.voters, restored.quorum.wishes) == ((2, 3, 4), 1)
