"""A node that has moved its damaged storage aside rejoins automatically, as its own replacement."""

from __future__ import annotations

import pytest
from test_lost_disks import Losing

from quorumlog.server.metadata.records import METADATA_GROUP


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_node_that_moved_its_storage_aside_gets_all_back_without_a_hand(lost: int) -> None:
    losing = Losing(11)
    former = losing.cluster.identity(lost).directory_id
    losing.cluster.wipe(lost, moved_aside=True)
    losing.until(losing.is_whole, 40)
    assert losing.cluster.identity(lost).directory_id != former
    image = losing.cluster.processes[lost].image
    assert image is not None
    assert image.lost_disks.is_given_up(lost, former), "no node accepts its messages any longer"
    before = losing.wrote()
    losing.run(1)
    assert losing.wrote() > before


def test_a_node_that_lost_another_directory_than_it_moved_aside_waits_for_a_word() -> None:
    """A node waits for the operator if the cluster identifies it by another directory, which may be sound elsewhere."""
    losing = Losing(12)
    process = losing.cluster.processes[2]
    process.disk.aside.add("another")
    losing.cluster.wipe(2)
    losing.run(20)
    assert losing.cluster.identity(2).cluster_id == ""
    assert process.node is not None
    assert "quorumlog nodes replace 2 --with 2" in process.node.not_ready()


def test_the_second_of_three_that_moved_its_storage_aside_waits_until_the_first_is_whole_again() -> None:
    losing = Losing(13)
    losing.cluster.wipe(3, moved_aside=True)
    losing.until(lambda: not losing.is_whole(), 5)
    losing.until(losing.is_whole, 40)
    losing.cluster.wipe(2, moved_aside=True)
    losing.until(losing.is_whole, 40)
    assert losing.wrote() > 100


def test_all_that_moved_their_storage_aside_found_no_new_cluster() -> None:
    """It would look like the old one, without a record of it."""
    losing = Losing(14)
    for node in (1, 2, 3):
        losing.cluster.wipe(node, moved_aside=True)
    losing.run(20)
    for node in (1, 2, 3):
        process = losing.cluster.processes[node]
        assert losing.cluster.identity(node).cluster_id == ""
        assert METADATA_GROUP not in process.replicas
        assert process.node is not None
        assert "has moved its damaged storage aside and founds no cluster" in process.node.not_ready()
