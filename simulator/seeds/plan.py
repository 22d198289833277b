"""What a seed decides before anything happens: every parameter of its cluster, load and faults (swarm testing).

A mix that is the same for all seeds finds one kind of trouble again and again; here each seed leaves most things out
and overdoes a few. The typical seed is short and dense in faults, one in fifty is long.
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

SECOND = 1_000_000
#: Partitions beyond these are written to and compared in the end, but nobody reads them under way.
MOST_WATCHED = 4
#: Silence after which a producer may be forgotten, where seeds have that happen: longer than any of its retries.
EXPIRATION_US = 4 * SECOND
#: A leader may take in that many frames' worth before it has been replicated.
BACKLOG_FRAMES = 40
#: Partitions of one reader in Kafka's sessions.
MOST_READ = 8


@dataclass(slots=True)
class KafkaReading:
    """The readers in Kafka's fetch sessions, and how much nodes keep of those.

    Arguments:
        kept_partitions: how many the sessions at one node's port may have together.
        node_sessions: how many sessions a node keeps; None: as many as others.
    """

    readers: list[KafkaReaderPlan] = field(default_factory=list)
    kept_partitions: int = MOST_KEPT_PARTITIONS
    node_sessions: int | None = None


@dataclass(slots=True)
class FaultPlan:
    """Which faults, how often and for how long.

    Arguments:
        weights: kind of fault to how often it is chosen.
        gap_us: least and most time between two strikes.
        tempo: what the usual lengths of faults (seconds) are multiplied with.
        duration_us: how long strikes go on; longer if there have been few events by then.
        from_the_start: strikes begin before the cluster has formed.
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
        late_topic: partitions of a topic that comes to be in the midst of it all, and when (µs); None without one.
        producers: by name.
        probe_us: time between a probe's questions.
        reads_on: consumers and probes go on while the cluster heals.
        quiet_us: how long nothing may happen once the cluster has healed.
        metadata_probe: whether somebody creates topics and reads the metadata linearizably.
        configs: what is set on each topic.
        deletions_us: time between deletions of records by command; (0, 0) for none.
        name_deletions_us: time between deletions of producer names; (0, 0) for none.
        look_ups_us: time between look-ups of times; (0, 0) for none.
        moves_us: time between two wishes to move a partition; (0, 0): never.
        drains_us: time between two wishes that a node be drained, or stay; (0, 0): never.
        rebalances_us: time between two wishes that partitions be spread evenly; (0, 0): never.
        quorum_us: time between two wishes that others vote in the metadata quorum; (0, 0): never.
        losses_us: time between two things that are done to lose and replace disks; (0, 0): none is lost.
        damage_moves_us: time between two looks for partitions that are to be moved away from damaged replicas; (0, 0):
            never.
        rights_us: time between two changes of what clients may do; (0, 0): nobody is asked for permission.
        quotas_us: time between two changes of how much they may do; (0, 0): nobody is limited.
        groups: consumer groups.
        groups_stay: their members are still there while nothing may happen.
        classic_groups: those whose members assign.
        kafka: consumers of Kafka's protocol.
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
    watched: list[PartitionName] = field(default_factory=list)
    groups: list[GroupPlan] = field(default_factory=list)
    groups_stay: bool = False
    classic_groups: list[ClassicPlan] = field(default_factory=list)
    kafka: KafkaReading = field(default_factory=KafkaReading)

    @property
    def compacted(self) -> set[str]:
        """Topics of which only the last record of each key is kept."""
        return {topic for topic, configs in self.configs.items() if configs.get("cleanup.policy") == "compact"}

    @property
    def partitions(self) -> list[PartitionName]:
        """Every partition that clients use from the beginning."""
        return [PartitionName(name, number) for name, count in self.topics.items() for number in range(count)]

    @property
    def producer_names(self) -> list[str]:
        """The names that producers claim: one for each partition."""
        named = [name for name, options in self.producers.items() if options.named]
        return [claimed_name(name, partition) for name in named for partition in self.partitions]


def draw_plan(seed: int, with_groups: bool = False, with_rights: bool = False) -> Plan:
    """The plan of a seed.

    Arguments:
        with_groups: it has consumer groups, whether or not it would have some of itself.
        with_rights: clients need permission, but for those that do without.
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
        # Longer than any election timeout, so that an election that nothing caused has time to happen.
        quiet_us=10 * SECOND if rng.random() < 0.02 else 2 * cluster.raft.election_timeout_us + SECOND // 5,
        metadata_probe=rng.random() < 0.25,
    )
    _bound_backlog(cluster)
    _draw_witnesses(random.Random(f"{seed}/witnesses"), plan.cluster)
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
    plan.watched = rng.sample(plan.partitions, min(MOST_WATCHED, len(plan.partitions)))
    return plan


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
        # Where it is on, preferred leaders must lead in the end; even the longest backoff is over then.
        balance=BalanceOptions(
            enabled=rng.random() < 0.7,
            check_interval_us=SECOND // 20,
            grace_us=rng.choice((0, SECOND // 10, SECOND // 2)),
            max_transfers=rng.choice((1, 10)),
        ),
    )


def _draw_witnesses(rng: random.Random, options: ClusterOptions) -> None:
    """In a quarter of the seeds that have the nodes for it, every partition has two copies, or four, and a witness."""
    if options.nodes < 3 or options.replication_factor < 3 or rng.random() > 0.25:
        return
    options.replication_factor = 4 if options.nodes == 5 and rng.random() < 0.5 else 2
    options.min_insync_replicas = min(options.min_insync_replicas, options.replication_factor)
    options.limits = replace(options.limits, witness_traces=rng.choice((1, 4, 20, 1_000)))
    if rng.random() < 0.3:
        options.witness_only = tuple(rng.sample(range(1, options.nodes + 1), rng.choice((1, 1, 2))))
        # Enough are left for the copies.
        options.witness_only = options.witness_only[: options.nodes - options.replication_factor]


def _draw_snapshots(rng: random.Random, options: ClusterOptions) -> None:
    """Snapshots that come often; small slices make many of every transfer, so that faults fall between them."""
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
    """Limits small enough to be met, in some seeds."""
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
    """What a leader may take in has to be replicated once all is healed. One frame of 400 bytes to a peer at a time
    carries 13 KiB a second over a slow network between slow disks: 64 MiB would take hours."""
    largest = BACKLOG_FRAMES * options.limits.frame_bytes
    options.raft = replace(options.raft, max_uncommitted_bytes=min(options.raft.max_uncommitted_bytes, largest))


# -- the load ---------------------------------------------------------------------------------------------------------


def _draw_topics(rng: random.Random) -> dict[str, int]:
    if rng.random() < 0.03:
        return {"many": rng.randint(12, 36)}
    return {f"topic{number}": rng.randint(1, 2) for number in range(rng.choice((1, 1, 1, 1, 2)))}


def _draw_producers(rng: random.Random, pace: float) -> dict[str, SimProducerOptions]:
    """One to three idempotent producers, and sometimes one that fires and hopes. Some seeds have long silences between
    bursts, so that groups fall asleep and wake."""
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
    """Logs that lose their beginning, by bytes, by time and by command; in a third of all seeds nothing ever goes."""
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
    """A topic of which only the last record of each key is kept; small limits make many passes of many pieces."""
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


def _draw_identities(rng: random.Random, plan: Plan) -> None:
    """Who produces under a name, who sends again what is acknowledged, and how soon the silent are forgotten."""
    few = plan.cluster.limits.producers_per_partition < len(plan.producers) * 100
    expires = rng.random() < 0.15
    if expires:
        plan.cluster.producer_id_expiration_us = EXPIRATION_US
        plan.quiet_us = max(plan.quiet_us, 2 * EXPIRATION_US)
    for name, options in plan.producers.items():
        if options.acks != ACKS_ALL:
            continue
        named = rng.random() < 0.4
        # Whoever may be forgotten must not send again what it sent long ago.
        replays = rng.choice((0.0, 0.3, 1.0)) if named or not (few or expires) else 0.0
        plan.producers[name] = replace(options, named=named, replays=replays)
        if expires:
            within = min(options.delivery_timeout_us, EXPIRATION_US // 2)
            plan.producers[name] = replace(plan.producers[name], delivery_timeout_us=within, gives_up=True)


def _draw_kafka_readers(rng: random.Random, plan: Plan) -> None:
    """Where Kafka's clients read, nodes have a port for them, and all that is written can be translated there."""
    reading = plan.kafka = draw_kafka_reading(rng, plan.partitions)
    if not reading.readers:
        return
    plan.cluster.kafka = tuple(range(1, plan.cluster.nodes + 1))
    if reading.node_sessions is not None:
        plan.cluster.limits = replace(plan.cluster.limits, fetch_sessions=reading.node_sessions)
    for name, options in plan.producers.items():
        plan.producers[name] = replace(options, arrow=True)


def _draw_name_deletions(rng: random.Random, plan: Plan) -> None:
    """Where producers have names, in half of the seeds somebody deletes them under their hands."""
    if plan.producer_names and rng.random() < 0.5:
        plan.name_deletions_us = rng.choice(((10_000, 100_000), (50_000, 400_000)))


def _draw_quorum(rng: random.Random, plan: Plan) -> None:
    """One seed in five changes who votes in the metadata quorum, as long as it is hurt."""
    if plan.cluster.nodes > 1 and rng.random() < 0.2:
        plan.quorum_us = rng.choice(((20_000, 200_000), (100_000, 1_000_000), (500_000, 2_000_000)))


def _draw_drains(rng: random.Random, plan: Plan) -> None:
    """Where there are more nodes than replicas, nodes are drained in half of the seeds; of others in a few."""
    nodes, factor = plan.cluster.nodes, plan.cluster.replication_factor
    if nodes > 1 and rng.random() < (0.5 if nodes > factor else 0.05):
        plan.drains_us = rng.choice(((50_000, 500_000), (200_000, 1_500_000), (500_000, 3_000_000)))


def _draw_balance(rng: random.Random, plan: Plan) -> None:
    """Where nodes may be uneven, somebody wants balance in some seeds; and copies have a limit that is felt."""
    if not (plan.moves_us[1] or plan.drains_us[1]):
        return
    if rng.random() < 0.4:
        plan.rebalances_us = rng.choice(((100_000, 1_000_000), (500_000, 3_000_000)))
    if rng.random() < 0.3:
        limit = rng.choice((20_000, 100_000, 500_000))
        plan.cluster.limits = replace(plan.cluster.limits, copy_bytes_per_second=limit)


def _draw_moves(rng: random.Random, plan: Plan) -> None:
    """Partitions that are moved about, in some seeds; where there are more nodes than replicas, in most."""
    nodes, factor = plan.cluster.nodes, plan.cluster.replication_factor
    if nodes > 1 and rng.random() < (0.7 if nodes > factor else 0.1):
        plan.moves_us = rng.choice(((20_000, 200_000), (100_000, 1_000_000), (500_000, 2_000_000)))


def _draw_losses(rng: random.Random, plan: Plan) -> None:
    """Nodes that lose their disks, in one seed of five where a disk may be lost: with one replica, or with fewer than
    two in sync, what is committed may be on that disk alone."""
    cluster = plan.cluster
    may_lose = cluster.nodes >= 3 and cluster.replication_factor >= 3 and cluster.min_insync_replicas >= 2
    if cluster.replication_factor % 2 == 0:
        # The node is drained first: to where nothing of a partition is yet, nor a witness that was to be moved there.
        to_spare = cluster.nodes - len(cluster.witness_only) - cluster.replication_factor - 1
        may_lose = to_spare >= 2
    if may_lose and not cluster.disks_lie and rng.random() < 0.2:
        plan.losses_us = rng.choice(((20_000, 200_000), (100_000, 500_000), (300_000, 1_500_000)))


def _draw_damage(rng: random.Random, plan: Plan) -> None:
    """Disks that give other bytes back, in an eighth of the seeds; what nobody reads, scrubs find."""
    cluster = plan.cluster
    if cluster.nodes < 3 or cluster.replication_factor < 2 or rng.random() > 0.125:
        return
    if cluster.replication_factor % 2 == 0:
        to_spare = cluster.nodes - len(cluster.witness_only) - cluster.replication_factor - 1
        if cluster.min_insync_replicas >= cluster.replication_factor and to_spare < 2:
            # Nothing could be written any more: no node can take the place of a damaged replica. One may be taken by a
            # witness that was to be elsewhere.
            return
        plan.damage_moves_us = rng.choice(((50_000, 300_000), (300_000, 1_000_000)))
    weights = plan.faults.weights
    weights["flipped-bits"] = max(1, sum(weights.values()) // rng.choice((1, 3)))
    if rng.random() < 0.5:
        weights["broken-replica"] = max(1, sum(weights.values()) // 8)
    cluster.scrub = ScrubOptions(rng.choice((256 << 10, 8 << 20)), interval_ms=rng.choice((100, 1_000)))


def _draw_repair(rng: random.Random, plan: Plan) -> None:
    """Controllers that move partitions by themselves, in some seeds: towards balance, and off nodes that are gone."""
    if plan.cluster.nodes < 3:
        return
    balances, recovers = rng.random() < 0.12, rng.random() < 0.12
    plan.cluster.repair = RepairOptions(
        rng.choice((SECOND // 5, SECOND, 3 * SECOND)) if balances else 0,
        rng.choice((SECOND // 2, 2 * SECOND)) if recovers else 0,
    )


def _draw_groups(rng: random.Random, plan: Plan, certainly: bool) -> None:
    """Consumer groups, in a third of the seeds: there faults go on for some sessions."""
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
        # So many faults as usual in so long a time would leave no coordinator the time to do anything.
        least, most = plan.faults.gap_us
        plan.faults.gap_us = (4 * least, 4 * most)


def _draw_rights(rng: random.Random, plan: Plan) -> None:
    """Nodes ask for permission. Whoever is nobody in particular needs none: all other clients of the simulation."""
    audited = rng.random() < 0.5
    plan.rights_us = rng.choice(((5_000, 50_000), (20_000, 200_000)))
    plan.faults.duration_us += SECOND
    # Some would rather serve nothing than decide by old rules. How old they are is asked for every fifth heartbeat.
    least_ms = 8 * plan.cluster.raft.heartbeat_interval_us // 1_000
    limit_ms = rng.choice((0, least_ms, 2 * least_ms, 5 * least_ms))
    plan.cluster.authorization = AuthorizationOptions(True, frozenset((ANONYMOUS, WRITER)), audited, limit_ms)


def _draw_quotas(rng: random.Random, plan: Plan) -> None:
    """In most seeds with clients that need permission, some of them are limited as well, super users or not."""
    if rng.random() < 0.7:
        plan.quotas_us = rng.choice(((20_000, 300_000), (200_000, 1_500_000)))


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
    """Batches of Kafka's clients, between others or alone. Named producers have no such clients."""
    if rng.random() > 0.2:
        return
    for name, options in producers.items():
        producers[name] = replace(options, kafka=0.0 if options.named else rng.choice((0.0, 0.3, 1.0)))


def draw_kafka_reading(rng: random.Random, partitions: Sequence[PartitionName]) -> KafkaReading:
    """One reader or two, in one seed of seven."""
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
