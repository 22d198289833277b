"""A quiet simulated cluster, idle or being written to, for tests that do one thing to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from quorumlog.chaos.checkers.history import History, OperationOutcome
from quorumlog.raft.group import RaftGroup
from quorumlog.server.config.options import (
    AuthorizationOptions,
    BalanceOptions,
    ConsumerGroupOptions,
    NodeLimits,
    ScrubOptions,
)
from quorumlog.server.step.request_context import RequestContext
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.simulator.world.cluster import ClusterOptions, SimCluster
from quorumlog.simulator.world.disk import DiskOptions
from quorumlog.simulator.world.network import NetworkOptions
from quorumlog.simulator.world.process import SimProcess
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2

SECOND = 1_000_000
TOPIC = "t"


class Quiet:
    """A quiet cluster, of three nodes unless said otherwise, with one topic, ``TOPIC``."""

    def __init__(
        self,
        seed: int,
        partitions: int = 1,
        balance: BalanceOptions | None = None,
        *,
        limits: NodeLimits | None = None,
        checkpoint_entries: int = 2_000,
        producer_id_expiration_s: float = 86_400,
        compaction_interval_s: float = 15,
        nodes: int = 3,
        groups: ConsumerGroupOptions | None = None,
        scrub: ScrubOptions | None = None,
        authorization: AuthorizationOptions | None = None,
        clients: Mapping[str, str] | None = None,
        kafka: tuple[int, ...] = (),
        racks: tuple[str, ...] = (),
        machines: tuple[str, ...] = (),
    ) -> None:
        self.scheduler = Scheduler(seed)
        quiet = ClusterOptions(
            nodes=nodes,
            kafka=kafka,
            racks=racks,
            machines=machines,
            disk=DiskOptions(slow_probability=0),
            network=NetworkOptions(spike_probability=0),
            limits=limits or NodeLimits(),
            balance=balance or BalanceOptions(),
            groups=groups or ConsumerGroupOptions(),
            scrub=scrub or ScrubOptions(bytes_per_second=0),
            authorization=authorization or AuthorizationOptions(),
            metadata_checkpoint_entries=checkpoint_entries,
            producer_id_expiration_us=int(producer_id_expiration_s * SECOND),
            compaction_interval_us=int(compaction_interval_s * SECOND),
        )
        self.cluster = SimCluster(self.scheduler, quiet)
        for client, principal in (clients or {}).items():
            self.cluster.clients[client] = RequestContext(principal=principal)
        self.history = History()
        for node in self.cluster.node_ids:
            self.cluster.start(node)
        self.create(TOPIC, partitions)

    def create(self, name: str, partitions: int = 1, node: int = 1) -> None:
        """Creates a topic by way of a node."""
        created: list[object] = []
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        factor = min(3, len(self.cluster.node_ids))
        request.topics.add(name=name, num_partitions=partitions, replication_factor=factor)
        end = self.scheduler.now + 20 * SECOND
        while not created or created[-1].results[0].error.code not in (0, 40):  # type: ignore[attr-defined]
            assert self.scheduler.now < end, "no topic"
            self.cluster.request("admin", node, request, created.append)
            self.scheduler.run(self.scheduler.now + SECOND // 2)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.scheduler.run(self.scheduler.now + int(seconds * SECOND))

    def leader(self) -> SimProcess:
        """The machine whose node leads the partition."""
        return next(
            p for p in self.cluster.processes.values() if any(g and r.raft.is_leader for g, r in p.replicas.items())
        )

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Lets time pass until the condition holds, checked every millisecond; returns how long that took.

        Raises:
            AssertionError: it does not hold within ``seconds``.
        """
        began = self.scheduler.now
        while not condition():
            assert self.scheduler.now < began + int(seconds * SECOND), f"not within {seconds} s"
            self.run(0.001)
        return (self.scheduler.now - began) / SECOND

    def replicas_of(self, group: int) -> dict[int, RaftGroup]:
        """The group's replicas on the nodes that run."""
        return {
            node: process.replicas[group].raft
            for node, process in self.cluster.processes.items()
            if group in process.replicas
        }

    def groups(self) -> list[int]:
        """The partitions' groups."""
        return sorted({group for process in self.cluster.processes.values() for group in process.replicas if group})

    def led_by(self, group: int) -> int | None:
        """The node that leads a group, in the highest term; None if no node does."""
        leading = [(raft.term, node) for node, raft in self.replicas_of(group).items() if raft.is_leader]
        return max(leading)[1] if leading else None


class Writing(Quiet):
    """The same with one partition, and a producer that sends one record after the other."""

    def __init__(
        self,
        seed: int,
        balance: BalanceOptions | None = None,
        limits: NodeLimits | None = None,
        scrub: ScrubOptions | None = None,
    ) -> None:
        super().__init__(seed, balance=balance, limits=limits, scrub=scrub)
        options = SimProducerOptions(
            interval_us=(2_000, 4_000), max_in_flight=1, request_timeout_us=200_000, records=(1, 1)
        )
        self.producer = SimProducer(
            "writer", [PartitionName(TOPIC, 0)], self.cluster, self.scheduler, options, self.history, self.cluster
        )
        self.run(2)
        assert len(self.history) > 50, "it does not write"

    def longest_gap_ms(self, since_us: int) -> float:
        """Longest time between two acknowledgements, from the last before ``since_us`` on."""
        acks = [send.returned_us for send in self.history.sends(OperationOutcome.OK)]
        return max(after - before for before, after in itertools.pairwise(acks) if after > since_us) / 1_000
