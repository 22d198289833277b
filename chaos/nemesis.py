"""Hurts real node processes, watches through the SDK what the cluster makes of it, and mends them again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

from quorumlog.sdk import Admin, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import PartitionDescription
from quorumlog.server.local import LocalCluster

POLL_S = 0.05


class ChaosError(Exception):
    """The cluster did not do in time what it must. The message says what."""


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Waits for a condition; returns the seconds that it took.

    Raises:
        ChaosError: it did not come about in time.
    """
    began = time.monotonic()
    while True:
        # A cluster that is being hurt may fail to answer; the next poll asks again.
        with suppress(QuorumlogError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() - began > timeout_s:
            raise ChaosError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


class Nemesis:
    """Picks victims and strikes.

    Arguments:
        target: the partition whose leader counts as "the leader".
    """

    def __init__(self, cluster: LocalCluster, admin: Admin, target: TopicPartition, rng: random.Random) -> None:
        self.cluster = cluster
        self._admin = admin
        self._target = target
        self._rng = rng
        self._newest: dict[int, PartitionDescription] = {}

    # -- victims --------------------------------------------------------------------------------------------------

    def partition_leader(self) -> int:
        """The node that leads the target partition."""
        return self._found(self.leader, f"{self._target} has no leader")

    def controller(self) -> int:
        """The active controller."""
        return self._found(lambda: self._admin.describe_cluster().controller_id, "there is no active controller")

    def follower(self) -> int:
        """A node that does not lead the target partition."""
        leader = self.partition_leader()
        return self._rng.choice([node for node in self.cluster.node_ids if node != leader])

    def _found(self, look: Callable[[], int | None], complaint: str) -> int:
        found: list[int] = []

        def there() -> bool:
            node = look()
            if node is not None and self.cluster.is_running(node):
                found.append(node)
            return bool(found)

        wait_until(there, 20, complaint)
        return found[0]

    # -- what the cluster says ------------------------------------------------------------------------------------

    def partitions(self) -> list[PartitionDescription]:
        """The partitions of the target's topic, each as of the newest partition epoch seen.

        A node that has just come back answers from its old image until it has caught up with the metadata: what it
        says of in-sync replicas may be from before the fault.
        """
        (topic,) = self._admin.describe_topics([self._target.topic])
        for partition in topic.partitions:
            known = self._newest.get(partition.partition)
            if known is None or partition.partition_epoch >= known.partition_epoch:
                self._newest[partition.partition] = partition
        return list(self._newest.values())

    def leader(self) -> int | None:
        """Leader of the target partition, as the metadata says now."""
        return next(p.leader for p in self.partitions() if p.partition == self._target.partition)

    def in_sync_replicas(self) -> list[tuple[int, ...]]:
        """In-sync replicas of each partition of the target's topic."""
        return [partition.isr for partition in self.partitions()]

    def wait_isr_without(self, node: int, timeout_s: float) -> float:
        """Waits until no partition counts ``node`` as in sync; returns the seconds."""
        what = f"node {node} leaves the in-sync replicas"
        return wait_until(lambda: all(node not in isr for isr in self.in_sync_replicas()), timeout_s, what)

    def wait_isr_full(self, timeout_s: float) -> float:
        """Waits until every node is in sync in every partition; returns the seconds."""
        everyone = sorted(self.cluster.node_ids)
        return wait_until(
            lambda: all(sorted(isr) == everyone for isr in self.in_sync_replicas()),
            timeout_s,
            "all replicas are in sync again",
        )
