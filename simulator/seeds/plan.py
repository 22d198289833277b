"""The decisions of a seed before the run: every parameter of its cluster, load and faults (swarm testing).

A mix that is the same for all seeds keeps finding one kind of failure; here each seed leaves most things out and
overdoes a few. The typical seed is short and dense in faults, one in fifty is long.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quorumlog.raft.options import RaftOptions
from quorumlog.server.config.options import (
    AuthorizationOptions,
    BalanceOptions,
    NodeLimits,
    RepairOptions,
    ScrubOptions,
)
from quorumlog.server.kafka.handlers.fetch_session import MOST_KEPT_PARTITIONS
from quorumlog.server.step.request_context import ANONYMOUS
from quorumlog.simulator.consumer_groups.classic_groups import ClassicPlan
from quorumlog.simulator.consumer_groups.groups import GroupPlan
from quorumlog.simulator.seeds.faults import KINDS
from quorumlog.simulator.seeds.plan_groups import (
    draw_classic_groups,
    draw_coordinators,
    draw_groups,
    draw_kafka_members,
)
from quorumlog.simulator.world.clients import ACKS_ALL, PartitionName, SimProducerOptions, claimed_name
from quorumlog.simulator.world.cluster import ClusterOptions
from quorumlog.simulator.world.disk import DiskOptions
from quorumlog.simulator.world.kafka_readers import KafkaReaderPlan
from quorumlog.simulator.world.limited_clients import WRITER
from quorumlog.simulator.world.network import NetworkOptions
from quorumlog.simulator.world.transactions import TransactionPlan, draw_transactions

SECOND = 1_000_000
#: Maximum number of partitions that are read during the run; further ones are written, and compared at the end.
MOST_WATCHED = 4
#: Silence after which a producer may be forgotten, in seeds in which that happens: longer than any of its retries.
EXPIRATION_US = 4 * SECOND
#: Backlog that a leader may accept before it is replicated, in frames.
BACKLOG_FRAMES = 40
#: Maximum number of partitions of one reader in Kafka's sessions.
MOST_READ = 8


@dataclass(slots=True)
class KafkaReading:
    """Readers in Kafka's fetch sessions, and limits of the sessions that nodes keep.

    Arguments:
        kept_partitions: maximum number of partitions of all sessions at one node's port together.
        node_sessions: maximum number of sessions of a node; None: the usual one.
    """

    readers: list[KafkaReaderPlan] = field(default_factory=list)
    kept_partitions: int = MOST_KEPT_PARTITIONS
    node_sessions: int | None = None


@dataclass(slots=True)
class FaultPlan:
    """Kinds, frequency and duration of faults.

    Arguments:
        weights: kind of fault to its relative frequency.
        gap_us: minimum and maximum time between two faults.
        tempo: factor of the usual durations of faults (seconds).
        duration_us: time with faults; longer if there have been few events by then.
        from_the_start: faults start before the cluster has formed.
    """

    weights: dict[str, int]
    gap_us: tuple[int, int]
    tempo: float
    duration_us: int
    from_the_start: bool


@dataclass(slots=True)
class Plan:
    """A seed's parameters.

    Arguments:
        cluster: machines, disks, network, limits.
        topics: name to number of partitions.
        late_topic: partitions of a topic that is created during the run, and when (µs); None without one.
        producers: by name.
        probe_us: time between two requests of a probe.
        reads_on: consumers and probes continue while the cluster heals.
        quiet_us: time without any activity after the cluster has healed.
        metadata_probe: True if a client creates topics and reads the metadata linearizably.
        configs: settings of each topic.
        deletions_us: time between two DeleteRecords requests; (0, 0) for none.
        name_deletions_us: time between deletions of producer names; (0, 0) for none.
        look_ups_us: time between lookups of times; (0, 0) for none.
        moves_us: time between two requests to move a partition; (0, 0): never.
        drains_us: time between two requests to drain or undrain a node; (0, 0): never.
        rebalances_us: time between two requests to rebalance partitions; (0, 0): never.
        quorum_us: time between two changes of the metadata quorum's voters; (0, 0): never.
        losses_us: time between two steps of losing and replacing disks; (0, 0): none is lost.
        damage_moves_us: time between two searches for partitions that must be moved away from damaged replicas; (0, 0):
            never.
        rights_us: time between two changes of ACLs; (0, 0): authorization is off.
        settings_us: time between two changes of settings of nodes; (0, 0): none are changed.
        quotas_us: time between two changes of quotas; (0, 0): none exist.
        groups: consumer groups.
        groups_stay: their members still exist during the time without activity.
        classic_groups: groups whose members assign.
        kafka: consumers with Kafka's protocol.
        replica_readers: some readers read from followers, too.
        transactions: a load with transactions; None without one.
    """

    cluster: ClusterOptions
    topics: dict[str, int]
    late_topic: tuple[int, int] | None
    producers: dict[str, SimProducerOptions]
    probe_us: tuple[int, int]
    reads_on: bool
    faults: FaultPlan
    quiet_us: int
    metadata_probe: bool
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    deletions_us: tuple[int, int] = (0, 0)
    name_deletions_us: tuple[int, int] = (0, 0)
    look_ups_us: tuple[int, int] = (0, 0)
    moves_us: tuple[int, int] = (0, 0)
    quorum_us: tuple[int, int] = (0, 0)
    drains_us: tuple[int, int] = (0, 0)
    rebalances_us: tuple[int, int] = (0, 0)
    losses_us: tuple[int, int] = (0, 0)
    damage_moves_us: tuple[int, int] = (0, 0)
    rights_us: tuple[int, int] = (0, 0)
    quotas_us: tuple[int, int] = (0, 0)
    settings_us: tuple[int, int] = (0, 0)
    watched: list[PartitionName] = field(default_factory=list)
    groups: list[GroupPlan] = field(default_factory=list)
    groups_stay: bool = False
    classic_groups: list[ClassicPlan] = field(default_factory=list)
    kafka: KafkaReading = field(default_factory=KafkaReading)
    replica_readers: bool = False
    transactions: TransactionPlan | None = None

    @property
    def compacted(self) -> set[str]:
        """Topics for which only the last record of each key is retained."""
        return {topic for topic, configs in self.configs.items() if "compact" in configs.get("cleanup.policy", "")}

    @property
    def partitions(self) -> list[PartitionName]:
        """Every partition that clients use from the start."""
        return [PartitionName(name, number) for name, count in self.topics.items() for number in range(count)]

    @property
    def producer_names(self) -> list[str]:
        """The names that producers claim: one for each partition."""
        named = [name for name, options in self.producers.items() if options.named]
        return [claimed_name(name, partition) for name in named for partition in self.partitions]


def draw_plan(
    seed: int,
    with_groups: bool = False,
    with_rights: bool = False,
    with_machines: bool = False,
    with_transactions: bool = False,
) -> Plan:
    """Draws the plan of a seed.

    Arguments:
        with_groups: use consumer groups in any case.
        with_rights: clients need ACLs, except for those without authentication.
        with_machines: several nodes share a machine in any case.
        with_transactions: use transactions, on a topic of their own.
    """
    rng = random.Random(f"{seed}/plan")
    long = rng.random() < 0.02
    cluster = _draw_cluster(rng)
    _draw_snapshots(random.Random(f"{seed}/snapshots"), cluster)
    topics = _draw_topics(rng)
    plan = Plan(
        cluster,
        topics,
        late_topic=(rng.randint(1, 2), rng.randint(0, 2 * SECOND)) if rng.random() < 0.2 else None,
        producers=_draw_producers(rng, cluster.pace),
        probe_us=rng.choice(((30_000, 300_000), (200_000, 1_000_000))),
        reads_on=rng.random() < 0.3,
        faults=_draw_faults(rng, cluster.nodes, long),
        # Longer than any election timeout, so that an election without a cause has time to happen.
        quiet_us=10 * SECOND if rng.random() < 0.02 else 2 * cluster.raft.election_timeout_us + SECOND // 5,
        metadata_probe=rng.random() < 0.25,
    )
    _bound_backlog(cluster)
    _draw_witnesses(random.Random(f"{seed}/witnesses"), plan.cluster)
    _draw_machines(random.Random(f"{seed}/several nodes"), plan, with_machines)
    _draw_retention(random.Random(f"{seed}/retention"), plan)
    _draw_compaction(random.Random(f"{seed}/compaction"), plan)
    _draw_identities(random.Random(f"{seed}/identities"), plan)
    draw_kafka_batches(random.Random(f"{seed}/kafka"), plan.producers)
    _draw_kafka_readers(random.Random(f"{seed}/kafka readers"), plan)
    _draw_name_deletions(random.Random(f"{seed}/name deletions"), plan)
    _draw_moves(random.Random(f"{seed}/moves"), plan)
    _draw_quorum(random.Random(f"{seed}/quorum"), plan)
    _draw_drains(random.Random(f"{seed}/drains"), plan)
    _draw_balance(random.Random(f"{seed}/balance"), plan)
    _draw_losses(random.Random(f"{seed}/losses"), plan)
    _draw_repair(random.Random(f"{seed}/repair"), plan)
    _draw_damage(random.Random(f"{seed}/damage"), plan)
    _draw_groups(random.Random(f"{seed}/groups"), plan, with_groups)
    if with_groups:
        election_timeout_ms = plan.cluster.raft.election_timeout_us // 1_000
        plan.classic_groups = draw_classic_groups(random.Random(f"{seed}/classic"), plan.topics, election_timeout_ms)
        session_ms = draw_kafka_members(random.Random(f"{seed}/kafka members"), plan.groups, election_timeout_ms)
        if session_ms:
            limits = replace(plan.cluster.groups.limits, session_timeout_ms=session_ms)
            plan.cluster.groups = replace(plan.cluster.groups, limits=limits)
    if with_rights:
        _draw_rights(random.Random(f"{seed}/rights"), plan)
        _draw_quotas(random.Random(f"{seed}/quotas"), plan)
    _draw_settings(random.Random(f"{seed}/settings"), plan)
    if with_transactions:
        _draw_transactions(random.Random(f"{seed}/transactions"), plan)
    plan.replica_readers = cluster.nodes > 1 and random.Random(f"{seed}/replica readers").random() < 0.25
    plan.watched = rng.sample(plan.partitions, min(MOST_WATCHED, len(plan.partitions)))
    return plan


def _draw_transactions(rng: random.Random, plan: Plan) -> None:
    """Draws a load with transactions, with small limits of compaction."""
    plan.transactions = draw_transactions(rng)
    if not plan.groups:
        # Clients commit offsets in their transactions.
        plan.cluster.groups = draw_coordinators(rng, plan.cluster.raft.election_timeout_us // 1_000)
    if plan.transactions.keys:
        plan.cluster.compaction_interval_us = rng.choice((50_000, 300_000))
        plan.cluster.limits = replace(
            plan.cluster.limits,
            compaction_batch_bytes=rng.choice((700, 256 << 10)),
            compaction_chunk_bytes=rng.choice((2_000, 1 << 20)),
            compaction_pass_bytes=rng.choice((5_000, 64 << 20)),
        )


# -- the cluster ------------------------------------------------------------------------------------------------------


def _draw_cluster(rng: random.Random) -> ClusterOptions:
    nodes = rng.choices((1, 3, 4, 5), (2, 30, 4, 3))[0]
    if nodes == 1 or rng.random() < 0.05:
        replication_factor = 1
    else:
        replication_factor = 5 if nodes == 5 and rng.random() < 0.5 else 3
    slow_disks, slow_network = rng.random() < 0.15, rng.random() < 0.15
    pace = rng.choice((0.5, 1.0, 1.0))
    return ClusterOptions(
        nodes=nodes,
        replication_factor=replication_factor,
        min_insync_replicas=min(replication_factor, rng.choice((1, 2, 2, replication_factor // 2 + 2))),
        disk=DiskOptions(
            sync_us=(5_000, 40_000) if slow_disks else (200, 3_000),
            slow_probability=rng.choice((0.0, 0.02, 0.1)),
        ),
        network=NetworkOptions(
            delay_us=(5_000, 30_000) if slow_network else (100, 2_000),
            spike_probability=rng.choice((0.0, 0.01, 0.05)),
            keepalive_us=rng.choice((600_000, 2_000_000)),
        ),
        raft=_draw_raft(rng, pace),
        limits=NodeLimits(
            frame_bytes=rng.choice((400, 4_000, 1 << 20)),
            producers_per_partition=rng.choice((50, 5_000)),
        ),
        metadata_checkpoint_entries=rng.choice((4, 12, 2_000)),
        through_codec=rng.random() < 0.15,
        pace=pace,
        clock_rates_ppm=rng.choice(((0, 0), (-200, 200), (-50_000, 50_000))),
        # If it is enabled, preferred leaders must lead at the end; even the longest backoff is over then.
        balance=BalanceOptions(
            enabled=rng.random() < 0.7,
            check_interval_us=SECOND // 20,
            grace_us=rng.choice((0, SECOND // 10, SECOND // 2)),
            max_transfers=rng.choice((1, 10)),
        ),
    )


def _draw_witnesses(rng: random.Random, options: ClusterOptions) -> None:
    """Gives every partition two or four copies and a witness, in a quarter of the seeds with enough nodes."""
    if options.nodes < 3 or options.replication_factor < 3 or rng.random() > 0.25:
        return
    options.replication_factor = 4 if options.nodes == 5 and rng.random() < 0.5 else 2
    options.min_insync_replicas = min(options.min_insync_replicas, options.replication_factor)
    options.limits = replace(options.limits, witness_traces=rng.choice((1, 4, 20, 1_000)))
    if rng.random() < 0.3:
        options.witness_only = tuple(rng.sample(range(1, options.nodes + 1), rng.choice((1, 1, 2))))
        # Enough nodes are left for the copies.
        options.witness_only = options.witness_only[: options.nodes - options.replication_factor]


def _draw_machines(rng: random.Random, plan: Plan, certainly: bool) -> None:
    """Puts several nodes on each machine, which fails as a whole, in a tenth of the seeds with enough nodes."""
    cluster = plan.cluster
    if certainly and cluster.nodes < 3:
        cluster.nodes, cluster.replication_factor = 3, 3
    if cluster.nodes < 3 or (rng.random() > 0.1 and not certainly):
        return
    machines = max(3, cluster.replication_factor + 1 - cluster.replication_factor % 2) + (rng.random() < 0.3)
    size = 4 if certainly and rng.random() < 0.1 else 2
    cluster.nodes = machines + rng.randint(1, (size - 1) * machines)
    # The first nodes are on different machines. Not all machines are of one size.
    cluster.machines = tuple(f"machine{number % machines}" for number in range(cluster.nodes))
    with_data = {cluster.machines[node - 1] for node in range(1, cluster.nodes + 1) if node not in cluster.witness_only}
    if len(with_data) < cluster.replication_factor:
        cluster.witness_only = ()
    weights = plan.faults.weights
    usual = sum(weights.values())
    for kind in ("machine-kill", "machine-power-loss", "machine-pause", "machine-isolate"):
        if rng.random() < 0.6:
            weights[kind] = max(1, usual // rng.choice((3, 6)))


def _draw_snapshots(rng: random.Random, options: ClusterOptions) -> None:
    """Draws frequent snapshots; small slices divide every transfer, so that faults happen between them."""
    options.limits = replace(
        options.limits,
        snapshot_slice_bytes=rng.choice((40, 150, 256 << 10)),
        snapshot_window=rng.choice((1, 2, 4)),
        snapshot_transfers=rng.choice((1, 4)),
    )
    options.snapshot_stall_us = rng.choice((300_000, 2_000_000))
    if rng.random() < 0.5:
        options.metadata_checkpoint_entries = rng.choice((1, 2, 4))


def _draw_raft(rng: random.Random, pace: float) -> RaftOptions:
    """Draws limits that are small enough to be reached, in some seeds."""
    times = RaftOptions(
        heartbeat_interval_us=int(100_000 * pace),
        witness_silence_us=int(300_000 * pace),
        election_timeout_us=int(rng.choice((300_000, 600_000, 600_000, 1_200_000)) * pace),
    )
    if rng.random() < 0.5:
        return times
    return replace(
        times,
        max_uncommitted_bytes=rng.choice((1_000, 64 << 20)),
        max_append_bytes=rng.choice((300, 1 << 20)),
        max_inflight_appends=rng.choice((1, 2, 64)),
        max_inflight_bytes=rng.choice((500, 8 << 20)),
        max_apply_bytes=rng.choice((300, 8 << 20)),
        cache_bytes=rng.choice((0, 1_000, 1 << 20)),
    )


def _bound_backlog(options: ClusterOptions) -> None:
    """Bounds the backlog that a leader may accept, which must be replicated after all faults. One frame of 400 bytes to
    a peer at a time carries 13 KiB a second over a slow network between slow disks: 64 MiB would take hours.
    """
    largest = BACKLOG_FRAMES * options.limits.frame_bytes
    options.raft = replace(options.raft, max_uncommitted_bytes=min(options.raft.max_uncommitted_bytes, largest))


# -- the load ---------------------------------------------------------------------------------------------------------


def _draw_topics(rng: random.Random) -> dict[str, int]:
    if rng.random() < 0.03:
        return {"many": rng.randint(12, 36)}
    return {f"topic{number}": rng.randint(1, 2) for number in range(rng.choice((1, 1, 1, 1, 2)))}


def _draw_producers(rng: random.Random, pace: float) -> dict[str, SimProducerOptions]:
    """Draws one to three idempotent producers, and sometimes one with acks=0. Some seeds have long silences between
    bursts, so that groups fall asleep and wake.
    """
    silent_us = rng.choice(((0, 0), (0, 0), (300_000, 3 * SECOND)))
    producers = {f"producer{number}": _draw_producer(rng, ACKS_ALL, silent_us) for number in range(rng.randint(1, 3))}
    if rng.random() < 0.2:
        producers["hope"] = _draw_producer(rng, 1, silent_us)
    return producers


def _draw_producer(rng: random.Random, acks: int, silent_us: tuple[int, int]) -> SimProducerOptions:
    return SimProducerOptions(
        interval_us=rng.choice(((5_000, 60_000), (20_000, 200_000), (20_000, 200_000))),
        max_in_flight=rng.choice((1, 3, 5)),
        request_timeout_us=rng.choice((250_000, 500_000)),
        delivery_timeout_us=rng.choice((2 * SECOND, 10 * SECOND, 120 * SECOND)),
        acks=acks,
        records=rng.choice(((1, 1), (1, 3), (1, 20))),
        padding_bytes=rng.choice((0, 0, 100, 5_000)),
        silence_us=silent_us,
    )


def _draw_retention(rng: random.Random, plan: Plan) -> None:
    """Draws retention by bytes, by time and by command; in a third of all seeds no record is ever removed."""
    if rng.random() < 0.3:
        return
    for topic in plan.topics:
        configs = plan.configs.setdefault(topic, {})
        if rng.random() < 0.5:
            configs["retention.bytes"] = str(rng.choice((0, 400, 2_000, 10_000)))
        if rng.random() < 0.3:
            configs["retention.ms"] = str(rng.choice((100, 500, 2_000)))
        if rng.random() < 0.2:
            configs["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.3:
        plan.deletions_us = rng.choice(((20_000, 200_000), (100_000, 1_000_000)))
    if rng.random() < 0.3:
        plan.look_ups_us = (20_000, 300_000)
    lag_ms = rng.choice((0, 0, 300, 5_000))
    plan.producers = {name: replace(options, lag_ms=lag_ms) for name, options in plan.producers.items()}


def _draw_compaction(rng: random.Random, plan: Plan) -> None:
    """Draws a compacted topic, in some seeds with retention; small limits make many passes of many pieces."""
    if rng.random() < 0.75:
        return
    keyed = rng.choice(sorted(plan.topics))
    plan.configs[keyed] = {
        "cleanup.policy": "compact",
        "delete.retention.ms": rng.choice(("0", "300", "2000")),
        "min.cleanable.dirty.ratio": rng.choice(("0", "0.5")),
    }
    plan.cluster.compaction_interval_us = rng.choice((50_000, 300_000))
    plan.cluster.limits = replace(
        plan.cluster.limits,
        compaction_batch_bytes=rng.choice((700, 256 << 10)),
        compaction_chunk_bytes=rng.choice((2_000, 1 << 20)),
        compaction_pass_bytes=rng.choice((5_000, 64 << 20)),
    )
    keys = rng.choice((2, 8, 40))
    for name, options in plan.producers.items():
        plan.producers[name] = replace(options, keyed=frozenset((keyed,)), keys=keys)
    if rng.random() < 0.6:
        plan.configs[keyed] |= {
            "cleanup.policy": rng.choice(("compact,delete", "delete,compact")),
            "retention.ms": rng.choice(("9223372036854775807", "100", "500", "2000")),
            "retention.bytes": rng.choice(("-1", "-1", "2000", "10000")),
        }
    if rng.random() < 0.3:
        plan.configs[keyed]["min.compaction.lag.ms"] = rng.choice(("50", "400"))
    if rng.random() < 0.3:
        plan.configs[keyed]["max.compaction.lag.ms"] = rng.choice(("400", "1000"))


def _draw_identities(rng: random.Random, plan: Plan) -> None:
    """Draws producers with names, producers that repeat acknowledged records, and the time after which silent ones are
    forgotten.
    """
    few = plan.cluster.limits.producers_per_partition < len(plan.producers) * 100
    expires = rng.random() < 0.15
    if expires:
        plan.cluster.producer_id_expiration_us = EXPIRATION_US
        plan.quiet_us = max(plan.quiet_us, 2 * EXPIRATION_US)
    for name, options in plan.producers.items():
        if options.acks != ACKS_ALL:
            continue
        named = rng.random() < 0.4
        # A producer that may be forgotten must not repeat records that it sent long ago.
        replays = rng.choice((0.0, 0.3, 1.0)) if named or not (few or expires) else 0.0
        plan.producers[name] = replace(options, named=named, replays=replays)
        if expires:
            within = min(options.delivery_timeout_us, EXPIRATION_US // 2)
            plan.producers[name] = replace(plan.producers[name], delivery_timeout_us=within, gives_up=True)


def _draw_kafka_readers(rng: random.Random, plan: Plan) -> None:
    """Draws readers with Kafka's protocol; then nodes have a port for them, and all records can be translated there."""
    reading = plan.kafka = draw_kafka_reading(rng, plan.partitions)
    if not reading.readers:
        return
    plan.cluster.kafka = tuple(range(1, plan.cluster.nodes + 1))
    if reading.node_sessions is not None:
        plan.cluster.limits = replace(plan.cluster.limits, fetch_sessions=reading.node_sessions)
    for name, options in plan.producers.items():
        plan.producers[name] = replace(options, arrow=True)


def _draw_name_deletions(rng: random.Random, plan: Plan) -> None:
    """Draws deletions of producer names, in half of the seeds with named producers."""
    if plan.producer_names and rng.random() < 0.5:
        plan.name_deletions_us = rng.choice(((10_000, 100_000), (50_000, 400_000)))


def _draw_quorum(rng: random.Random, plan: Plan) -> None:
    """Draws changes of the metadata quorum's voters during faults, in one seed of five."""
    if plan.cluster.nodes > 1 and rng.random() < 0.2:
        plan.quorum_us = rng.choice(((20_000, 200_000), (100_000, 1_000_000), (500_000, 2_000_000)))


def _draw_drains(rng: random.Random, plan: Plan) -> None:
    """Draws drains of nodes: in half of the seeds with more nodes than replicas, and in a few others."""
    nodes, factor = plan.cluster.nodes, plan.cluster.replication_factor
    if nodes > 1 and rng.random() < (0.5 if nodes > factor else 0.05):
        plan.drains_us = rng.choice(((50_000, 500_000), (200_000, 1_500_000), (500_000, 3_000_000)))


def _draw_balance(rng: random.Random, plan: Plan) -> None:
    """Draws rebalance requests where nodes may be uneven, in some seeds; and an effective throttle of copies."""
    if not (plan.moves_us[1] or plan.drains_us[1]):
        return
    if rng.random() < 0.4:
        plan.rebalances_us = rng.choice(((100_000, 1_000_000), (500_000, 3_000_000)))
    if rng.random() < 0.3:
        limit = rng.choice((20_000, 100_000, 500_000))
        plan.cluster.limits = replace(plan.cluster.limits, copy_bytes_per_second=limit)


def _draw_moves(rng: random.Random, plan: Plan) -> None:
    """Draws moves of partitions, in some seeds; in most if there are more nodes than replicas."""
    nodes, factor = plan.cluster.nodes, plan.cluster.replication_factor
    if nodes > 1 and rng.random() < (0.7 if nodes > factor else 0.1):
        plan.moves_us = rng.choice(((20_000, 200_000), (100_000, 1_000_000), (500_000, 2_000_000)))


def _draw_losses(rng: random.Random, plan: Plan) -> None:
    """Draws losses of disks, in one seed of five in which a disk may be lost: with one replica, or with fewer than two
    in sync, committed records may be on that disk alone.
    """
    cluster = plan.cluster
    may_lose = cluster.nodes >= 3 and cluster.replication_factor >= 3 and cluster.min_insync_replicas >= 2
    if cluster.replication_factor % 2 == 0:
        # The node is drained first: to a node without a replica of the partition, and without a witness on its way.
        may_lose = _to_spare(cluster) >= 2
    if may_lose and not cluster.disks_lie and rng.random() < 0.2:
        plan.losses_us = rng.choice(((20_000, 200_000), (100_000, 500_000), (300_000, 1_500_000)))


def _to_spare(cluster: ClusterOptions) -> int:
    """Returns the number of nodes that a partition with a witness leaves free; with machines, at least none."""
    if cluster.machines:
        return 0
    return cluster.nodes - len(cluster.witness_only) - cluster.replication_factor - 1


def _draw_damage(rng: random.Random, plan: Plan) -> None:
    """Draws disks that return other bytes, in an eighth of the seeds; scrubs find damage that is never read."""
    cluster = plan.cluster
    if cluster.nodes < 3 or cluster.replication_factor < 2 or rng.random() > 0.125:
        return
    if cluster.replication_factor % 2 == 0:
        if cluster.machines or (cluster.min_insync_replicas >= cluster.replication_factor and _to_spare(cluster) < 2):
            # Writing could become impossible: no node can replace a damaged replica. One may be occupied by a witness
            # that should be elsewhere.
            return
        plan.damage_moves_us = rng.choice(((50_000, 300_000), (300_000, 1_000_000)))
    weights = plan.faults.weights
    weights["flipped-bits"] = max(1, sum(weights.values()) // rng.choice((1, 3)))
    if rng.random() < 0.5:
        weights["broken-replica"] = max(1, sum(weights.values()) // 8)
    cluster.scrub = ScrubOptions(rng.choice((256 << 10, 8 << 20)), interval_ms=rng.choice((100, 1_000)))


def _draw_repair(rng: random.Random, plan: Plan) -> None:
    """Draws controllers that move partitions automatically, in some seeds: towards balance, and off lost nodes."""
    if plan.cluster.nodes < 3:
        return
    balances, recovers = rng.random() < 0.12, rng.random() < 0.12
    plan.cluster.repair = RepairOptions(
        rng.choice((SECOND // 5, SECOND, 3 * SECOND)) if balances else 0,
        rng.choice((SECOND // 2, 2 * SECOND)) if recovers else 0,
    )


def _draw_groups(rng: random.Random, plan: Plan, certainly: bool) -> None:
    """Draws consumer groups, in a third of the seeds, whose faults last for some sessions."""
    if rng.random() > 0.33 and not certainly:
        return
    timeout_ms = plan.cluster.raft.election_timeout_us // 1_000
    plan.cluster.groups = draw_coordinators(rng, timeout_ms)
    if plan.cluster.replication_factor % 2 == 0:
        plan.cluster.groups = replace(plan.cluster.groups, coordinators_factor=2)
    others = ("|late" if plan.late_topic is not None else "") + ("|probed.*" if plan.metadata_probe else "")
    plan.groups = draw_groups(rng, sorted(plan.topics), others, timeout_ms, max(plan.cluster.clock_rates_ppm))
    plan.groups_stay = rng.random() < 0.5
    plan.faults.duration_us += rng.randint(1_000, 6_000) * timeout_ms
    if rng.random() < 0.6:
        # The usual frequency of faults over so long a time would leave coordinators no time to work.
        least, most = plan.faults.gap_us
        plan.faults.gap_us = (4 * least, 4 * most)


def _draw_rights(rng: random.Random, plan: Plan) -> None:
    """Enables authorization. Anonymous clients, which are all others of the simulation, need no ACLs."""
    audited = rng.random() < 0.5
    plan.rights_us = rng.choice(((5_000, 50_000), (20_000, 200_000)))
    plan.faults.duration_us += SECOND
    # Some nodes reject requests rather than decide by old ACLs. The age is requested with every fifth heartbeat.
    least_ms = 8 * plan.cluster.raft.heartbeat_interval_us // 1_000
    limit_ms = rng.choice((0, least_ms, 2 * least_ms, 5 * least_ms))
    plan.cluster.authorization = AuthorizationOptions(True, frozenset((ANONYMOUS, WRITER)), audited, limit_ms)


def _draw_quotas(rng: random.Random, plan: Plan) -> None:
    """Draws quotas for some clients, super users or not, in most seeds with ACLs."""
    if rng.random() < 0.7:
        plan.quotas_us = rng.choice(((20_000, 300_000), (200_000, 1_500_000)))


def _draw_settings(rng: random.Random, plan: Plan) -> None:
    """Draws changes of settings of nodes in a quarter of the seeds."""
    if rng.random() < 0.25:
        plan.settings_us = rng.choice(((20_000, 200_000), (200_000, 1_000_000)))


# -- the faults -------------------------------------------------------------------------------------------------------


def _draw_faults(rng: random.Random, nodes: int, long: bool) -> FaultPlan:
    possible = [name for name, kind in KINDS.items() if not kind.apart and (nodes > 1 or not kind.needs_peers)]
    chosen = [name for name in possible if rng.random() < 0.4] or ["kill"]
    least, most = rng.choice(((20_000, 80_000), (40_000, 160_000), (50_000, 200_000)))
    if long and rng.random() < 0.5:
        least, most = 8 * least, 8 * most
    return FaultPlan(
        weights={name: rng.choice((1, 1, 2, 5)) for name in chosen},
        gap_us=(least, most),
        tempo=rng.choice((0.3, 1.0)) if long else rng.choice((0.05, 0.15, 0.4)),
        duration_us=rng.randint(6, 12) * SECOND if long else rng.randint(500_000, 1_100_000),
        from_the_start=rng.random() < 0.1,
    )


def draw_kafka_batches(rng: random.Random, producers: dict[str, SimProducerOptions]) -> None:
    """Draws batches of Kafka clients, between others or alone. Named producers have no such clients."""
    if rng.random() > 0.2:
        return
    for name, options in producers.items():
        producers[name] = replace(options, kafka=0.0 if options.named else rng.choice((0.0, 0.3, 1.0)))


def draw_kafka_reading(rng: random.Random, partitions: Sequence[PartitionName]) -> KafkaReading:
    """Draws one or two readers, in one seed of seven."""
    if rng.random() > 1 / 7:
        return KafkaReading()
    readers = [
        KafkaReaderPlan(
            f"kafka-reader-{number}",
            tuple(rng.sample(partitions, min(MOST_READ, len(partitions)))),
            by_id=rng.random() < 0.5,
            names_epochs=rng.random() < 0.5,
            throws_away=rng.choice((0.0, 0.1, 0.4)),
            leaves_out=rng.choice((0.0, 0.05, 0.3)),
            breaks=rng.choice((0.0, 0.02, 0.1)),
            begins_anew=rng.choice((0.0, 0.02, 0.1)),
            max_bytes=rng.choice(((1 << 20,), (300, 4_000, 1 << 20))),
            max_wait_ms=rng.choice((0, 20, 200)),
        )
        for number in range(rng.choice((1, 1, 2)))
    ]
    room = rng.random()
    return KafkaReading(readers, 3 if room < 0.15 else MOST_KEPT_PARTITIONS, 1 if room > 0.85 else None)
