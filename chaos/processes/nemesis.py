"""Injects faults into real node processes, observes the cluster through the SDK, and ends the faults."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

from quorumlog.chaos.processes.leaderships import Leadership, differences, leaderships
from quorumlog.chaos.processes.link_proxy import LinkProxies
from quorumlog.chaos.processes.scenario_cluster import ScenarioCluster
from quorumlog.sdk import Admin, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import PartitionDescription

POLL_S = 0.05


class ChaosError(Exception):
    """Raised if the cluster does not reach a required state in time; the message describes it."""


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Waits for a condition; returns the seconds that it took.

    Raises:
        ChaosError: it did not hold in time.
    """
    began = time.monotonic()
    while True:
        # A cluster under faults may fail to answer; the next poll tries again.
        with suppress(QuorumlogError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() - began > timeout_s:
            raise ChaosError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


class Nemesis:
    """Selects victims and injects faults.

    Arguments:
        target: the partition whose leader counts as "the leader".
        proxies: proxies of the nodes' links; needed to isolate a node.
    """

    def __init__(
        self,
        cluster: ScenarioCluster,
        admin: Admin,
        target: TopicPartition,
        rng: random.Random,
        proxies: LinkProxies | None = None,
    ) -> None:
        self.cluster = cluster
        self._proxies = proxies
        self._admin = admin
        self._target = target
        self._rng = rng
        self._newest: dict[int, PartitionDescription] = {}

    # -- victims --------------------------------------------------------------------------------------------------

    def partition_leader(self) -> int:
        """Returns the node that leads the target partition."""
        return self._found(self.leader, f"{self._target} has no leader")

    def controller(self) -> int:
        """Returns the active controller."""
        return self._found(lambda: self._admin.describe_cluster().controller_id, "there is no active controller")

    def follower(self) -> int:
        """Returns a node that does not lead the target partition."""
        leader = self.partition_leader()
        return self._rng.choice([node for node in self.cluster.node_ids if node != leader])

    def bystander(self) -> int:
        """Returns a node that leads neither the target partition nor the metadata quorum."""
        leaders = {self.partition_leader(), self.controller()}
        return self._rng.choice([node for node in self.cluster.node_ids if node not in leaders])

    def _found(self, look: Callable[[], int | None], complaint: str) -> int:
        found: list[int] = []

        def there() -> bool:
            node = look()
            if node is not None and self.cluster.is_running(node):
                found.append(node)
            return bool(found)

        wait_until(there, 20, complaint)
        return found[0]

    # -- faults and their ends ------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Sends SIGKILL."""
        self.cluster.kill(node)

    def stop(self, node: int) -> None:
        """Sends SIGTERM: the node hands over its leaderships, and has exited when this returns."""
        self.cluster.stop(node)

    def start(self, node: int) -> None:
        """Restarts a node with its data."""
        self.cluster.start(node)

    def pause(self, node: int) -> None:
        """Sends SIGSTOP."""
        self.cluster.pause(node)

    def resume(self, node: int) -> None:
        """Sends SIGCONT."""
        self.cluster.resume(node)

    def isolate(self, node: int) -> None:
        """Cuts all links of the node."""
        self._links().isolate(node)

    def deafen(self, node: int) -> None:
        """Cuts all links to the node, except for connections that it opened itself."""
        self._links().deafen(node)

    def rejoin(self, node: int) -> None:
        """Restores the node's links."""
        self._links().rejoin(node)

    def _links(self) -> LinkProxies:
        assert self._proxies is not None, "only links that go through proxies can be cut"
        return self._proxies

    # -- state of the cluster -------------------------------------------------------------------------------------

    def partitions(self) -> list[PartitionDescription]:
        """Returns the partitions of the target's topic, each as of the newest partition epoch seen.

        A restarted node answers from its old image until it has caught up with the metadata: its in-sync replicas may
        be those of before the fault.
        """
        (topic,) = self._admin.describe_topics([self._target.topic])
        for partition in topic.partitions:
            known = self._newest.get(partition.partition)
            if known is None or partition.partition_epoch >= known.partition_epoch:
                self._newest[partition.partition] = partition
        return list(self._newest.values())

    def leader(self) -> int | None:
        """Returns the leader of the target partition according to the current metadata."""
        return next(p.leader for p in self.partitions() if p.partition == self._target.partition)

    def leaderships_beside(self, node: int | None) -> dict[str, Leadership]:
        """Returns the leaderships that ``node`` does not hold and that must not move: one that the preferred replica
        does not hold may be handed over to it at any time.
        """
        found: dict[str, Leadership] = {}

        def answered() -> bool:
            found.update(leaderships(self._admin))
            return True

        wait_until(answered, 20, "an answer with all leaders")
        return {name: one for name, one in found.items() if one.leader not in (None, node) and one.preferred}

    def moved_since(self, before: dict[str, Leadership]) -> list[str]:
        """Describes the leaderships that have moved, or have a new term."""
        return differences(before, leaderships(self._admin))

    def in_sync_replicas(self) -> list[tuple[int, ...]]:
        """Returns the in-sync replicas of each partition of the target's topic."""
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
