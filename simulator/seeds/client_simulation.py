"""One seed with the shipped clients: they work on a cluster while both have faults, and all reported results are
checked.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from quorumlog.chaos.checkers.group_checkers import GroupVerdict, check_groups
from quorumlog.chaos.checkers.group_history import GroupHistory, Part
from quorumlog.sdk.types import NewTopic
from quorumlog.simulator.clients.admin_load import AdminLoad, Deletion, check_deletions
from quorumlog.simulator.clients.backup_judge import BackupJudge
from quorumlog.simulator.clients.backup_load import BackupLoad
from quorumlog.simulator.clients.client_faults import ClientFaults, ClientLoad
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.clients.consumer_load import ConsumerLoad
from quorumlog.simulator.clients.group_load import MemberLoad, part_name
from quorumlog.simulator.clients.producer_load import ProducerLoad
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.fault_schedule import InjectedFault, SimFaults
from quorumlog.simulator.seeds.faults import KINDS
from quorumlog.simulator.seeds.plan import SECOND, draw_plan
from quorumlog.simulator.seeds.plan_backups import draw_backups
from quorumlog.simulator.seeds.plan_clients import draw_clients, draw_racks
from quorumlog.simulator.seeds.restore_simulation import RestoreSimulation
from quorumlog.simulator.seeds.simulation import SeedResult
from quorumlog.simulator.world.clients import PartitionName
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.wire.entry import parse_header
from quorumlog.wire.topic_names import is_internal

#: Time limit for clients to finish after all faults have ended.
SETTLING_US = 120 * SECOND
CHECK_US = SECOND // 10


class ClientSimulation:
    """Runs one seed with the shipped clients.

    Arguments:
        seed: determines everything.
        with_groups: use consumer groups.
    """

    def __init__(self, seed: int, with_groups: bool) -> None:
        self.seed = seed
        # Coordinators are drawn with groups; a seed without groups ignores them.
        plan = draw_plan(seed, with_groups=True)
        # Producers that a partition forgets while they retry are left to other seeds.
        plan.cluster.limits = replace(plan.cluster.limits, producers_per_partition=5_000)
        plan.cluster.producer_id_expiration_us = 86_400 * SECOND
        if plan.damage_moves_us[1]:
            # Damaged replicas beside witnesses wait for an operator, whom these seeds lack.
            weights = plan.faults.weights
            plan.faults.weights = {kind: weights[kind] for kind in weights if not KINDS[kind].apart}
        if with_groups:
            # Records that retention removes before a member has processed them are skipped unseen: that could not be
            # judged.
            plan.faults.weights.pop("alter-retention", None)
            plan.faults.weights = plan.faults.weights or {"kill": 1}
        self.plan = plan
        self.scheduler = Scheduler(seed)
        rng = self.scheduler.stream("clients plan")
        self.clients = draw_clients(rng, with_groups, plan.cluster.raft.election_timeout_us // 1_000)
        if plan.replica_readers:
            plan.cluster.racks = tuple(f"rack{number}" for number in range(plan.cluster.nodes))
            draw_racks(self.scheduler.stream("racks"), self.clients, plan.cluster.racks)
        self.backups = draw_backups(self.scheduler.stream("backups plan"))
        self.cluster = SimCluster(self.scheduler, plan.cluster)
        self.network = SimClientNetwork(self.cluster, self.scheduler)
        self.values = CommittedValues(self.cluster)
        self.history = GroupHistory()
        self._deletions: list[Deletion] = []
        self._producers: list[ProducerLoad] = []
        self._consumers: list[ConsumerLoad] = []
        self._members: list[MemberLoad] = []
        self._admins: list[AdminLoad] = []
        self._backup: BackupLoad | None = None
        self._restore: RestoreSimulation | None = None
        self._faults: SimFaults | None = None
        self._client_faults: ClientFaults | None = None
        self._verdict = GroupVerdict()
        #: Ends of the logs when all groups had committed them.
        self._reached: dict[Part, int] = {}

    def run(self) -> SeedResult:
        """Runs to the end, or to the first violation."""
        violation: str | None = None
        trace = ""
        # Clients log lost connections and rebalances, which are expected here.
        log = logging.getLogger("quorumlog.sdk")
        heard, log.disabled = log.disabled, True
        try:
            self._form()
            self._work_and_hurt()
            self._settle()
            self._judge()
            self._restore_backup()
        except Violation as broken:
            violation = str(broken)
        except Exception as error:  # any exception of the shipped code is a finding, with its seed
            place = traceback.extract_tb(error.__traceback__)[-1]
            violation = f"{type(error).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}: {error}"
            trace = traceback.format_exc()
        finally:
            self.network.dispose()
            log.disabled = heard
        return self._result(violation, trace)

    def _result(self, violation: str | None, trace: str) -> SeedResult:
        struck = [] if self._faults is None else list(self._faults.struck)
        clients = [] if self._client_faults is None else self._client_faults.struck
        struck += [InjectedFault(0, each.at_us, f"client-{each.kind}") for each in clients]
        happened = Counter(deletions=len(self._deletions))
        events, steps, elections, virtual_us = (
            self.scheduler.executed,
            self.cluster.steps,
            self.cluster.invariants.elections,
            self.scheduler.now,
        )
        if self._backup is not None:
            happened.update(backups=self._backup.taken, failed_backups=self._backup.failures)
        if self._restore is not None:
            restore = self._restore
            struck += restore.struck
            happened.update(restores=1, restored_records=restore.records)
            events, steps = events + restore.scheduler.executed, steps + restore.cluster.steps
            elections += restore.cluster.invariants.elections
            virtual_us += restore.scheduler.now
            self.scheduler.trace(f"restored: {restore.scheduler.trace_hash()}")
        return SeedResult(
            seed=self.seed,
            events=events,
            steps=steps,
            acknowledged=sum(producer.acknowledged for producer in self._producers),
            operations=sum(len(producer.sent) for producer in self._producers)
            + sum(consumer.read for consumer in self._consumers)
            + len(self.history),
            elections=elections,
            virtual_us=virtual_us,
            struck=struck,
            trace=self.scheduler.trace_hash(),
            violation=violation,
            traceback=trace,
            groups=len(self.clients.groups),
            group_commands=self.cluster.invariants.coordinators.commands,
            group_records=self._verdict.processed,
            duplicates=self._verdict.duplicates,
            happened=happened,
        )

    # -- the run --------------------------------------------------------------------------------------------------

    def _host(self, name: str) -> ClientHost:
        rate_ppm = self.scheduler.stream(f"client clock/{name}").randint(*self.clients.clock_ppm)
        return self.network.host(name, rate_ppm)

    def _bootstrap(self) -> str:
        return self.network.bootstrap_servers

    def _new_topic(self, name: str, partitions: int) -> NewTopic:
        options = self.plan.cluster
        return NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=options.replication_factor,
            topic_configs={"min.insync.replicas": str(options.min_insync_replicas)},
        )

    def _form(self) -> None:
        rng = self.scheduler.stream("story")
        for node in self.cluster.node_ids:
            self.scheduler.after(rng.randint(0, 100_000), lambda node=node: self.cluster.start(node))  # type: ignore[misc]
        founder = self._founder()
        if not self.scheduler.run(30 * SECOND, lambda: founder.settled):
            raise Violation("the topics could not be created within 30 s without any fault")
        founder.end()

    def _founder(self) -> AdminLoad:
        habits = replace(next(iter(self.clients.admins.values())), recreated=self.clients.topics)
        founder = AdminLoad(
            "founder", habits, self._new_topic, self.scheduler.stream("founder"), self._host, self._bootstrap, []
        )
        founder.stop()
        return founder

    def _work_and_hurt(self) -> None:
        scheduler, clients = self.scheduler, self.clients
        for name, sending in clients.producers.items():
            self._producers.append(
                ProducerLoad(name, sending, scheduler.stream(name), self._host, self._bootstrap, self.values)
            )
        for name, reading in clients.consumers.items():
            self._consumers.append(
                ConsumerLoad(name, reading, scheduler.stream(name), self._host, self._bootstrap, self.values)
            )
        for habits, members in clients.groups:
            for number in range(members):
                rng = scheduler.stream(f"{habits.group_id}/{number}")
                self._members.append(
                    MemberLoad(habits, number, rng, self._host, self._bootstrap, self.values, self.history)
                )
        for name, administering in clients.admins.items():
            self._admins.append(
                AdminLoad(
                    name,
                    administering,
                    self._new_topic,
                    scheduler.stream(name),
                    self._host,
                    self._bootstrap,
                    self._deletions,
                )
            )
        loads: list[ClientLoad] = [*self._producers, *self._consumers, *self._members, *self._admins]
        if self.backups is not None:
            judge = BackupJudge(self.cluster, self.values)
            self._backup = BackupLoad(
                self.backups.habits, scheduler.stream("backup"), self._host, self._bootstrap, judge
            )
            loads.append(self._backup)
        self._faults = SimFaults(self.cluster, scheduler, self.plan.faults)
        self._client_faults = ClientFaults(clients.faults, loads, self.network, self.cluster, scheduler)
        scheduler.run(scheduler.now + clients.duration_us)

    def _settle(self) -> None:
        assert self._faults is not None and self._client_faults is not None
        self._faults.end()
        self.cluster.heal()
        self._client_faults.end()
        for admin in self._admins:
            admin.stop()
        for consumer in self._consumers:
            consumer.settle()
        for member in self._members:
            member.settle()
        self._wait(lambda: next((admin.name for admin in self._admins if not admin.settled), ""))
        backup = self._backup
        if backup is not None:
            backup.settle()
            self._wait(lambda: backup.missing)
        for producer in self._producers:
            producer.stop()
        self._wait(lambda: next((each.missing for each in self._producers if each.missing), ""))
        self._wait(self._unread)
        # Late records of a producer that waits for no answers, after this point, have no reader left.
        for habits, _ in self.clients.groups:
            self._reached |= self._ends(habits.group_id)
        for member in self._members:
            member.stop()
        for admin in self._admins:
            admin.end()
        self.scheduler.run(self.scheduler.now + SECOND)
        for consumer in self._consumers:
            consumer.stop()

    def _wait(self, missing: Callable[[], str]) -> None:
        end = self.scheduler.now + SETTLING_US
        while missing():
            if self.scheduler.now >= end:
                raise Violation(f"not done {SETTLING_US // SECOND} s after healing: {missing()}")
            self.scheduler.run(self.scheduler.now + CHECK_US)

    def _partitions(self) -> list[PartitionName]:
        return sorted({name for _, name, _ in self.values.groups() if not is_internal(name.topic)})

    def _unread(self) -> str:
        names = self._partitions()
        for consumer in self._consumers:
            missing = consumer.missing(names)
            if missing:
                return missing
        return self._uncommitted()

    def _uncommitted(self) -> str:
        """Returns what a group has not committed yet; empty if it has committed everything."""
        for habits, _ in self.clients.groups:
            found = self.cluster.invariants.coordinators.group(habits.group_id)
            for part, end in self._ends(habits.group_id).items():
                committed = None
                if found is not None:
                    committed = next(
                        (
                            offset.offset
                            for place, offset in found.offsets.items()
                            if part.partition.endswith(part_name("", place.number, place.topic_id))
                        ),
                        None,
                    )
                if committed != end:
                    return f"group {habits.group_id} has committed {committed} of {part}, which goes to {end}"
        return ""

    def _ends(self, group_id: str) -> dict[Part, int]:
        habits = next(habits for habits, _ in self.clients.groups if habits.group_id == group_id)
        ends = {}
        for name in self._partitions():
            group = self.values.current_group(name)
            if group is not None and name.topic in habits.topics and self.values.log(group).next_offset:
                _, topic_id = self.values.partition(group)
                part = Part(group_id, part_name(name.topic, name.number, topic_id))
                ends[part] = self.values.log(group).next_offset
        return ends

    def _restore_backup(self) -> None:
        if self.backups is None:
            return
        assert self._backup is not None and self._backup.last is not None
        logs = [self.values.log(group) for group, _, _ in self.values.groups()]
        used_ids = {parse_header(batch.entry.data).producer_id for log in logs for batch in log.batches_in_order}
        self._restore = RestoreSimulation(
            Scheduler(self.scheduler.stream("restore").getrandbits(63)),
            self.plan,
            self.clients,
            self.backups,
            self._backup.place,
            self._backup.last,
            used_ids,
        )
        self._restore.run()

    def _judge(self) -> None:
        for producer in self._producers:
            producer.check()
        check_deletions(self.cluster, self._deletions)
        for member in self._members:
            member.close_history()
        session_ms = max((habits.options["session_timeout_ms"] for habits, _ in self.clients.groups), default=0)
        nodes_ppm = max(abs(rate) for rate in self.cluster.options.clock_rates_ppm)
        tolerance_us = session_ms * (nodes_ppm + self.clients.clock_ppm[1]) // 1_000
        self._verdict = check_groups(self.history, self._reached, tolerance_us)
        if self._verdict.anomalies:
            raise Violation("; ".join(f"{each.invariant}: {each.message}" for each in self._verdict.anomalies[:3]))
