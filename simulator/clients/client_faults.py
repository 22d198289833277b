"""Faults of clients, of their connections to nodes, and of the clocks and addresses of nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.models.records import DAY_MS
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.convergence import missing_repairs
from quorumlog.simulator.world.replica_sets import is_enough_without
from quorumlog.simulator.world.scheduler import Scheduler

SECOND = 1_000_000


class ClientLoad(Protocol):
    """A process of clients that can be killed and restarted."""

    host: ClientHost

    def crash(self) -> None:
        """Sends SIGKILL."""

    def restart(self) -> None:
        """Starts a new process."""


class ClientFaultPlan(NamedTuple):
    """Kinds and frequency of faults.

    Arguments:
        weights: kind of fault to its relative frequency.
        gap_us: minimum and maximum time between two faults.
        tempo: factor of the usual durations.
    """

    weights: dict[str, int]
    gap_us: tuple[int, int]
    tempo: float


class StruckClient(NamedTuple):
    """A fault that was injected."""

    at_us: int
    kind: str


class ClientFaults:
    """Injects faults until it is stopped."""

    def __init__(
        self,
        plan: ClientFaultPlan,
        loads: Sequence[ClientLoad],
        network: SimClientNetwork,
        cluster: SimCluster,
        scheduler: Scheduler,
    ) -> None:
        self.struck: list[StruckClient] = []
        self._plan = plan
        self._loads = loads
        self._network = network
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream("client faults")
        self._renamed = 0
        self._active = True
        self._next()

    def end(self) -> None:
        """Ends all faults: dead clients are restarted, paused ones resumed, and all messages pass."""
        self._active = False
        self._network.heal()
        for load in self._loads:
            if not load.host.alive:
                load.restart()

    def _next(self) -> None:
        self._scheduler.after(self._rng.randint(*self._plan.gap_us), self._strike)

    def _strike(self) -> None:
        if not self._active:
            return
        kinds = self._plan.weights
        kind = self._rng.choices(list(kinds), list(kinds.values()))[0]
        self.struck.append(StruckClient(self._scheduler.now, kind))
        self._scheduler.trace(f"client fault {kind}")
        KINDS[kind](self, self._rng)
        self._next()

    def _length(self, least: int, most: int) -> int:
        return int((least + (most - least) * self._rng.random() ** 2) * self._plan.tempo) + 1

    def _later(self, least: int, most: int, action: Callable[[], None]) -> None:
        """Runs an action after a while, if faults are still enabled then."""

        def if_active() -> None:
            if self._active:
                action()

        self._scheduler.after(self._length(least, most), if_active)

    # -- the kinds ------------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> None:
        """A client's process crashes, and is replaced by another one."""
        load = rng.choice(self._loads)
        if not load.host.alive:
            return
        load.crash()

        def restart() -> None:
            if not load.host.alive:
                load.restart()

        self._later(1_000, 2 * SECOND, restart)

    def pause(self, rng: random.Random) -> None:
        """A client's process is paused for a while."""
        host = rng.choice(self._loads).host
        host.pause()
        self._later(10_000, 8 * SECOND, host.resume)

    def late(self, rng: random.Random) -> None:
        """Messages between one client and one node are delayed: beyond retries, and beyond a failover."""
        host = rng.choice(self._loads).host
        self._network.block(host.name, rng.choice(self._cluster.node_ids), self._length(20_000, 8 * SECOND))

    def broken(self, rng: random.Random) -> None:
        """A connection breaks; data that the client has sent on it may still arrive, even late."""
        host = rng.choice(self._loads).host
        accepts_us = rng.choice((0, self._length(1_000, 100_000), self._length(100_000, 8 * SECOND)))
        self._network.sever(host.name, rng.choice(self._cluster.node_ids), accepts_us)

    def alone(self, rng: random.Random) -> None:
        """A client reaches only one node, perhaps one that lags or is isolated from the others."""
        host = rng.choice(self._loads).host
        reached = rng.choice(self._cluster.node_ids)
        duration_us = self._length(100_000, 6 * SECOND)
        for node in self._cluster.node_ids:
            if node != reached:
                self._network.sever(host.name, node, 0)
                self._network.block(host.name, node, duration_us)

    def client_clock(self, rng: random.Random) -> None:
        """A client's wall clock jumps by days, and back."""
        host = rng.choice(self._loads).host
        host.wall_offset_ms = rng.choice((-3, -1, 1, 3)) * DAY_MS

        def back() -> None:
            host.wall_offset_ms = 0

        self._later(100_000, 3 * SECOND, back)

    def node_clock(self, rng: random.Random) -> None:
        """A node's wall clock jumps by days, and back."""
        process = self._cluster.processes[rng.choice(self._cluster.node_ids)]
        process.wall_offset_ms = rng.choice((-3, -1, 1, 3)) * DAY_MS

        def back() -> None:
            process.wall_offset_ms = 0

        self._later(100_000, 3 * SECOND, back)

    def moved(self, rng: random.Random) -> None:
        """A node is restarted at another address. The first node keeps its address: a client finds the others through
        it, whatever bootstrap servers it was given.
        """
        node = rng.choice(self._cluster.node_ids)
        process = self._cluster.processes[node]
        if node == min(self._cluster.node_ids) or not process.running:
            return
        process.die(silent=False)
        self._renamed += 1
        self._cluster.rename(node, f"node-{node}:{1 + self._renamed}")

        def start() -> None:
            if not process.running:
                self._cluster.start(node)

        self._later(1_000, SECOND, start)

    def wiped(self, rng: random.Random) -> None:
        """A node's disk is permanently lost; only if a majority of every partition and of the controllers remains, and
        damage elsewhere was repaired before.
        """
        options = self._cluster.options
        node = rng.choice(self._cluster.node_ids[1:] or self._cluster.node_ids)
        enough = options.replication_factor >= 3 and options.min_insync_replicas <= options.replication_factor // 2 + 1
        if not enough or self._cluster.wiped or not self._cluster.processes[node].running:
            return
        groups = [group for group in self._cluster.processes[node].disk.synced if group != METADATA_GROUP]
        if missing_repairs(self._cluster) or not all(is_enough_without(self._cluster, node, g) for g in groups):
            return
        self._cluster.wipe(node)


KINDS: dict[str, Callable[[ClientFaults, random.Random], None]] = {
    "crash": ClientFaults.crash,
    "pause": ClientFaults.pause,
    "late": ClientFaults.late,
    "broken": ClientFaults.broken,
    "alone": ClientFaults.alone,
    "client-clock": ClientFaults.client_clock,
    "node-clock": ClientFaults.node_clock,
    "moved": ClientFaults.moved,
    "wiped": ClientFaults.wiped,
}
