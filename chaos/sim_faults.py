"""What goes wrong in a simulated cluster, by the seed: each seed has its own mix of faults (swarm testing)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from quorumlog.chaos.invariants import Violation
from quorumlog.chaos.scheduler import Scheduler
from quorumlog.chaos.sim_cluster import SimCluster

SECOND = 1_000_000
#: A node that is asked to stop has this long (µs) before it counts as stuck.
STOP_TIMEOUT_US = 20 * SECOND


class SimFaults:
    """Injects faults until told to stop. ``count`` says how many of each there were."""

    def __init__(self, cluster: SimCluster, scheduler: Scheduler) -> None:
        self.count: Counter[str] = Counter()
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng: random.Random = scheduler.stream("faults")
        self._active = True
        faults: dict[str, Callable[[], None]] = {
            "kill": lambda: self._kill(silent=False),
            "power-loss": lambda: self._kill(silent=True),
            "kill-all": self._kill_all,
            "pause": self._pause,
            "stop": self._stop,
            "isolate": self._isolate,
            "sever": self._sever,
            "split": self._split,
            "one-way": self._one_way,
            "reset": self._reset,
            "slow-network": self._slow_network,
            "disk-full": self._disk_full,
            "disk-stall": self._disk_stall,
            "disk-error": self._disk_error,
            "clock-jump": self._clock_jump,
        }
        chosen = [name for name in faults if self._rng.random() < 0.5] or ["kill"]
        self._mix = [(name, faults[name], self._rng.choice((1, 1, 2, 5))) for name in chosen]
        self._pace = self._rng.choice((300_000, 800_000, 2_000_000))
        self._next()

    def end(self) -> None:
        """No more faults; those under way are undone by ``SimCluster.heal``."""
        self._active = False

    def _next(self) -> None:
        def strike() -> None:
            if not self._active:
                return
            names, actions, weights = zip(*self._mix, strict=True)
            place = self._rng.choices(range(len(names)), weights)[0]
            self.count[names[place]] += 1
            self._scheduler.trace(f"fault {names[place]}")
            actions[place]()
            self._next()

        self._scheduler.after(self._rng.randint(self._pace // 4, 2 * self._pace), strike)

    def _node(self) -> int:
        """Any node; more often than not one that leads something."""
        leading = [
            number
            for number, process in self._cluster.processes.items()
            if any(replica.raft.is_leader for replica in process.replicas.values())
        ]
        if leading and self._rng.random() < 0.6:
            return self._rng.choice(leading)
        return self._rng.choice(self._cluster.node_ids)

    def _later(self, least: int, most: int, action: Callable[[], None]) -> None:
        def if_active() -> None:
            if self._active:
                action()

        self._scheduler.after(self._rng.randint(least, most), if_active)

    # -- processes ------------------------------------------------------------------------------------------------

    def _kill(self, silent: bool) -> None:
        self._kill_one(self._node(), silent)

    def _kill_one(self, node: int, silent: bool) -> None:
        process = self._cluster.processes[node]
        if process.running:
            process.die(silent)
            self._later(5_000, 3 * SECOND, lambda: self._start(node))

    def _start(self, node: int) -> None:
        if not self._cluster.processes[node].running:
            self._cluster.start(node)

    def _kill_all(self) -> None:
        silent = self._rng.random() < 0.5
        for node in self._cluster.node_ids:
            self._kill_one(node, silent)

    def _pause(self) -> None:
        process = self._cluster.processes[self._node()]
        if process.running and not process.paused:
            process.pause()
            self._later(20_000, 4 * SECOND, process.resume)

    def _stop(self) -> None:
        node = self._node()
        process = self._cluster.processes[node]
        if not process.running or process.paused:
            return
        asked = process.node
        process.stop()

        def gone() -> None:
            if process.node is asked and not process.paused:
                raise Violation(f"node {node} was asked to stop and has not after {STOP_TIMEOUT_US // SECOND} s")
            self._start(node)

        def restart() -> None:
            if process.node is asked:
                self._later(STOP_TIMEOUT_US, STOP_TIMEOUT_US, gone)
            else:
                self._start(node)

        self._later(200_000, 6 * SECOND, restart)

    # -- network --------------------------------------------------------------------------------------------------

    def _cut_between(self, ones: list[int], others: list[int], both_ways: bool) -> None:
        for one in ones:
            for other in others:
                self._cluster.network.cut(one, other)
                if both_ways:
                    self._cluster.network.cut(other, one)
        self._later(50_000, 5 * SECOND, self._cluster.network.heal)

    def _isolate(self) -> None:
        node = self._node()
        self._cut_between([node], [other for other in self._cluster.node_ids if other != node], both_ways=True)

    def _sever(self) -> None:
        self._cluster.network.sever(self._node())
        self._later(50_000, 5 * SECOND, self._cluster.network.heal)

    def _split(self) -> None:
        nodes = list(self._cluster.node_ids)
        self._rng.shuffle(nodes)
        place = self._rng.randint(1, len(nodes) - 1)
        self._cut_between(nodes[:place], nodes[place:], both_ways=True)

    def _one_way(self) -> None:
        node = self._node()
        others = [other for other in self._cluster.node_ids if other != node]
        others = self._rng.sample(others, self._rng.randint(1, len(others)))
        ends = ([node], others) if self._rng.random() < 0.5 else (others, [node])
        self._cut_between(*ends, both_ways=self._rng.random() < 0.3)

    def _reset(self) -> None:
        one, other = self._rng.sample(self._cluster.node_ids, 2)
        self._cluster.network.reset(one, other)

    def _slow_network(self) -> None:
        self._cluster.network.slowdown = self._rng.choice((5, 20, 100))
        self._later(100_000, 2 * SECOND, self._cluster.network.heal)

    # -- disks and clocks -----------------------------------------------------------------------------------------

    def _disk_full(self) -> None:
        disk = self._cluster.processes[self._node()].disk
        disk.full = True

        def room() -> None:
            disk.full = False

        self._later(100_000, 3 * SECOND, room)

    def _disk_stall(self) -> None:
        disk = self._cluster.processes[self._node()].disk
        disk.stalled_until = self._scheduler.now + self._rng.randint(50_000, 4 * SECOND)

    def _disk_error(self) -> None:
        node = self._node()
        process = self._cluster.processes[node]
        if process.running:
            process.disk.next_sync_fails = True
            self._later(SECOND // 2, 3 * SECOND, lambda: self._start(node))

    def _clock_jump(self) -> None:
        # Within the hour that nodes allow a producer's clock to be ahead of theirs.
        self._cluster.processes[self._node()].wall_offset_ms = self._rng.randint(-1_800_000, 1_800_000)
