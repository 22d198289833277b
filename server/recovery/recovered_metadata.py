"""Metadata of the recovered cluster, derived from the most complete metadata that survived.

In it, lost nodes are nodes whose disks were given up and whose places are vacant, and each partition is to get its
other replicas back. So everything after that is ordinary work of the controller (`controller/disk_replacement.py`):
survivors get their replicas immediately, others once they restart with an empty disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.lost_disks import MAX_LOST
from quorumlog.v1 import metadata_log_pb2

#: Upper bound on producer ids, and ids of their names, allocated unknown to the survivors: numbering continues after
#: them, as after a restore.
UNHEARD_IDS = 1 << 32
#: Number of former cluster ids that are kept: a node of one of them that returns gets an error that says so.
MAX_FORMER_CLUSTERS = 32


@dataclass(slots=True, frozen=True)
class Continuation:
    """The continuation of a partition.

    Arguments:
        former_group: its Raft group before.
        node: the node that continues it.
        term: above all terms that it can have had.
        index: of the first entry after the recovery.
        fresh: it restarts empty, as another Raft group.
    """

    former_group: int
    node: int
    term: int
    index: int
    fresh: bool


@dataclass(slots=True, frozen=True)
class Recovered:
    """Parameters of the recovered metadata.

    Arguments:
        cluster_id: of the former cluster.
        survivors: the nodes that continue.
        electors: the desired voters of the metadata quorum.
        first_voter: the only voter at first.
        index: position in the metadata log that the recovery takes.
        next_group: the next number of a Raft group to allocate.
        partitions: by former Raft group: the Raft group and its continuation.
    """

    cluster_id: str
    survivors: frozenset[int]
    electors: frozenset[int]
    first_voter: int
    index: int
    next_group: int
    partitions: Mapping[int, tuple[int, Continuation]]


def recovered_snapshot(image: MetadataImage, recovered: Recovered) -> bytes:
    """Returns the initial metadata of the recovered cluster."""
    snapshot = metadata_log_pb2.MetadataSnapshot.FromString(image.to_snapshot())
    lost = {each.node_id: each for each in snapshot.lost_disks}
    for broker in snapshot.brokers:
        # Each node must register again before it counts.
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
    # Metadata that cannot be parsed must not get into a plan.
    return MetadataImage.from_snapshot(snapshot.SerializeToString(deterministic=True)).to_snapshot()


def _give_up(
    broker: metadata_log_pb2.BrokerRecord, lost: dict[int, metadata_log_pb2.LostDisks], recovered: Recovered
) -> None:
    node, directory = broker.registration.node_id, broker.registration.directory_id
    given_up = lost.setdefault(node, metadata_log_pb2.LostDisks(node_id=node))
    if directory not in given_up.directory_ids:
        given_up.directory_ids.append(directory)
    # Older directories belong to a former cluster, and are refused for that.
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
    # Former members are removed, and destroy their replicas.
    del partition.target_replicas[:]
    del partition.former_targets[:]
    del partition.former_witnesses[:]
    partition.ClearField("witness")
    partition.ClearField("target_witness")
