"""Operators who see to disks in virtual time: they replace those that are lost, and move partitions away from damaged
replicas that nothing else makes whole."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.chaos.simulator.cluster import SimCluster
from quorumlog.chaos.simulator.convergence import missing_repairs
from quorumlog.chaos.simulator.operators import WISH_TIMEOUT_MS
from quorumlog.chaos.simulator.replica_sets import is_enough_without
from quorumlog.chaos.simulator.scheduler import Scheduler
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord
from quorumlog.v1 import admin_pb2


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """The metadata of the node that has applied most of them."""
    images = [each.image for each in cluster.processes.values() if each.image is not None]
    return max(images, key=lambda image: image.applied_index, default=None)


class DiskLoser:
    """Has nodes lose their disks, one after the other: each comes back empty under its id, and is its own replacement.

    A disk is lost only where a majority of every Raft group is left without it, whole and with a say, and after the one
    before was replaced. A node that has part of partitions with a witness is drained first, for beside a witness it
    cannot be its own replacement.
    Now and then the replacement is called off, as by somebody who believes to have found the disk.

    Arguments:
        stopped: whether no further disk is to be lost.
        interval_us: least and most time between two things that it does.
    """

    def __init__(
        self, cluster: SimCluster, scheduler: Scheduler, stopped: Callable[[], bool], interval_us: tuple[int, int]
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._stopped = stopped
        self._interval_us = interval_us
        self._rng = scheduler.stream("disk loser")
        self._lost: int | None = None
        self._former = ""
        self._tick()

    def _tick(self) -> None:
        if self._lost is not None and self._is_replaced(self._lost):
            self._lost = None
        if self._lost is None and self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._tick)
        if self._lost is not None:
            self._wish(self._lost)
            return
        victim = self._rng.choice(self._cluster.node_ids)
        if self._may_lose(victim):
            self._lost, self._former = victim, self._cluster.identity(victim).directory_id
            self._cluster.wipe(victim)

    def _wish(self, node: int) -> None:
        called_off = not self._stopped() and self._rng.random() < 0.1
        action = admin_pb2.NODE_ACTION_UNDRAIN if called_off else self._next_action(node)
        request = admin_pb2.AlterNodeRequest(
            node_id=node, action=action, directory_id=self._former, timeout_ms=WISH_TIMEOUT_MS
        )
        self._cluster.request("disk loser", self._rng.choice(self._cluster.node_ids), request, lambda answer: None)

    def _next_action(self, node: int) -> admin_pb2.NodeAction.ValueType:
        image = newest_image(self._cluster)
        broker = None if image is None else image.brokers.get(node)
        if image is None or broker is None:
            return admin_pb2.NODE_ACTION_REPLACE_DISK
        if any(node in each.hosts and each.witness_hosts for each in image.partitions.values()):
            return admin_pb2.NODE_ACTION_DRAIN
        if broker.leaving:
            # Emptied: now it is replaced, by itself, or it has been.
            return admin_pb2.NODE_ACTION_UNDRAIN
        return admin_pb2.NODE_ACTION_REPLACE_DISK

    def _has_its_place(self, node: int, image: MetadataImage) -> bool:
        """Whether a node is known by the disk that it has now."""
        process, broker = self._cluster.processes[node], image.brokers.get(node)
        known = None if broker is None or broker.is_lost else broker.registration.directory_id
        return process.node is not None and known == process.node.identity.directory_id

    def _may_lose(self, victim: int) -> bool:
        image = newest_image(self._cluster)
        processes = self._cluster.processes.values()
        if image is None or not all(each.running and METADATA_GROUP in each.replicas for each in processes):
            return False
        if any(each.is_moving or each.returning for each in image.partitions.values()):
            return False
        broker, own = image.brokers.get(victim), self._cluster.identity(victim)
        if broker is None or broker.registration.directory_id != own.directory_id:
            return False  # Nobody could say yet which disk is lost.
        if missing_repairs(self._cluster):
            return False
        held = self._cluster.processes[victim].disk.synced
        if not all(is_enough_without(self._cluster, victim, group) for group in held if group != METADATA_GROUP):
            return False
        halves = [
            half for each in processes for hosted in each.replicas.values() for half in hosted.raft.configuration.halves
        ]
        placed = [each.voters for each in image.partitions.values()]
        return all(victim not in voters or len(voters) >= 3 for voters in (*halves, *placed))

    def _is_replaced(self, node: int) -> bool:
        """Whether a node has all again that it had on its former disk."""
        image, process = newest_image(self._cluster), self._cluster.processes[node]
        if image is None or process.node is None:
            return False
        lost, leaving = image.lost_disks.by_node.get(node), self._next_action(node) == admin_pb2.NODE_ACTION_UNDRAIN
        is_back = self._has_its_place(node, image) and not leaving and not (lost is not None and lost.voted)
        quiet = is_back and not image.lost_disks.missing()
        return quiet and not any(node in each.hosts for each in image.partitions.values() if each.is_moving)


class DamageMover:
    """Has partitions with a witness moved away from damaged replicas, and back where they were.

    Beside a witness such a replica is set aside and kept until then: it may be the only copy. Where a node is to spare,
    that takes its place, now and then; otherwise the partition goes on with an odd number of replicas, without a
    witness, until there is room for the former ones again.

    Arguments:
        fewest: replicas that every partition must keep.
        interval_us: least and most time between two looks.
    """

    def __init__(self, cluster: SimCluster, scheduler: Scheduler, fewest: int, interval_us: tuple[int, int]) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._fewest = fewest
        self._interval_us = interval_us
        self._rng = scheduler.stream("damage mover")
        #: Where partitions were before, by Raft group.
        self._before: dict[int, tuple[int, ...]] = {}
        self._tick()

    def missing(self) -> str:
        """What it has not done yet; empty when it has nothing to do."""
        return f"groups {sorted(self._before)} are not back where they were before they were damaged" * bool(
            self._before
        )

    def _tick(self) -> None:
        self._scheduler.after(self._rng.randint(*self._interval_us), self._tick)
        image = newest_image(self._cluster)
        if image is None:
            return
        aside = {
            (group, node)
            for node, process in self._cluster.processes.items()
            if process.running
            for group in process.disk.broken
        }
        for group, node in sorted(aside):
            record = image.partitions.get(group)
            if record is not None and record.witness_hosts and node in record.hosts:
                self._before.setdefault(group, record.replicas)
                self._reassign(record, self._without(image, record, node))
        for group in sorted(self._before.keys() - {group for group, _ in aside}):
            record = image.partitions.get(group)
            if record is None or (record.replicas == self._before[group] and not record.is_moving):
                del self._before[group]
            elif not record.is_moving:
                self._reassign(record, self._before[group])

    def _without(self, image: MetadataImage, record: PartitionRecord, node: int) -> tuple[int, ...]:
        """Where a partition is to be, so that a node has nothing of it."""
        wanted = record.wanted
        spare = [
            other
            for other, broker in sorted(image.brokers.items())
            if not (other in record.hosts or broker.fenced or broker.leaving or broker.witness_only)
        ]
        if node in wanted and spare and (len(wanted) - 1 < self._fewest or self._rng.random() < 0.5):
            return tuple(self._rng.choice(spare) if each == node else each for each in wanted)
        left = [each for each in wanted if each != node] or [each for each in record.replicas if each != node]
        if len(left) % 2 == 0:
            # Without the witness, too: an even number would have one, perhaps where it is now.
            left.remove(next(each for each in reversed(left) if each != record.leader))
        return tuple(left)

    def _reassign(self, record: PartitionRecord, replicas: tuple[int, ...]) -> None:
        if record.is_moving and record.target == replicas:
            return
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=WISH_TIMEOUT_MS)
        request.reassignments.add(topic=record.topic.name, partition=record.number, replicas=replicas)
        node = self._rng.choice(self._cluster.node_ids)
        self._cluster.request("damage mover", node, request, lambda answer: None)
