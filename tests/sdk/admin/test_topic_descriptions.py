"""A client never receives an older state of a partition than before, whichever nodes it asks."""

from __future__ import annotations

from quorumlog.sdk.admin.descriptions import TopicDescriptions
from quorumlog.v1 import data_plane_pb2


def told(*, leader: int, leader_epoch: int, isr: list[int], partition_epoch: int) -> data_plane_pb2.TopicMetadata:
    partition = data_plane_pb2.PartitionMetadata(
        partition=0,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=[1, 2, 3],
        isr=isr,
        partition_epoch=partition_epoch,
        group_id=1000,
    )
    return data_plane_pb2.TopicMetadata(name="orders", topic_id=b"t" * 16, partitions=[partition])


def test_the_leader_does_not_go_back_where_a_node_has_not_heard_of_the_newest() -> None:
    """The in-sync set has an epoch of its own: a node that has a shrunk set from the metadata may not have received
    of the election yet, which does not go through them."""
    descriptions = TopicDescriptions()
    descriptions.topic(told(leader=2, leader_epoch=7, isr=[1, 2, 3], partition_epoch=4))
    heard = descriptions.topic(told(leader=1, leader_epoch=6, isr=[2, 3], partition_epoch=5))
    (partition,) = heard.partitions
    assert (partition.leader, partition.leader_epoch) == (2, 7)
    assert (partition.isr, partition.partition_epoch) == ((2, 3), 5)


def test_the_in_sync_set_does_not_go_back_where_a_newly_elected_leader_is_heard_of() -> None:
    descriptions = TopicDescriptions()
    descriptions.topic(told(leader=1, leader_epoch=6, isr=[2, 3], partition_epoch=5))
    heard = descriptions.topic(told(leader=2, leader_epoch=7, isr=[1, 2, 3], partition_epoch=4))
    (partition,) = heard.partitions
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 7, (2, 3))
