"""The schedule of a seed's faults: time and kind of each, independent of the cluster's behaviour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from quorumlog.simulator.seeds.faults import KINDS, FaultInjection
from quorumlog.simulator.seeds.plan import FaultPlan
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler


class InjectedFault(NamedTuple):
    """A fault that was injected."""

    number: int
    at_us: int
    kind: str


class SimFaults:
    """Injects faults until it is stopped.

    Arguments:
        only: the numbers of the faults to inject; None for all. Leaving out the others does not change these.
    """

    def __init__(
        self, cluster: SimCluster, scheduler: Scheduler, plan: FaultPlan, only: Container[int] | None = None
    ) -> None:
        self.struck: list[InjectedFault] = []
        self._cluster = cluster
        self._scheduler = scheduler
        self._plan = plan
        self._only = only
        self._schedule = scheduler.stream("faults")
        self._kinds, self._weights = list(plan.weights), list(plan.weights.values())
        self._number = 0
        self._active = True
        self._next()

    @property
    def count(self) -> Counter[str]:
        """Returns the number of faults of each kind."""
        return Counter(fault.kind for fault in self.struck)

    def end(self) -> None:
        """Stops injecting faults; those under way are undone by ``SimCluster.heal``."""
        self._active = False

    def _next(self) -> None:
        self._number += 1
        number = self._number
        kind = self._schedule.choices(self._kinds, self._weights)[0]

        def strike() -> None:
            if self._active:
                if self._only is None or number in self._only:
                    self._strike(number, kind)
                self._next()

        self._scheduler.after(self._schedule.randint(*self._plan.gap_us), strike)

    def _strike(self, number: int, kind: str) -> None:
        self.struck.append(InjectedFault(number, self._scheduler.now, kind))
        self._scheduler.trace(f"fault {number} {kind}")
        KINDS[kind].strike(
            FaultInjection(
                self._cluster,
                self._scheduler,
                self._scheduler.stream(f"fault-{number}"),
                self._plan.tempo,
                lambda: self._active,
                lambda line: self._scheduler.trace(f"fault {number} {kind}: {line}"),
            )
        )
