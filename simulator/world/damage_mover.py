"""An operator in virtual time who moves partitions away from damaged replicas that are not repaired otherwise."""

from __future__ import annotations

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.operators import WISH_TIMEOUT_MS, newest_image
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2


class DamageMover:
    """Moves partitions with a witness away from damaged replicas, and back to their former nodes.

    Beside a witness such a replica is set aside and kept until then: it may be the only copy. A spare node sometimes
    takes its place; otherwise the partition continues with an odd number of replicas, without a witness, until the
    former ones are possible again.

    Arguments:
        fewest: minimum number of replicas of every partition.
        interval_us: minimum and maximum time between two checks.
    """

    def __init__(self, cluster: SimCluster, scheduler: Scheduler, fewest: int, interval_us: tuple[int, int]) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._fewest = fewest
        self._interval_us = interval_us
        self._rng = scheduler.stream("damage mover")
        #: Former nodes of partitions, by Raft group.
        self._before: dict[int, tuple[int, ...]] = {}
        self._tick()

    def missing(self) -> str:
        """Returns its pending moves; empty if none exist."""
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
                self._reassign(record, self._towards(image, record, self._before[group]))

    @staticmethod
    def _towards(image: MetadataImage, record: PartitionRecord, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the next replicas of a partition on its way. With an even number of replicas it needs a node for a
        witness that has nothing of it yet: if none exists, obstacles are removed first.
        """
        room = image.brokers.keys() - set(wanted) - set(record.hosts)
        return wanted if len(wanted) % 2 or room or set(record.hosts) <= set(wanted) else wanted[:1]

    def _without(self, image: MetadataImage, record: PartitionRecord, node: int) -> tuple[int, ...]:
        """Returns replicas of a partition without a node."""
        wanted = record.wanted
        spare = [
            other
            for other, broker in sorted(image.brokers.items())
            if not (
                other == node
                or other in wanted
                or other in record.witness_hosts
                or broker.fenced
                or broker.leaving
                or broker.witness_only
            )
        ]
        if node in wanted and spare and (len(wanted) - 1 < self._fewest or self._rng.random() < 0.5):
            return tuple(self._rng.choice(spare) if each == node else each for each in wanted)
        left = [each for each in wanted if each != node] or [each for each in record.replicas if each != node]
        if len(left) % 2 == 0:
            # Without the witness, too: an even number would have one, perhaps on its current node.
            if len(left) <= self._fewest and spare:
                return (*left, self._rng.choice(spare))
            left.remove(next(each for each in reversed(left) if each != record.leader))
        return tuple(left)

    def _reassign(self, record: PartitionRecord, replicas: tuple[int, ...]) -> None:
        if record.is_moving and record.target == replicas:
            return
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=WISH_TIMEOUT_MS)
        request.reassignments.add(topic=record.topic.name, partition=record.number, replicas=replicas)
        node = self._rng.choice(self._cluster.node_ids)
        self._cluster.request("damage mover", node, request, lambda answer: None)
