"""Moves of partitions with a witness: its new place, and moves that are refused."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.moves import PartitionMoves
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.server.metadata.replica_index import ReplicaIndex
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

GROUP = 1000


class Moves:
    """The moves of one partition, on nodes 1 and 2 with its witness on node 3."""

    def __init__(self, replicas: tuple[int, ...] = (1, 2), witness: int = 3) -> None:
        topic = Topic("orders", b"x" * 16, {})
        self.partition = PartitionRecord(
            topic, 0, GROUP, replicas, replicas, leader=1, leader_epoch=5, partition_epoch=1, witness=witness
        )
        index = ReplicaIndex()
        index.enter(self.partition)
        self.moves = PartitionMoves({GROUP: self.partition}, index)

    def wish(self, *replicas: int, witness: int = NO_NODE, returning: tuple[int, ...] = ()) -> int:
        command = metadata_log_pb2.ReassignReplicas(group=GROUP, replicas=replicas, returning=returning)
        if witness != NO_NODE:
            command.witness = witness
        return self.moves.reassign(command).response.reassign_partitions.results[0].error.code

    def moved(self, *replicas: int, witness: int = NO_NODE) -> bool:
        word = peer_pb2.ReplicasMoved(
            node_id=1, group=GROUP, leader_epoch=5, replicas=replicas, wish=self.partition.wishes, log_index=9
        )
        if witness != NO_NODE:
            word.witness = witness
        self.moves.finish(word)
        return not self.partition.is_moving


def test_a_witness_stays_where_it_is_unless_a_move_says_otherwise() -> None:
    moves = Moves()
    assert moves.wish(1, 4) == ErrorCode.NONE
    assert moves.partition.hosts == (1, 2, 4, 3)
    assert moves.moved(1, 4, witness=3)
    assert (moves.partition.replicas, moves.partition.witness) == ((1, 4), 3)


def test_a_witness_moves_with_its_partition() -> None:
    moves = Moves()
    assert moves.wish(1, 2, witness=4) == ErrorCode.NONE
    assert moves.partition.hosts == (1, 2, 3, 4)
    assert not moves.moved(1, 2, witness=3), "that is where it was"
    assert not moves.moved(1, 2)
    assert moves.moved(1, 2, witness=4)
    assert moves.partition.voters == (1, 2, 4)


def test_an_odd_number_of_replicas_has_no_witness() -> None:
    moves = Moves()
    assert moves.wish(1, 2, 4) == ErrorCode.NONE
    assert moves.moved(1, 2, 4)
    assert moves.partition.voters == (1, 2, 4)
    assert moves.wish(1, 2) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert moves.wish(1, 2, witness=5) == ErrorCode.NONE
    assert moves.moved(1, 2, witness=5)
    assert moves.partition.voters == (1, 2, 5)


def test_only_until_a_lost_disk_is_replaced_does_an_even_number_go_on_without_a_witness() -> None:
    moves = Moves(replicas=(1, 2, 3), witness=NO_NODE)
    assert moves.wish(1, 2) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert moves.wish(1, 2, returning=(1, 2, 3)) == ErrorCode.NONE
    assert moves.moved(1, 2)
    assert moves.partition.voters == (1, 2)
    assert moves.wish(1, 4) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert moves.wish(1, 2, 3) == ErrorCode.NONE
    assert moves.moved(1, 2, 3)
    assert moves.partition.returning == ()


@pytest.mark.parametrize(
    ("replicas", "witness"),
    [((1, 3), NO_NODE), ((1, 2, 3), NO_NODE), ((1, 4), 2)],
    ids=["a witness becomes a replica", "even without a witness", "a replica becomes the witness"],
)
def test_no_node_becomes_the_one_from_the_other_in_a_move(replicas: tuple[int, ...], witness: int) -> None:
    moves = Moves()
    assert moves.wish(*replicas, witness=witness) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not moves.partition.is_moving


def test_a_node_that_was_to_have_the_witness_is_remembered_until_the_move_is_over() -> None:
    moves = Moves()
    moves.wish(1, 2, witness=4)
    moves.wish(1, 2, witness=5)
    assert moves.partition.former_witnesses == (4,)
    assert moves.wish(1, 4) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moves.wish() == ErrorCode.NONE
    assert (moves.partition.wanted_voters, moves.partition.former_witnesses) == ((1, 2, 3), (4, 5))
    assert moves.moved(1, 2, witness=3)
    assert moves.partition.hosts == (1, 2, 3)
