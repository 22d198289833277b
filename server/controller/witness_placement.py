"""Placement of the witnesses of partitions with an even number of replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.machines import machine_of, machines_of
from quorumlog.server.controller.placement import Candidate
from quorumlog.server.controller.replica_assignment import (
    Placement,
    Tier,
    nodes_apart,
    registered_nodes,
    witness_candidates,
)
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord, PartitionRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def place_witnesses(
    placement: Placement, nodes: Sequence[Candidate], brokers: Mapping[int, BrokerRecord] | None = None
) -> list[int]:
    """Returns a witness for each partition: on a machine without a replica of it, if possible on a node that is up,
    then in a rack without one, then on a node that accepts only witnesses, then on the node with the fewest replicas.

    Arguments:
        placement: the replicas of each partition.
        nodes: nodes that may have witnesses.
        brokers: all registered nodes, some of which have replicas and cannot have witnesses; None if no two nodes share
            a machine.

    Returns:
        A node per partition; NO_NODE if none is left.
    """
    idle = {node.node_id for node in nodes if node.witness_only}
    carried = {node.node_id: node.replicas for node in nodes}
    tiers = {node.node_id: node.tier for node in nodes}
    racks = {node.node_id: node.rack or node.failure_domain for node in nodes}
    chosen: list[int] = []
    for replicas in placement:
        carried.update({node: carried[node] + 1 for node in replicas if node in carried})
        taken = {racks[node] for node in replicas if node in racks}
        full = machines_of(brokers or {}, replicas)
        free = [node.node_id for node in nodes if node.node_id not in replicas and node.failure_domain not in full]
        best = min(
            free,
            key=lambda node: (tiers[node], racks[node] in taken, node not in idle, carried[node], node),
            default=NO_NODE,
        )
        if best != NO_NODE:
            carried[best] += 1
        chosen.append(best)
    return chosen


def replica_sets(
    image: MetadataImage, under_way: Sequence[Placement], placement: Placement
) -> list[metadata_log_pb2.ReplicaSet] | errors_pb2.Error:
    """Returns the replica sets of partitions, with a witness for each that has an even number of replicas; the error if
    there is no node for one."""
    if len(placement[0]) % 2:
        return [metadata_log_pb2.ReplicaSet(replicas=replicas) for replicas in placement]
    witnesses = place_witnesses(placement, witness_candidates(image, under_way), image.brokers)
    if NO_NODE in witnesses:
        return too_few_nodes(image, len(placement[0]))
    return [
        metadata_log_pb2.ReplicaSet(replicas=replicas, witness=witness)
        for replicas, witness in zip(placement, witnesses, strict=True)
    ]


def too_few_nodes(image: MetadataImage, factor: int) -> errors_pb2.Error:
    """Returns the error for an even number of replicas without a node for the witness."""
    able = witness_candidates(image, ())
    usable = registered_nodes(image, able, factor)
    return error(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {factor} needs {nodes_apart(factor + 1, able)}, {factor} for the copies and one"
        f" for a witness that has a vote and no data, and {usable}: start more nodes or use factor {factor - 1}",
    )


def voters_of(sets: Sequence[metadata_log_pb2.ReplicaSet]) -> Placement:
    """Returns the nodes of each partition, the witness last: each counts as load."""
    return [(*each.replicas, each.witness) if each.HasField("witness") else tuple(each.replicas) for each in sets]


def witness_for(image: MetadataImage, partition: PartitionRecord, wanted: tuple[int, ...]) -> int:
    """Returns the node for the witness of a partition to be moved: the present one if possible. NO_NODE if it
    has none, or no node can have it.

    Arguments:
        wanted: the future nodes of the replicas.
    """
    if len(wanted) % 2:
        return NO_NODE
    broker = image.brokers.get(partition.wanted_witness)
    apart = machine_of(image.brokers, partition.wanted_witness) not in machines_of(image.brokers, wanted)
    if broker is not None and not broker.leaving and apart:
        return broker.node_id
    # A node that has a replica must leave the partition before it can have the witness.
    busy = {*partition.replicas, *partition.target, *partition.former_targets}
    free = [node for node in witness_candidates(image, ()) if node.tier == Tier.UP and node.node_id not in busy]
    return place_witnesses([wanted], free, image.brokers)[0]


def complete_wish(image: MetadataImage, wish: metadata_log_pb2.ReassignReplicas) -> bool:
    """Adds a witness to a command to move a partition, if it needs one and has none to keep. Returns False if there is
    no node for it. A partition that was recovered from the loss of a majority may continue without a witness."""
    partition = image.partitions[wish.group]
    has_one = wish.HasField("witness") or partition.wanted_witness != NO_NODE
    if has_one or wish.returning or len(wish.replicas) % 2:
        return True
    witness = witness_for(image, partition, tuple(wish.replicas))
    if witness == NO_NODE:
        return False
    wish.witness = witness
    return True
