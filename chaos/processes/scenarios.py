"""Named scenarios on real processes: a steady phase, one fault, recovery, in rounds; then the verdict."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from quorumlog.chaos.checkers.checkers import check
from quorumlog.chaos.processes import (
    compaction_rounds,
    damage_rounds,
    exactly_once,
    group_rounds,
    retention_kills,
    transfer_rounds,
)
from quorumlog.chaos.processes.leaderships import Leadership
from quorumlog.chaos.processes.link_proxy import LinkProxies
from quorumlog.chaos.processes.nemesis import POLL_S, ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.replica_logs import durable_terms, replicas_agree, require_no_campaign
from quorumlog.chaos.processes.report import GapBounds, Report, Round
from quorumlog.chaos.processes.scenario_cluster import PROXIED_HOST, ScenarioCluster
from quorumlog.chaos.processes.scenario_run import (
    READ_TO_THE_END,
    REPLICAS_AGREE,
    Say,
    announced,
    attempted,
    disks_of,
    heal,
    in_round,
    judged,
    operator_of,
)
from quorumlog.chaos.processes.steady import DEFAULT_DURATION_S, DEFAULT_LOAD, SteadyFigures, SteadyLoad
from quorumlog.chaos.processes.watchdog import Watchdog
from quorumlog.chaos.processes.worker_processes import LIBRDKAFKA
from quorumlog.chaos.processes.workload import Recorder, Workload, sequential_writer
from quorumlog.sdk import Admin, NewTopic, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

NODES = 3
TOPIC = "chaos"
PARTITIONS = 3
#: Acknowledgements of the target's writer that make a steady phase, and that prove recovery.
STEADY_ACKS = 20
#: Time limits for the cluster's reactions to a fault (s); each is far beyond the expected time.
PROGRESS_TIMEOUT_S = 30.0
SHRINK_TIMEOUT_S = 20.0
FULL_TIMEOUT_S = 40.0
FINAL_READ_TIMEOUT_S = 60.0

#: Time for which leaderships are watched after a round that must not affect others (s).
WATCH_S = 2.0
#: Maximum repetitions of such a round after leaderships moved: on a machine that starves its nodes they move without a
#: fault too.
MOST_REPEATS = 3


@dataclass(slots=True, frozen=True)
class Fault:
    """The fault of a round.

    Arguments:
        victim: selects the node, given the nemesis and the number of the round.
        hurt, mend: the fault and its end.
        shrinks: True if the victim must leave the in-sync replicas before the fault ends.
        bounds: limits of the gaps; None if the fault need not interrupt writing.
        spares_others: True if the victim must not raise a term while it is isolated, and if all partitions that it does
            not lead must keep their leader and term.
        proxied: True if the nodes' links go through proxies.
    """

    victim: Callable[[Nemesis, int], int]
    hurt: Callable[[Nemesis, int], None]
    mend: Callable[[Nemesis, int], None]
    shrinks: bool
    bounds: GapBounds | None = None
    spares_others: bool = False
    proxied: bool = False


@dataclass(slots=True, frozen=True)
class Scenario:
    """A named scenario. ``rounds`` is the default number of fault injections; zero without a fault."""

    name: str
    summary: str
    rounds: int
    fault: Fault | None


def _leader(nemesis: Nemesis, number: int) -> int:
    return nemesis.partition_leader()


def _controller(nemesis: Nemesis, number: int) -> int:
    return nemesis.controller()


def _follower(nemesis: Nemesis, number: int) -> int:
    return nemesis.follower()


def _bystander(nemesis: Nemesis, number: int) -> int:
    return nemesis.bystander()


def _each_in_turn(nemesis: Nemesis, number: int) -> int:
    return nemesis.cluster.node_ids[number % NODES]


#: Scenarios whose writers and members may use Kafka's own client.
WITH_KAFKA = (exactly_once.NAME, group_rounds.NAME, transfer_rounds.NAME)
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "kill-leader", "kill -9 of a partition leader under load, restart", 10,
            Fault(_leader, Nemesis.kill, Nemesis.start, shrinks=True, bounds=GapBounds(500, 1_500)),
        ),
        Scenario(
            "kill-controller", "kill -9 of the active controller under load, restart", 3,
            Fault(_controller, Nemesis.kill, Nemesis.start, shrinks=True),
        ),
        Scenario(
            "kill-follower", "kill -9 of a follower under load, restart", 3,
            Fault(_follower, Nemesis.kill, Nemesis.start, shrinks=True),
        ),
        Scenario(
            "pause-leader", "SIGSTOP of a partition leader under load, then SIGCONT", 3,
            Fault(_leader, Nemesis.pause, Nemesis.resume, shrinks=True, bounds=GapBounds(1_000, 2_000)),
        ),
        Scenario(
            "stop-leader", "SIGTERM of a partition leader under load, restart", 3,
            Fault(_leader, Nemesis.stop, Nemesis.start, shrinks=False, bounds=GapBounds(100, 300)),
        ),
        Scenario(
            "rolling-restart", "SIGTERM of each node in turn under load, restart", 3,
            Fault(_each_in_turn, Nemesis.stop, Nemesis.start, shrinks=False),
        ),
        Scenario(
            "isolate-follower", "all links of a follower are cut long past its election timeout, then restored", 3,
            Fault(_bystander, Nemesis.isolate, Nemesis.rejoin, shrinks=True, spares_others=True, proxied=True),
        ),
        Scenario(
            "deafen-leader", "a partition leader is unreachable, but its own connections work, then restored", 3,
            Fault(_leader, Nemesis.deafen, Nemesis.rejoin, shrinks=True, proxied=True),
        ),
        Scenario(
            "steady", "no fault under a share of the peak load: no leader and no term may change", 0, None,
        ),
        Scenario(exactly_once.NAME, exactly_once.SUMMARY, exactly_once.ROUNDS, None),
        Scenario(compaction_rounds.NAME, compaction_rounds.SUMMARY, compaction_rounds.ROUNDS, None),
        Scenario(retention_kills.NAME, retention_kills.SUMMARY, retention_kills.ROUNDS, None),
        Scenario(group_rounds.NAME, group_rounds.SUMMARY, group_rounds.ROUNDS, None),
        Scenario(transfer_rounds.NAME, transfer_rounds.SUMMARY, transfer_rounds.ROUNDS, None),
        Scenario(damage_rounds.NAME, damage_rounds.SUMMARY, damage_rounds.ROUNDS, None),
    )
}  # fmt: skip


class ScenarioRun:
    """One run of a scenario against a cluster of its own."""

    def __init__(
        self,
        fault: Fault | None,
        seed: int,
        cluster: ScenarioCluster,
        admin: Admin,
        say: Say,
        proxies: LinkProxies | None = None,
    ) -> None:
        self.recorder = Recorder()
        self.rounds: list[Round] = []
        self.steady: SteadyFigures | None = None
        self.not_checked: list[str] = []
        self._fault = fault
        self._rng = random.Random(seed)
        self._cluster = cluster
        self._admin = admin
        self._say = say
        self._target = TopicPartition(TOPIC, self._rng.randrange(PARTITIONS))
        self._nemesis = Nemesis(cluster, admin, self._target, self._rng, proxies)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.workload = Workload(cluster.client_options, partitions, self.recorder)

    def go(self, rounds: int, duration_s: float | None, load: float) -> None:
        """Runs ``rounds``, or as many as start within ``duration_s``; without a fault, holds a share of the peak load
        for that long. The workload keeps running.
        """
        self.workload.start()
        if self._fault is None:
            self._wait_acks(self.recorder.now_us(), "a steady phase")
            held = SteadyLoad(self._admin, self._cluster.client_options, self._raise_failures, self._say)
            self.steady = held.hold(DEFAULT_DURATION_S if duration_s is None else duration_s, load)
        else:
            self._hurt(self._fault, rounds, duration_s)

    def _hurt(self, fault: Fault, rounds: int, duration_s: float | None) -> None:
        deadline = None if duration_s is None else time.monotonic() + duration_s
        with Watchdog(self.recorder.now_us) as watchdog:
            for number in range(rounds):
                if deadline is not None and number and time.monotonic() > deadline:
                    break
                with in_round(number + 1):
                    self._strike(fault, number, watchdog)

    def _strike(self, fault: Fault, number: int, watchdog: Watchdog) -> None:
        """Runs one round; repeats it while leaderships move that the fault must not affect. After each of those, the
        leaders are watched for the same time without a fault: if none moves then, the fault was the cause.

        Raises:
            ChaosError: they moved each time with the fault, and never without.
        """
        unprovoked: list[str] = []
        for _ in range(1 + MOST_REPEATS):
            made = self._round(fault, number, watchdog)
            self.rounds.append(made)
            self._say(made.line())
            if not made.moved:
                return
            unprovoked += self._watch(self._nemesis.leaderships_beside(None), made.seconds)
        if not unprovoked:
            raise ChaosError(f"leaderships moved each of {1 + MOST_REPEATS} times, the last: {'; '.join(made.moved)}")
        self.not_checked.append(f"round {number + 1}, leaderships: without a fault too {unprovoked[0]}")

    def judge(self, report: Report) -> None:
        """Reads everything back, then kills the nodes and compares their disks. The workload has ended."""
        report.rounds, report.steady = self.rounds, self.steady
        report.failures.extend(self.workload.failures)
        report.not_checked.extend(self.not_checked)
        together = attempted(report, lambda: self._nemesis.wait_isr_full(FULL_TIMEOUT_S), REPLICAS_AGREE)
        read_back = attempted(report, lambda: self.workload.read_all(FINAL_READ_TIMEOUT_S), READ_TO_THE_END)
        if together:
            report.anomalies.extend(replicas_agree(disks_of(self._cluster)))
        report.take_history(self.recorder.history, check(self.recorder.history, read_back=read_back))

    def _round(self, fault: Fault, number: int, watchdog: Watchdog) -> Round:
        self._wait_acks(self.recorder.now_us(), "a steady phase")
        nemesis = self._nemesis
        victim = fault.victim(nemesis, number)
        led = nemesis.leader() == victim
        others = nemesis.leaderships_beside(victim) if fault.spares_others else {}
        began = self.recorder.now_us()
        fault.hurt(nemesis, victim)
        hurt = self.recorder.now_us()
        self._wait_acks(hurt, f"acknowledgements after node {victim} was hurt")
        # Not earlier: a campaign that was under way when the links were cut may have had its majority.
        terms = durable_terms(self._cluster.data_dir(victim)) if fault.spares_others else {}
        shrink_s = None
        if fault.shrinks:
            nemesis.wait_isr_without(victim, SHRINK_TIMEOUT_S)
            shrink_s = (self.recorder.now_us() - hurt) / 1_000_000
        if fault.spares_others:
            require_no_campaign(victim, terms, durable_terms(self._cluster.data_dir(victim)))
        mended = self.recorder.now_us()
        fault.mend(nemesis, victim)
        full_s = nemesis.wait_isr_full(FULL_TIMEOUT_S)
        self._wait_acks(self.recorder.now_us(), f"acknowledgements after node {victim} was mended")
        moved = self._watch(others, WATCH_S)
        ended = self.recorder.now_us()
        gap = self._longest_gap(began, mended)
        recovery_gap = self._longest_gap(mended, ended)
        return Round(
            number=number + 1,
            victim=victim,
            victim_led_target=led,
            began_us=began,
            ended_us=ended,
            gap_ms=(gap[1] - gap[0]) / 1_000,
            recovery_gap_ms=(recovery_gap[1] - recovery_gap[0]) / 1_000,
            shrink_s=shrink_s,
            full_s=full_s,
            stalls=watchdog.stalls_between(*gap),
            moved=tuple(moved),
        )

    def _watch(self, before: dict[str, Leadership], seconds: float) -> list[str]:
        """Returns the leaderships that have moved, as soon as there are any."""
        deadline = time.monotonic() + seconds
        moved: list[str] = []
        while before and not moved and time.monotonic() < deadline:
            time.sleep(POLL_S)
            # A starved cluster may fail to answer in time; the next poll tries again.
            with suppress(QuorumlogError):
                moved = self._nemesis.moved_since(before)
        return moved

    def _acks(self) -> list[int]:
        partition = f"{self._target.topic}-{self._target.partition}"
        return self.recorder.acknowledgements(sequential_writer(self._target), partition)

    def _wait_acks(self, since_us: int, what: str) -> None:
        def enough() -> bool:
            self._raise_failures()
            return sum(1 for moment in self._acks() if moment > since_us) >= STEADY_ACKS

        wait_until(enough, PROGRESS_TIMEOUT_S, what)

    def _raise_failures(self) -> None:
        if self.workload.failures:
            raise ChaosError(self.workload.failures[0])

    def _longest_gap(self, first_us: int, last_us: int) -> tuple[int, int]:
        """Returns the two neighbouring acknowledgements furthest apart among those whose gap overlaps [first, last]."""
        gaps = [gap for gap in itertools.pairwise(self._acks()) if gap[1] > first_us and gap[0] < last_us]
        return max(gaps, key=lambda gap: gap[1] - gap[0], default=(first_us, first_us))


def run_scenario(
    name: str,
    seed: int | None = None,
    duration_s: float | None = None,
    rounds: int | None = None,
    report_dir: str | Path | None = None,
    load: float = DEFAULT_LOAD,
    records: int | None = None,
    say: Say = print,
    secure: bool = False,
    kafka: bool = False,
    client: str | None = None,
) -> Report:
    """Runs a scenario on a fresh three-node cluster of real processes, and judges it. The cluster is deleted
    afterwards.

    Arguments:
        seed: selects partition and victims; random and printed if None. Processes and threads are not reproduced.
        duration_s: no new round starts after this time; without a fault, the duration of the load.
        rounds: number of fault injections; the scenario's default if None.
        report_dir: directory of report.json, history.jsonl and index.html; None to write none.
        load: share of the peak rate, if there is no fault.
        records: total number of records, if they are numbered, or of transfers.
        say: prints a line of progress.
        secure: the cluster uses TLS, password authentication and ACLs.
        kafka: writers and members use Kafka's own client, if the scenario has them.
        client: client of transactions: librdkafka, or a command that starts a worker (`transfer_log`).

    Raises:
        ValueError: an unknown scenario, an invalid load, or a number of records for a scenario without one.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise ValueError(f"scenario {name!r} does not exist: choose from {', '.join(SCENARIOS)}")
    if not 0 < load <= 1:
        raise ValueError(f"a load of {load:g} is not a share of the peak: give a number above 0 and up to 1")
    _check_client(name, client, kafka=kafka)
    if name == transfer_rounds.NAME:
        return transfer_rounds.run_transactions(
            seed, rounds, records, duration_s, report_dir, say, secure, client or LIBRDKAFKA
        )
    if name == exactly_once.NAME:
        return exactly_once.run_exactly_once(seed, rounds, records, report_dir, say, secure, kafka)
    if records is not None:
        counted = f"{exactly_once.NAME} and {transfer_rounds.NAME} accept"
        raise ValueError(f"only {counted} a number of records: give {name} rounds or a duration")
    if name == compaction_rounds.NAME:
        return compaction_rounds.run_compaction(seed, rounds, report_dir, say, secure)
    if name == retention_kills.NAME:
        return retention_kills.run_retention(seed, rounds, report_dir, say, secure)
    if name == group_rounds.NAME:
        return group_rounds.run_groups(seed, rounds, duration_s, report_dir, say, secure, kafka)
    if name == damage_rounds.NAME:
        return damage_rounds.run_damage(seed, rounds, report_dir, say, secure)
    wanted = scenario.rounds if rounds is None else rounds
    fault, bounds = scenario.fault, scenario.fault.bounds if scenario.fault else None
    report = announced(name, scenario.summary, seed, f"{wanted} rounds" if fault else "", say, bounds)
    with (
        judged(report, report_dir, say),
        _cluster_for(fault, secure) as (cluster, proxies),
        operator_of(cluster) as admin,
    ):
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES, {"min.insync.replicas": 2})])
        run = ScenarioRun(fault, report.seed, cluster, admin, say, proxies)
        try:
            if not attempted(report, lambda: run.go(wanted, duration_s, load)):
                heal(report, cluster, proxies)
        finally:
            run.workload.stop()
        run.judge(report)
    return report


def _check_client(name: str, client: str | None, *, kafka: bool) -> None:
    if client is not None and name != transfer_rounds.NAME:
        raise ValueError(f"only {transfer_rounds.NAME} accepts a client, {name} does not: omit it")
    if not kafka and name != transfer_rounds.NAME:
        return
    if name not in WITH_KAFKA:
        raise ValueError(
            f"only {', '.join(WITH_KAFKA[:-1])} and {WITH_KAFKA[-1]} support Kafka's client, {name} does not"
        )
    if find_spec("confluent_kafka") is None:
        raise ValueError("confluent-kafka is not installed: pip install 'quorumlog[mirror]'")


@contextmanager
def _cluster_for(fault: Fault | None, secure: bool) -> Iterator[tuple[ScenarioCluster, LinkProxies | None]]:
    """Runs a cluster; its nodes are reached through proxies if the fault needs them."""
    if fault is None or not fault.proxied:
        with ScenarioCluster(NODES, secure=secure) as cluster:
            yield cluster, None
    elif secure:
        # Clients are given one host for all of a node's listeners, and a port for each of them.
        cluster = ScenarioCluster(NODES, secure=True, advertise_host=PROXIED_HOST)
        ports = {node: cluster.ports_of(node) for node in cluster.node_ids}
        with LinkProxies(cluster.node_ids, PROXIED_HOST, ports) as proxies, _led_to(proxies, cluster):
            yield cluster, proxies
    else:
        with LinkProxies(range(1, NODES + 1)) as proxies:
            cluster = ScenarioCluster(NODES, advertise=proxies.addresses)
            with _led_to(proxies, cluster):
                yield cluster, proxies


@contextmanager
def _led_to(proxies: LinkProxies, cluster: ScenarioCluster) -> Iterator[None]:
    proxies.lead_to({node: cluster.address(node) for node in cluster.node_ids}, cluster.pid)
    with cluster:
        yield
