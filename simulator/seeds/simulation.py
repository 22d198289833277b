"""One seed: a cluster is formed, loaded, has faults and is healed; it must converge, and its history must be valid."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import ClassVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.checkers import check
from quorumlog.chaos.checkers.group_checkers import GroupVerdict, check_groups
from quorumlog.chaos.checkers.group_history import GroupHistory, Part
from quorumlog.chaos.checkers.history import History
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.consumer_groups.classic_groups import SimClassicGroup
from quorumlog.simulator.consumer_groups.group_probe import GroupProbe
from quorumlog.simulator.consumer_groups.groups import SimGroup
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.fault_schedule import InjectedFault, SimFaults
from quorumlog.simulator.seeds.plan import SECOND, draw_plan
from quorumlog.simulator.world.clients import PartitionName, SimProducer, Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.convergence import (
    Calm,
    committed_end,
    missing_for_convergence,
    unfinished_changes,
)
from quorumlog.simulator.world.damage_mover import DamageMover
from quorumlog.simulator.world.kafka_readers import SimKafkaReader, session_spaces
from quorumlog.simulator.world.limited_clients import WRITER_HABITS, WRITER_NAME, QuotaChanger
from quorumlog.simulator.world.metadata_probe import MetadataProbe
from quorumlog.simulator.world.operators import (
    DiskLoser,
    NameDeleter,
    NodeDrainer,
    PartitionMover,
    QuorumChanger,
    Rebalancer,
    RecordDeleter,
    TimeProbe,
)
from quorumlog.simulator.world.readers import PLAIN, EndOffsetProbe, ReaderOptions, SimConsumer
from quorumlog.simulator.world.restricted_clients import PRINCIPALS, RestrictedClient, RightsChanger
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.simulator.world.settings_changer import SettingsChanger
from quorumlog.simulator.world.transactional_clients import TOPICS, TransactionLoad, transaction_loads
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

FORMATION_US = 30 * SECOND
CONVERGENCE_US = 120 * SECOND
#: Time between two requests of a client that needs ACLs.
RESTRICTED_US = (2_000, 30_000)
#: A seed continues its rest until it has had this many events.
LEAST_EVENTS = 2_000
#: Faults continue until there have been this many events, and at most for this long.
LEAST_EVENTS_HURT = 1_000
MOST_FAULTS_US = 60 * SECOND
MOST_REST_US = 300 * SECOND
FALL_ASLEEP_US = 3 * SECOND
#: Time after which a leave has certainly been received.
LEAVE_US = SECOND
#: Time limit of any request.
MOST_WAITING_US = 8 * SECOND
#: Time after which no message that was delayed by a network spike is in flight.
SPIKES_END_US = SECOND // 10
#: Interval of the convergence check, which reads every log.
CONVERGENCE_CHECK_US = SECOND // 10


@dataclass(slots=True)
class SeedResult:
    """Result of one seed. ``violation`` is None if all invariants hold; otherwise the run ended with it, so that
    ``events``, ``steps`` (of all nodes together) and ``virtual_us`` show its progress.

    For consumer groups: their number, the number of changes of their state, processed records, records processed again
    (by reason), and events of members.
    """

    seed: int
    events: int = 0
    steps: int = 0
    acknowledged: int = 0
    operations: int = 0
    elections: int = 0
    virtual_us: int = 0
    struck: list[InjectedFault] = field(default_factory=list)
    trace: str = ""
    violation: str | None = None
    traceback: str = ""
    groups: int = 0
    group_commands: int = 0
    group_records: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def faults(self) -> Counter[str]:
        """The number of faults of each kind."""
        return Counter(fault.kind for fault in self.struck)


class Simulation:
    """Runs one seed.

    Arguments:
        seed: determines everything.
        only_faults: the numbers of the faults to inject; None for all of the seed.
        disks_lie: plants a fault: disks report completion before the sync. The run must then fail.
        with_groups: use consumer groups in any case.
        with_rights: authorization is on, with clients that need ACLs, and changes of these.
        with_machines: several nodes share a machine in any case.
    """

    #: Use transactions, on a topic of their own.
    with_transactions: ClassVar[bool] = False

    def __init__(
        self,
        seed: int,
        only_faults: Container[int] | None = None,
        disks_lie: bool = False,
        with_groups: bool = False,
        with_rights: bool = False,
        with_machines: bool = False,
    ) -> None:
        self.seed = seed
        self.plan = draw_plan(seed, with_groups, with_rights, with_machines, self.with_transactions)
        self.plan.cluster.disks_lie = disks_lie
        self.scheduler = Scheduler(seed)
        self.history = History()
        self.group_history = GroupHistory()
        self.cluster = SimCluster(self.scheduler, self.plan.cluster)
        self._only_faults = only_faults
        self._rng = self.scheduler.stream("story")
        self._topics = dict(self.plan.topics)
        self.transactions: list[TransactionLoad] = []
        if self.plan.transactions is not None:
            for topic in TOPICS:
                self._topics[topic] = self.plan.transactions.partitions
                self.plan.configs[topic] = self.plan.transactions.configs
        self._producers: list[SimProducer] = []
        self._consumers: list[SimConsumer] = []
        self._groups: list[SimGroup] = []
        self._classic_groups: list[SimClassicGroup] = []
        self._kafka_readers: list[SimKafkaReader] = []
        self._group_ends: dict[Part, int] = {}
        self._verdict = GroupVerdict()
        self._faults: SimFaults | None = None
        self._damage_mover: DamageMover | None = None
        self._settings_changer: SettingsChanger | None = None
        self._created: set[str] = set()
        self._readers_stopped = False
        self._healed = False

    def run(self) -> SeedResult:
        """Runs to the end, or to the first violation."""
        violation: str | None = None
        trace = ""
        try:
            self._form()
            self._start_transactions()
            self._load_and_hurt()
            self._converge()
            self._read_all()
            self._settle_groups()
            self._rest()
            self._judge_groups()
            found = [f"{anomaly.invariant}: {anomaly.message}" for anomaly in check(self.history)]
            found += [f"{anomaly.invariant}: {anomaly.message}" for anomaly in self._verdict.anomalies]
            if found:
                violation = "; ".join(found[:3])
        except Violation as broken:
            violation = str(broken)
        except Exception as error:  # any exception of the node's code is a finding, with its seed
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
            violation = f"{type(error).__name__} at {where}: {error}"
            trace = traceback.format_exc()
        return SeedResult(
            seed=self.seed,
            events=self.scheduler.executed,
            steps=self.cluster.steps,
            acknowledged=sum(producer.acknowledged for producer in self._producers),
            operations=len(self.history),
            elections=self.cluster.invariants.elections,
            virtual_us=self.scheduler.now,
            struck=[] if self._faults is None else self._faults.struck,
            trace=self.scheduler.trace_hash(),
            violation=violation,
            traceback=trace,
            groups=len(self._all_groups),
            group_commands=self.cluster.invariants.coordinators.commands,
            group_records=self._verdict.processed,
            duplicates=self._verdict.duplicates,
            happened=sum((Counter(group.happened) for group in self._all_groups), Counter()),
        )

    # -- the run --------------------------------------------------------------------------------------------------

    def _form(self) -> None:
        for node in self.cluster.node_ids:
            self.scheduler.after(self._rng.randint(0, 100_000), lambda node=node: self._start(node))  # type: ignore[misc]
        for name in self._topics:
            self._create(name)
        if self.plan.settings_us[1]:
            self._settings_changer = SettingsChanger(
                self.cluster, self.scheduler, lambda: self._healed, self.plan.settings_us
            )
        if self.plan.faults.from_the_start:
            self._hurt()
            return
        if not self.scheduler.run(FORMATION_US, lambda: len(self._created) == len(self._topics)):
            missing = sorted(set(self._topics) - self._created)
            raise Violation(f"no topic {missing} after {FORMATION_US // SECOND} s without any fault")

    def _start_transactions(self) -> None:
        if self.plan.transactions is not None:
            self.transactions = transaction_loads(self.plan.transactions, self.cluster, self.scheduler)

    def _start(self, node: int) -> None:
        if not self.cluster.processes[node].running:
            self.cluster.start(node)

    def _hurt(self) -> None:
        self._faults = SimFaults(self.cluster, self.scheduler, self.plan.faults, self._only_faults)

    def _create(self, name: str) -> None:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        request.topics.add(
            name=name,
            num_partitions=self._topics[name],
            replication_factor=self.plan.cluster.replication_factor,
            configs={
                "min.insync.replicas": str(self.plan.cluster.min_insync_replicas),
                **self.plan.configs.get(name, {}),
            },
        )

        finished = False

        def answered(answer: ProtoMessage | Unanswered) -> None:
            nonlocal finished
            if finished or name in self._created:
                return
            finished = True
            if isinstance(answer, admin_pb2.CreateTopicsResponse) and answer.results[0].error.code in (
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ):
                self._created.add(name)
            else:
                self.scheduler.after(100_000, lambda: self._create(name))

        self.cluster.request("admin", self._rng.choice(self.cluster.node_ids), request, answered)
        # A node that is paused or isolated answers late or never; then another one is tried.
        self.scheduler.after(2 * SECOND, lambda: answered(Unanswered.LOST))

    def _load_and_hurt(self) -> None:
        for name, options in self.plan.producers.items():
            self._producers.append(
                SimProducer(
                    name, self.plan.partitions, self.cluster, self.scheduler, options, self.history, self.cluster
                )
            )
        for partition in self.plan.watched:
            self._watch(partition)
        spaces = session_spaces(self.cluster.node_ids, self.plan.kafka.kept_partitions)
        for reader in self.plan.kafka.readers:
            self._kafka_readers.append(SimKafkaReader(reader, self.cluster, self.scheduler, self.history, spaces))
        for kind, interval_us in ((RecordDeleter, self.plan.deletions_us), (TimeProbe, self.plan.look_ups_us)):
            if interval_us[1] and set(self.plan.topics) - self.plan.compacted:
                kind(
                    kind.__name__,
                    [partition for partition in self.plan.partitions if partition.topic not in self.plan.compacted],
                    self.cluster,
                    self.scheduler,
                    lambda: self._readers_stopped,
                    interval_us,
                )
        if self.plan.name_deletions_us[1]:
            names, interval_us = self.plan.producer_names, self.plan.name_deletions_us
            NameDeleter(names, self.cluster, self.scheduler, lambda: self._healed, interval_us)
        even = self.cluster.options.replication_factor % 2 == 0
        if self.plan.moves_us[1]:
            PartitionMover(
                self.cluster,
                self.scheduler,
                self.plan.partitions,
                self.cluster.options.min_insync_replicas,
                lambda: self._healed,
                self.plan.moves_us,
                even=even,
                spared=int(even and self.plan.losses_us[1] > 0) + len(self.cluster.options.witness_only),
            )
        if self.plan.quorum_us[1]:
            QuorumChanger(
                self.cluster, self.scheduler, lambda: self._healed, self.plan.quorum_us, self._are_metadata_whole
            )
        if self.plan.drains_us[1]:
            NodeDrainer("node drainer", self.cluster, self.scheduler, lambda: self._healed, self.plan.drains_us)
        if self.plan.rebalances_us[1]:
            Rebalancer("rebalancer", self.cluster, self.scheduler, lambda: self._healed, self.plan.rebalances_us)
        if self.plan.losses_us[1]:
            DiskLoser(self.cluster, self.scheduler, lambda: self._healed, self.plan.losses_us)
        if self.plan.rights_us[1]:
            self._restrict()
        if self.plan.quotas_us[1]:
            self._limit()
        if self.plan.damage_moves_us[1]:
            self._damage_mover = DamageMover(
                self.cluster,
                self.scheduler,
                self.cluster.options.min_insync_replicas,
                self.plan.damage_moves_us,
            )
        if self.plan.metadata_probe:
            MetadataProbe(
                self.cluster,
                self.scheduler,
                self.cluster.options.replication_factor,
                lambda: self._readers_stopped,
                self.plan.probe_us,
            )
        for classic in self.plan.classic_groups:
            self._classic_groups.append(SimClassicGroup(classic, self.cluster, self.scheduler))
        for group in self.plan.groups:
            self._groups.append(SimGroup(group, self.cluster, self.scheduler, self.group_history))
            GroupProbe(
                group.name,
                self.cluster,
                self.scheduler,
                self.cluster.invariants.coordinators,
                lambda: self._readers_stopped,
                self.plan.probe_us,
            )
        if self.plan.late_topic is not None:
            # A topic is created during the run; convergence requires that its replicas agree too.
            self._topics["late"], delay = self.plan.late_topic
            self.scheduler.after(delay, lambda: self._create("late"))
        if self._faults is None:
            self._hurt()
        begin = self.scheduler.now
        self.scheduler.run(begin + self.plan.faults.duration_us)
        self.scheduler.run(begin + MOST_FAULTS_US, lambda: self.scheduler.executed >= LEAST_EVENTS_HURT)

    def _restrict(self) -> None:
        """Starts clients that need ACLs, and a client that changes these."""
        RightsChanger(
            [*self.plan.topics, "late"], self.cluster, self.scheduler, lambda: self._healed, self.plan.rights_us
        )
        for number, principal in enumerate((*PRINCIPALS, *PRINCIPALS)):
            RestrictedClient(
                f"restricted-{number}",
                principal,
                self.plan.partitions,
                self.cluster,
                self.scheduler,
                lambda: self._healed,
                RESTRICTED_US,
            )

    def _limit(self) -> None:
        """Starts a client that writes as much as its quota allows, and a client that changes quotas."""
        QuotaChanger(self.cluster, self.scheduler, lambda: self._healed, self.plan.quotas_us)
        is_translated = bool(self._kafka_readers)
        habits = replace(WRITER_HABITS, keyed=frozenset(self.plan.compacted), arrow=is_translated)
        writer = SimProducer(
            WRITER_NAME, self.plan.partitions, self.cluster, self.scheduler, habits, self.history, self.cluster
        )
        self._producers.append(writer)

    def _watch(self, partition: PartitionName) -> None:
        """Starts the readers of a partition."""
        self._consumers.append(self._consumer(f"consumer-{partition}", partition))
        if self.plan.replica_readers:
            wanders = ReaderOptions(from_replicas=True)
            self._consumers.append(self._consumer(f"wanderer-{partition}", partition, wanders))
        EndOffsetProbe(
            f"probe-{partition}",
            partition,
            self.cluster,
            self.scheduler,
            self.history,
            lambda: self._readers_stopped,
            self.plan.probe_us,
        )

    def _consumer(self, name: str, partition: PartitionName, options: ReaderOptions = PLAIN) -> SimConsumer:
        return SimConsumer(name, partition, self.cluster, self.scheduler, self.history, self.cluster, options)

    def _are_metadata_whole(self) -> bool:
        return not any(each.disk.damaged.get(METADATA_GROUP) for each in self.cluster.processes.values())

    def _converge(self) -> None:
        assert self._faults is not None
        self._faults.end()
        self._healed = True
        self.cluster.heal()
        for producer in self._producers:
            producer.stop()
        for group in self._all_groups:
            group.heal()
        for reader in self._kafka_readers:
            reader.heal()
        for load in self.transactions:
            load.heal()
        if not self.plan.reads_on:
            self._stop_readers()
        end = self.scheduler.now + CONVERGENCE_US
        missing = "everything"
        while self.scheduler.now < end:
            self.scheduler.run(self.scheduler.now + CONVERGENCE_CHECK_US)
            missing = missing_for_convergence(self.cluster, self._topics, self._producers)
            if not missing and self._damage_mover is not None:
                missing = self._damage_mover.missing()
            missing = missing or next((found for load in self.transactions if (found := load.missing())), "")
            if not missing and self._settings_changer is not None:
                missing = self._settings_changer.missing(
                    {node: process.image for node, process in self.cluster.processes.items()}
                )
            if not missing:
                for load in self.transactions:
                    load.stop()
                    load.judge()
                return
        raise Violation(f"no convergence {CONVERGENCE_US // SECOND} s after healing: {missing}")

    def _stop_readers(self) -> None:
        self._readers_stopped = True
        for consumer in self._consumers:
            consumer.stop()

    def _read_all(self) -> None:
        self._stop_readers()
        ends = {name: committed_end(self.cluster, name) for name in self.plan.partitions}
        read = [name for name, end in ends.items() if end or len(ends) < 5]
        finals = [self._consumer(f"final-{name}", name, ReaderOptions(final=True)) for name in read]
        if self.plan.replica_readers:
            everywhere = ReaderOptions(final=True, from_replicas=True)
            finals += [self._consumer(f"last-{name}", name, everywhere) for name in read]

        def done() -> bool:
            return all(reader.position >= ends[reader.partition] for reader in finals) and not any(
                reader.behind(ends) for reader in self._kafka_readers
            )

        if not self.scheduler.run(self.scheduler.now + 30 * SECOND, done) and not done():
            for kafka in self._kafka_readers:
                if kafka.behind(ends):
                    raise Violation(f"{kafka.plan.name} does not reach the end: {', '.join(kafka.behind(ends))}")
            behind = [f"{r.partition} at {r.position} of {ends[r.partition]}" for r in finals]
            raise Violation(f"a fresh reader does not reach the end: {', '.join(behind)}")
        for reader in finals:
            reader.stop()
        for kafka in self._kafka_readers:
            kafka.stop()

    def _settle_groups(self) -> None:
        """Waits until every group is stable and balanced, and at the end of its topics."""
        end = self.scheduler.now + CONVERGENCE_US
        missing = self._missing_in_groups()
        while missing:
            if self.scheduler.now >= end:
                raise Violation(f"a group does not settle within {CONVERGENCE_US // SECOND} s: {missing}")
            self.scheduler.run(self.scheduler.now + CONVERGENCE_CHECK_US)
            missing = self._missing_in_groups()
        for group in self._groups:
            self._group_ends |= group.ends()
            if not self.plan.groups_stay:
                group.leave()
        for classic in self._classic_groups:
            # Their commits would continue during the time without activity.
            classic.leave()
        if self._groups:
            self.scheduler.run(self.scheduler.now + LEAVE_US)

    def _missing_in_groups(self) -> str:
        return next((missing for group in self._all_groups if (missing := group.missing())), "")

    @property
    def _all_groups(self) -> list[SimGroup | SimClassicGroup]:
        """Groups of both kinds."""
        return [*self._groups, *self._classic_groups]

    def _judge_groups(self) -> None:
        for group in self._groups:
            group.end()
        clock_ppm = max(abs(rate) for rate in self.cluster.options.clock_rates_ppm)
        tolerance_us = max(
            (
                max(group.plan.habits.session_timeout_ms, group.plan.kafka_session_ms)
                * (clock_ppm + group.plan.clock_ppm)
                // 1_000
                for group in self._groups
            ),
            default=0,
        )
        self._verdict = check_groups(self.group_history, self._group_ends, tolerance_us, knows_when_work_ends=True)

    def _wait_for_changes(self, calm: Calm) -> None:
        """Waits until the nodes have finished the changes that the last requests of clients caused."""
        end = self.scheduler.now + CONVERGENCE_US
        unfinished = unfinished_changes(self.cluster)
        if not unfinished:
            return
        while unfinished:
            if self.scheduler.now >= end:
                raise Violation(f"the nodes do not finish a change within {CONVERGENCE_US // SECOND} s: {unfinished}")
            self.scheduler.run(self.scheduler.now + CONVERGENCE_CHECK_US)
            unfinished = unfinished_changes(self.cluster)
        calm.changes_finished()

    def _rest(self) -> None:
        """Checks a time without requests and faults: no node may campaign."""
        self.cluster.network.spiky = False
        self.scheduler.run(self.scheduler.now + SPIKES_END_US)
        calm = Calm(self.cluster)
        self._wait_for_changes(calm)
        self.scheduler.run(self.scheduler.now + self.plan.quiet_us)
        self.scheduler.run(self.scheduler.now + MOST_REST_US, lambda: self.scheduler.executed >= LEAST_EVENTS)
        # A late message of the controller may just have woken a group.
        end = self.scheduler.now + FALL_ASLEEP_US
        while calm.awake() and self.scheduler.now < end:
            self.scheduler.run(self.scheduler.now + CONVERGENCE_CHECK_US)
        calm.check()
        for node, process in self.cluster.processes.items():
            forgotten = process.waiting_since(self.scheduler.now - MOST_WAITING_US)
            if forgotten:
                raise Violation(f"node {node} has not answered {forgotten} within {MOST_WAITING_US // SECOND} s")
