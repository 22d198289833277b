"""Required properties of a cluster that has healed, and events that must not happen afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from quorumlog.raft.types import EntryId
from quorumlog.server.controller.rebalancing import Rebalancing
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.witness import is_witness
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import PartitionName, SimProducer
from quorumlog.simulator.world.cluster import SimCluster, image_digest
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.replica_sets import is_same_entry


def missing_repairs(cluster: SimCluster) -> str:
    """Returns damage that must still be repaired; empty if none exist.

    An entry is repaired while another disk has it whole. If all others have compacted it into a snapshot, the replica
    is set aside and starts from scratch, for which its node restarts.
    """
    for number, process in cluster.processes.items():
        if process.disk.broken:
            return f"groups {sorted(process.disk.broken)} of node {number} have not started again"
        for group, indexes in process.disk.damaged.items():
            disks = [each.disk for other, each in cluster.processes.items() if other != number]
            # A witness has no copy, and cannot be the source of a repair.
            others = [disk for disk in disks if group in disk.synced and not is_witness(disk.synced[group].table)]
            given_up = [index for index in indexes if all(d.synced[group].anchor.index >= index for d in others)]
            left = sorted({*given_up, *_mendable(process.disk, others, group)})
            if left:
                return f"entries {left} of group {group} are still damaged on node {number}"
    return ""


def _mendable(disk: SimDisk, others: list[SimDisk], group: int) -> set[int]:
    """Returns the damaged entries of a replica that another disk has whole. An entry is verified by the one after it:
    if that is damaged, too, it must be repaired first.
    """
    found: set[int] = set()
    damaged = disk.damaged[group]
    for index in sorted(damaged, reverse=True):
        entry = disk.synced[group].entry(index)
        is_whole = any(
            is_same_entry(entry, other.synced[group].entry(index)) and index not in other.damaged.get(group, ())
            for other in others
        )
        if is_whole and (index + 1 not in damaged or index + 1 in found):
            found.add(index)
    return found


def missing_for_convergence(cluster: SimCluster, topics: Iterable[str], producers: Iterable[SimProducer]) -> str:
    """Returns a deviation from the required final state; empty if none exist."""
    for producer in producers:
        if not producer.idle:
            return producer.describe()
    for number, process in cluster.processes.items():
        if not process.running or process.stopping:
            return f"node {number} is not running, or about to stop"
    rafts = [process.replicas[METADATA_GROUP].raft for process in cluster.processes.values() if process.replicas]
    terms, led = {raft.term for raft in rafts}, [raft.term for raft in rafts if raft.is_leader]
    if len(terms) != 1 or led != list(terms):
        return f"the metadata group is led in terms {led}, the nodes are in {sorted(terms)}"
    images = {number: process.image for number, process in cluster.processes.items()}
    digests = {image_digest(image) for image in images.values() if image is not None}
    if None in images.values() or len(digests) != 1:
        return f"metadata images differ or are missing: {sorted(digests)}"
    image = images[cluster.node_ids[0]]
    assert image is not None
    for number, process in cluster.processes.items():
        assert process.node is not None
        broker = image.brokers.get(number)
        present = broker is not None and broker.registration.boot_id == process.node.identity.boot_id
        if image.is_fenced(number) or not present:
            return f"the metadata do not show that node {number} has returned"
    damaged = missing_repairs(cluster)
    if damaged:
        return damaged
    if cluster.options.repair.rebalance_interval_us and any(Rebalancing(image, {}).moves()):
        return f"the nodes should be balanced automatically, but are not: {Rebalancing(image, {}).before}"
    wanted = sorted(image.quorum.voters or rafts[0].configuration.voters)
    for raft in rafts:
        if raft.configuration.is_joint or sorted(raft.configuration.voters) != wanted:
            return f"nodes {wanted} must vote in the metadata quorum, node {raft.node_id} has {raft.configuration}"
    wrong_links = _wrong_links(cluster, image, wanted)
    if wrong_links:
        return wrong_links
    leaving = [broker.node_id for broker in image.departures.leaving()]
    if leaving:
        return f"nodes {leaving} are still being drained"
    lost = [node for node, broker in image.brokers.items() if broker.is_lost]
    if lost or image.lost_disks.missing():
        return f"the disks of nodes {lost} are given up, and replicas must return: {image.lost_disks.missing()}"
    absent = sorted(set(topics) - {partition.topic.name for partition in image.partitions.values()})
    if absent:
        return f"topics {absent} do not exist"
    for group, partition in image.partitions.items():
        leader = cluster.processes.get(partition.leader)
        replica = leader.replicas.get(group) if leader is not None else None
        if replica is None or not replica.raft.is_leader or replica.raft.term != partition.leader_epoch:
            return f"group {group} is not led by the leader in the metadata (node {partition.leader})"
        if partition.is_moving:
            return f"group {group} is still on its way to {partition.replicas}"
        forgets = isinstance(replica.machine, Partition) and replica.machine.producers.deleted()
        if forgets:
            return f"group {group} remembers producers {forgets}, whose names are deleted"
        left = [
            n for n, process in cluster.processes.items() if group in process.disk.synced and n not in partition.voters
        ]
        if left:
            return f"nodes {left} keep a replica of group {group}, which is on {partition.voters}"
        if cluster.options.balance.enabled and partition.leader != partition.replicas[0]:
            return f"group {group} is led by node {partition.leader}, preferred is {partition.replicas[0]}"
        if partition.is_moving:
            return f"group {group} is still being moved from {partition.replicas} to {partition.wanted}"
        left = [number for number, process in cluster.processes.items() if group in process.disk.synced]
        if sorted(left) != sorted(partition.voters):
            return f"group {group} is on the disks of {left}, its voters are {partition.voters}"
        if sorted(partition.isr) != sorted(partition.replicas):
            return f"group {group} has in-sync replicas {sorted(partition.isr)} of {sorted(partition.replicas)}"
        awake = _awake(cluster, group, partition.voters)
        if replica.raft.quiescent and awake:
            # The sleep message was lost in a fault that has ended: they will look for a leader once.
            return f"group {group} sleeps on its leader, node {partition.leader}, but not on nodes {awake}"
        missing = _missing_in_logs(cluster, group, partition.voters)
        if missing:
            return missing
    return _missing_in_logs(cluster, METADATA_GROUP, cluster.node_ids)


def _wrong_links(cluster: SimCluster, image: MetadataImage, voters: Iterable[int]) -> str:
    """Returns a link that is missing, or not needed; empty if none are.

    Voters of the metadata quorum have links to all nodes, other nodes to those that share a Raft group with them.
    """
    needed = {pair for node in voters for other in cluster.node_ids for pair in ((node, other), (other, node))}
    for partition in image.partitions.values():
        needed.update(itertools.permutations(partition.hosts, 2))
    for one, other in itertools.permutations(cluster.node_ids, 2):
        is_connected = cluster.network.connected(one, other)
        if is_connected != ((one, other) in needed):
            return f"node {one} has {'a needless' if is_connected else 'no'} connection to node {other}"
    return ""


def _awake(cluster: SimCluster, group: int, members: tuple[int, ...]) -> list[int]:
    replicas = {number: cluster.processes[number].replicas.get(group) for number in members}
    return [number for number, replica in replicas.items() if replica is not None and not replica.raft.quiescent]


def _missing_in_logs(cluster: SimCluster, group: int, members: tuple[int, ...]) -> str:
    ends: set[EntryId] = set()
    states: dict[tuple[int, bytes], int] = {}
    for number in members:
        process = cluster.processes[number]
        replica = process.replicas.get(group)
        if replica is None:
            return f"node {number} has no replica of group {group}"
        raft = replica.raft
        synced = process.disk.synced.get(group)
        durable = synced.last if synced is not None else None
        if raft.commit_index != raft.last_id.index or durable != raft.last_id:
            return f"node {number}, group {group}: end {raft.last_id}, commit {raft.commit_index}, durable {durable}"
        ends.add(raft.last_id)
        if isinstance(replica.machine, Partition):
            rows = sorted(replica.machine.producers.rows().items())
            states.setdefault((replica.machine.log_start_offset, repr(rows).encode()), number)
    if len(states) > 1:
        starts = {number: start for (start, _), number in states.items()}
        return f"logs of group {group} start differently, or their tables differ: {starts}"
    return "" if len(ends) == 1 else f"logs of group {group} end differently: {sorted(ends)}"


def committed_end(cluster: SimCluster, name: PartitionName) -> int:
    """Returns the offset after the last committed record of a partition.

    Raises:
        Violation: the metadata do not contain the partition.
    """
    image = cluster.processes[cluster.node_ids[0]].image
    assert image is not None
    for group, partition in image.partitions.items():
        if (partition.topic.name, partition.number) == name:
            return cluster.invariants.model(group).log.next_offset
    raise Violation(f"{name} is not in the metadata image")


def unfinished_changes(cluster: SimCluster) -> str:
    """Returns a change of replicas or leaders that the nodes are making on their own; empty if none exist.

    After convergence clients may still create and delete topics, so that the nodes are balanced again.
    """
    image = _newest_image(cluster)
    if cluster.options.repair.rebalance_interval_us and any(Rebalancing(image, {}).moves()):
        return f"the nodes are about to be balanced: {Rebalancing(image, {}).before}"
    return next(
        (
            f"group {group} is moved to {record.wanted or record.replicas} or changes its leader, node {record.leader}"
            for group, record in image.partitions.items()
            if _is_changing(cluster, record)
        ),
        "",
    )


def _newest_image(cluster: SimCluster) -> MetadataImage:
    images = [process.image for process in cluster.processes.values() if process.image is not None]
    return max(images, key=lambda image: image.applied_index)


def _is_changing(cluster: SimCluster, record: PartitionRecord) -> bool:
    """True if a partition is being moved, or its leadership will be returned to the preferred leader."""
    return record.is_moving or (cluster.options.balance.enabled and record.leader != record.replicas[0])


class Calm:
    """The current terms of all replicas, to detect later campaigns without a reason."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._terms = self._current_terms()
        self._voters = {
            group: () if _is_changing(cluster, record) else record.voters
            for group, record in _newest_image(cluster).partitions.items()
        }

    def changes_finished(self) -> None:
        """Takes the terms of the partitions again that the nodes have moved on their own, or that were about to change
        their leaders. Those of all others count from the beginning.
        """
        records = _newest_image(self._cluster).partitions
        changed = {group for group, record in records.items() if self._voters.get(group) != record.voters}
        kept = {key: term for key, term in self._terms.items() if key[0] not in changed}
        self._terms = kept | {key: term for key, term in self._current_terms().items() if key[0] in changed}

    def _current_terms(self) -> dict[tuple[int, int], int]:
        # A term of 0 is of a partition that was just created, by a request that was in flight. Its first election has a
        # reason.
        return {
            (group, number): replica.raft.term
            for number, process in self._cluster.processes.items()
            for group, replica in process.replicas.items()
            if replica.raft.term > 0
        }

    def _is_here(self, group: int, number: int) -> bool:
        """True if a node must have a replica, by its own metadata."""
        image = self._cluster.processes[number].image
        record = image.partitions.get(group) if image is not None else None
        return record is None or number in record.hosts

    def awake(self) -> str:
        """Returns an idle partition that does not sleep, and so has a cost; empty if all do."""
        for number, process in self._cluster.processes.items():
            for group, replica in process.replicas.items():
                if group != METADATA_GROUP and not replica.raft.quiescent:
                    return f"group {group} is awake on node {number}, without any request"
        return ""

    def check(self) -> None:
        """Compares the terms.

        Raises:
            Violation: a term has changed without a fault; or an idle partition is awake.
        """
        now = self._current_terms()
        for (group, number), term in self._terms.items():
            if self._cluster.invariants.is_deleted(group):
                # A deletion that was requested before the rest has removed it.
                continue
            if (group, number) not in now and not self._is_here(group, number):
                # A move has removed it.
                continue
            if now.get((group, number)) != term:
                raise Violation(
                    f"an election without a fault: on node {number}, group {group} went from term {term} to"
                    f" {now.get((group, number))}"
                )
        awake = self.awake()
        if awake:
            raise Violation(awake)
