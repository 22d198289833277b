"""One seed: a cluster is formed, loaded and hurt, then healed; it must converge, and its history must be faultless."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers import check
from quorumlog.chaos.history import History
from quorumlog.chaos.invariants import Violation
from quorumlog.chaos.scheduler import Scheduler
from quorumlog.chaos.sim_clients import ACKS_ALL, PartitionName, ProducerOptions, SimProducer, Unanswered
from quorumlog.chaos.sim_cluster import ClusterOptions, SimCluster, image_digest
from quorumlog.chaos.sim_disk import DiskOptions
from quorumlog.chaos.sim_faults import SECOND, SimFaults
from quorumlog.chaos.sim_network import NetworkOptions
from quorumlog.chaos.sim_readers import EndOffsetProbe, SimConsumer
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import EntryId
from quorumlog.server.options import Limits
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

FORMATION_US = 30 * SECOND
CONVERGENCE_US = 120 * SECOND
#: A seed goes on until it has had this many events, and at most this long.
LEAST_EVENTS = 2_500
FAULTS_US = (4 * SECOND, 6 * SECOND, 12 * SECOND)
MOST_FAULTS_US = 60 * SECOND


@dataclass(slots=True)
class Result:
    """What one seed came to. ``violation`` is None when everything held."""

    seed: int
    events: int = 0
    steps: int = 0
    acknowledged: int = 0
    operations: int = 0
    elections: int = 0
    virtual_us: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    trace: str = ""
    violation: str | None = None
    traceback: str = ""


def draw_options(rng: random.Random) -> ClusterOptions:
    """What kind of cluster, disks and network a seed has."""
    nodes = rng.choice((3, 3, 3, 4, 5))
    slow_disks, slow_network = rng.random() < 0.2, rng.random() < 0.2
    return ClusterOptions(
        nodes=nodes,
        replication_factor=5 if nodes == 5 and rng.random() < 0.5 else 3,
        min_insync_replicas=rng.choice((1, 2, 2)),
        disk=DiskOptions(
            sync_us=(5_000, 40_000) if slow_disks else (200, 3_000),
            slow_probability=rng.choice((0.0, 0.02, 0.1)),
        ),
        network=NetworkOptions(
            delay_us=(5_000, 30_000) if slow_network else (100, 2_000),
            spike_probability=rng.choice((0.0, 0.01, 0.05)),
            keepalive_us=rng.choice((600_000, 2_000_000, 5_000_000)),
        ),
        raft=_draw_raft(rng),
        limits=Limits(frame_bytes=rng.choice((400, 4_000, 1 << 20)), producers_per_partition=rng.choice((50, 5_000))),
        metadata_checkpoint_entries=rng.choice((4, 12, 2_000)),
        through_codec=rng.random() < 0.25,
    )


def _draw_raft(rng: random.Random) -> RaftOptions:
    """Limits small enough to be met, in some seeds."""
    if rng.random() < 0.5:
        return RaftOptions()
    return RaftOptions(
        election_timeout_us=rng.choice((300_000, 600_000, 1_500_000)),
        max_uncommitted_bytes=rng.choice((1_000, 64 << 20)),
        max_append_bytes=rng.choice((300, 1 << 20)),
        max_inflight_appends=rng.choice((1, 2, 64)),
        max_inflight_bytes=rng.choice((500, 8 << 20)),
        max_apply_bytes=rng.choice((300, 8 << 20)),
        cache_bytes=rng.choice((0, 1_000, 1 << 20)),
    )


class Simulation:
    """Runs one seed.

    Arguments:
        seed: decides everything.
        disks_lie: plants a fault: disks report completion before the sync. The run must then fail.
    """

    def __init__(self, seed: int, disks_lie: bool = False) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.history = History()
        self._rng = self.scheduler.stream("plan")
        options = draw_options(self._rng)
        options.disks_lie = disks_lie
        self.cluster = SimCluster(self.scheduler, options)
        self._topics = {f"topic{number}": self._rng.randint(1, 3) for number in range(self._rng.randint(1, 2))}
        self._partitions = [
            PartitionName(name, number) for name, count in self._topics.items() for number in range(count)
        ]
        self._producers: list[SimProducer] = []
        self._consumers: list[SimConsumer] = []
        self._faults: SimFaults | None = None
        self._created: set[str] = set()
        self._readers_stopped = False

    def run(self) -> Result:
        """Runs to the end, or to the first violation."""
        violation: str | None = None
        trace = ""
        try:
            self._form()
            self._load_and_hurt()
            self._converge()
            self._read_all()
            anomalies = check(self.history)
            if anomalies:
                violation = "; ".join(f"{a.invariant}: {a.message}" for a in anomalies[:3])
        except Violation as broken:
            violation = str(broken)
        except Exception as error:  # whatever the node's code raises is a finding, with its seed
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
            violation = f"{type(error).__name__} at {where}: {error}"
            trace = traceback.format_exc()
        return Result(
            seed=self.seed,
            events=self.scheduler.executed,
            steps=self.cluster.steps,
            acknowledged=sum(producer.acknowledged for producer in self._producers),
            operations=len(self.history),
            elections=self.cluster.invariants.elections,
            virtual_us=self.scheduler.now,
            faults=Counter() if self._faults is None else self._faults.count,
            trace=self.scheduler.trace_hash(),
            violation=violation,
            traceback=trace,
        )

    # -- the story ------------------------------------------------------------------------------------------------

    def _form(self) -> None:
        for node in self.cluster.node_ids:
            delay = self._rng.randint(0, 300_000)
            self.scheduler.after(delay, lambda node=node: self.cluster.start(node))  # type: ignore[misc]
        for name in self._topics:
            self._create(name)
        if not self.scheduler.run(FORMATION_US, lambda: len(self._created) == len(self._topics)):
            missing = sorted(set(self._topics) - self._created)
            raise Violation(f"no topic {missing} after {FORMATION_US // SECOND} s without any fault")

    def _create(self, name: str) -> None:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        request.topics.add(
            name=name,
            num_partitions=self._topics[name],
            replication_factor=self.cluster.options.replication_factor,
            configs={"min.insync.replicas": str(self.cluster.options.min_insync_replicas)},
        )

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if name in self._created:
                return
            if isinstance(answer, admin_pb2.CreateTopicsResponse) and answer.results[0].error.code in (
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ):
                self._created.add(name)
            else:
                self.scheduler.after(100_000, lambda: self._create(name))

        self.cluster.request("admin", self._rng.choice(self.cluster.node_ids), request, answered)

    def _load_and_hurt(self) -> None:
        for number in range(self._rng.randint(1, 3)):
            self._producers.append(self._producer(f"producer{number}", ACKS_ALL))
        if self._rng.random() < 0.25:
            self._producers.append(self._producer("hope", 1))
        for partition in self._partitions:
            self._consumers.append(self._consumer(f"consumer-{partition}", partition))
            EndOffsetProbe(
                f"probe-{partition}",
                partition,
                self.cluster,
                self.scheduler,
                self.history,
                lambda: self._readers_stopped,
            )
        if self._rng.random() < 0.3:
            # A topic comes to be in the middle of it all; convergence asks that its replicas agree too.
            self._topics["late"] = self._rng.randint(1, 2)
            self.scheduler.after(self._rng.randint(0, 4 * SECOND), lambda: self._create("late"))
        self._faults = SimFaults(self.cluster, self.scheduler)
        begin = self.scheduler.now
        self.scheduler.run(begin + self._rng.choice(FAULTS_US))
        self.scheduler.run(begin + MOST_FAULTS_US, lambda: self.scheduler.executed >= LEAST_EVENTS)

    def _producer(self, name: str, acks: int) -> SimProducer:
        options = ProducerOptions(
            interval_us=self._rng.choice(((5_000, 60_000), (20_000, 200_000))),
            max_in_flight=self._rng.choice((1, 3, 5)),
            request_timeout_us=self._rng.choice((300_000, 1_000_000)),
            delivery_timeout_us=self._rng.choice((2 * SECOND, 10 * SECOND, 120 * SECOND)),
            acks=acks,
        )
        return SimProducer(
            name, self._partitions, self.cluster, self.scheduler, options, self.history, self.cluster
        )  # fmt: skip

    def _consumer(self, name: str, partition: PartitionName, final: bool = False) -> SimConsumer:
        return SimConsumer(name, partition, self.cluster, self.scheduler, self.history, self.cluster, final)

    def _converge(self) -> None:
        assert self._faults is not None
        self._faults.end()
        self.cluster.heal()
        for producer in self._producers:
            producer.stop()
        # Asked only now and then: the answer looks at every log.
        end = self.scheduler.now + CONVERGENCE_US
        missing = "everything"
        while self.scheduler.now < end:
            self.scheduler.run(self.scheduler.now + SECOND // 4)
            missing = self._missing_for_convergence()
            if not missing:
                return
        raise Violation(f"no convergence {CONVERGENCE_US // SECOND} s after healing: {missing}")

    def _read_all(self) -> None:
        self._readers_stopped = True
        for consumer in self._consumers:
            consumer.stop()
        finals = [self._consumer(f"final-{partition}", partition, final=True) for partition in self._partitions]
        ends = {name: self._end(name) for name in self._partitions}

        def done() -> bool:
            return all(reader.position >= ends[reader.partition] for reader in finals)

        if not self.scheduler.run(self.scheduler.now + 30 * SECOND, done) and not done():
            behind = [f"{r.partition} at {r.position} of {ends[r.partition]}" for r in finals]
            raise Violation(f"a fresh reader does not get to the end: {', '.join(behind)}")

    # -- what convergence means -----------------------------------------------------------------------------------

    def _end(self, name: PartitionName) -> int:
        image = self.cluster.processes[1].image
        assert image is not None
        for group, partition in image.partitions.items():
            if (partition.topic.name, partition.number) == name:
                return self.cluster.invariants.model(group).next_offset
        raise Violation(f"{name} is not in the metadata image")

    def _missing_for_convergence(self) -> str:
        """What is not as it must be in the end; empty when all is well."""
        for producer in self._producers:
            if not producer.idle:
                return producer.describe()
        images = {number: self.cluster.processes[number].image for number in self.cluster.node_ids}
        digests = {image_digest(image) for image in images.values() if image is not None}
        if None in images.values() or len(digests) != 1:
            return f"metadata images differ or are missing: {sorted(digests)}"
        image = images[self.cluster.node_ids[0]]
        assert image is not None
        for group, partition in image.partitions.items():
            leader = self.cluster.processes.get(partition.leader)
            replica = leader.replicas.get(group) if leader is not None else None
            if replica is None or not replica.raft.is_leader or replica.raft.term != partition.leader_epoch:
                return f"group {group} is led otherwise than the metadata says (node {partition.leader})"
            if sorted(partition.isr) != sorted(partition.replicas):
                return f"group {group} has in-sync replicas {sorted(partition.isr)} of {sorted(partition.replicas)}"
            missing = self._missing_in_logs(group, tuple(partition.replicas))
            if missing:
                return missing
        return self._missing_in_logs(0, self.cluster.node_ids)

    def _missing_in_logs(self, group: int, members: tuple[int, ...]) -> str:
        ends: set[EntryId] = set()
        for number in members:
            replica = self.cluster.processes[number].replicas.get(group)
            if replica is None:
                return f"node {number} has no replica of group {group}"
            raft = replica.raft
            durable = self.cluster.processes[number].disk.synced[group].last
            if raft.commit_index != raft.last_id.index or durable != raft.last_id:
                return (
                    f"node {number}, group {group}: end {raft.last_id}, commit {raft.commit_index}, durable {durable}"
                )
            ends.add(raft.last_id)
        return "" if len(ends) == 1 else f"logs of group {group} end differently: {sorted(ends)}"
