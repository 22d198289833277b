"""The metadata of the recovered cluster, made of the most complete ones that are left.

Lost nodes stand there as nodes whose disks were given up and whose places are vacant, and each partition as one that
is to get its other replicas back. So everything after that is ordinary work of the controller
(`controller/disk_replacement.py`): survivors get their replicas at once, others once they come back empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.lost_disks import MAX_LOST
from quorumlog.v1 import metadata_log_pb2

#: Ids of producers and of their names that the lost nodes may have seen given out: those after them go on, as after a
#: restore.
UNHEARD_IDS = 1 << 32
#: Clusters that this one was before, the newest ones: whoever comes back of them is told so.
MAX_FORMER_CLUSTERS = 32


@dataclass(slots=True, frozen=True)
class Continuation:
    """How a partition goes on.

    Arguments:
        former_group: its Raft group before.
        node: the one that goes on with it.
        term: above all terms that it can have had.
        index: of the entry that begins its new life.
        fresh: with nothing, as another Raft group.
    """

    former_group: int
    node: int
    term: int
    index: int
    fresh: bool


@dataclass(slots=True, frozen=True)
class Recovered:
    """What the recovered metadata are made of.

    Arguments:
        cluster_id: of the cluster before.
        survivors: the nodes that go on.
        electors: who was to vote in the metadata quorum.
        first_voter: votes alone at first.
        index: of the metadata log, that the recovery takes the place of.
        next_group: the number of a Raft group to give out next.
        partitions: by former Raft group: the Raft group and how it goes on.
    """

    cluster_id: str
    survivors: frozenset[int]
    electors: frozenset[int]
    first_voter: int
    index: int
    next_group: int
    partitions: Mapping[int, tuple[int, Continuation]]


def recovered_snapshot(image: MetadataImage, recovered: Recovered) -> bytes:
    """The metadata with which the recovered cluster begins."""
    snapshot = metadata_log_pb2.MetadataSnapshot.FromString(image.to_snapshot())
    lost = {each.node_id: each for each in snapshot.lost_disks}
    for broker in snapshot.brokers:
        # Each has to be heard of again before it counts.
        broker.fenced = True
        if broker.registration.node_id not in recovered.survivors:
            _give_up(broker, lost, recovered)
    del snapshot.lost_disks[:]
    snapshot.lost_disks.extend(each for _, each in sorted(lost.items()))
    for topic in snapshot.topics:
        for partition in topic.partitions:
            _go_on(partition, *recovered.partitions[partition.group])
    snapshot.wanted_voters[:] = sorted({*(recovered.electors & recovered.survivors), recovered.first_voter})
    snapshot.quorum_wishes += 1
    snapshot.next_group = recovered.next_group
    snapshot.next_producer_id += UNHEARD_IDS
    if snapshot.next_named_producer_id:
        snapshot.next_named_producer_id += UNHEARD_IDS
    snapshot.applied_index = recovered.index
    snapshot.former_cluster_ids.append(recovered.cluster_id)
    del snapshot.former_cluster_ids[:-MAX_FORMER_CLUSTERS]
    # What cannot be read back must not get into a plan.
    return MetadataImage.from_snapshot(snapshot.SerializeToString(deterministic=True)).to_snapshot()


def _give_up(
    broker: metadata_log_pb2.BrokerRecord, lost: dict[int, metadata_log_pb2.LostDisks], recovered: Recovered
) -> None:
    node, directory = broker.registration.node_id, broker.registration.directory_id
    given_up = lost.setdefault(node, metadata_log_pb2.LostDisks(node_id=node))
    if directory not in given_up.directory_ids:
        given_up.directory_ids.append(directory)
    # Those before them are of a former cluster, and refused as such.
    del given_up.directory_ids[:-MAX_LOST]
    given_up.lost_index = recovered.index
    given_up.voted = given_up.voted or node in recovered.electors
    given_up.bytes_per_second = 0
    broker.disk = metadata_log_pb2.DISK_STATE_VACANT
    broker.broker_epoch = recovered.index


def _go_on(partition: metadata_log_pb2.PartitionRecord, group: int, goes_on: Continuation) -> None:
    intended = list(partition.returning or partition.target_replicas or partition.replicas)
    partition.group = group
    partition.replicas[:] = partition.isr[:] = [goes_on.node]
    partition.leader, partition.leader_epoch = goes_on.node, goes_on.term
    partition.partition_epoch += 1
    partition.wishes += 1
    partition.bytes_per_second = 0
    partition.moved_index = max(partition.moved_index, goes_on.index) if not goes_on.fresh else 0
    partition.returning[:] = intended if intended != [goes_on.node] else []
    # Whom it has to do with is forgotten, and destroys what it has.
    del partition.target_replicas[:]
    del partition.former_targets[:]
    del partition.former_witnesses[:]
    partition.ClearField("witness")
    partition.ClearField("target_witness")
