"""A client that has partitions moved about, cancels moves, and changes its mind, at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorumlog.chaos.simulator.clients import PartitionName, Port
from quorumlog.chaos.simulator.scheduler import Scheduler
from quorumlog.v1 import admin_pb2

TIMEOUT_MS = 700


class PartitionMover:
    """Asks for moves to any odd number of nodes.

    Arguments:
        fewest: replicas that every partition must keep.
        stopped: tells when to end.
        interval_us: least and most time between two wishes.

    Attributes:
        asked: wishes so far.
    """

    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        partitions: Sequence[PartitionName],
        fewest: int,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._rng = scheduler.stream("mover")
        self._partitions = partitions
        most = len(port.node_ids)
        self._sizes = [size for size in range(1, most + 1, 2) if fewest <= size] or [most]
        self._stopped = stopped
        self._interval_us = interval_us
        self.asked = 0
        self._go_on()

    def _go_on(self) -> None:
        if self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._go_on)
        rng, nodes = self._rng, self._port.node_ids
        name = rng.choice(self._partitions)
        replicas = [] if rng.random() < 0.2 else rng.sample(nodes, rng.choice(self._sizes))
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=TIMEOUT_MS)
        request.reassignments.add(topic=name.topic, partition=name.number, replicas=replicas)
        self.asked += 1
        self._port.request("mover", rng.choice(nodes), request, lambda answer: None)
