"""Named scenarios on real processes: a steady phase, one fault, recovery, in rounds; then the verdict."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quorumlog.chaos.checkers import Anomaly, check
from quorumlog.chaos.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.replica_logs import replicas_agree
from quorumlog.chaos.report import Report, Round
from quorumlog.chaos.watchdog import Watchdog
from quorumlog.chaos.workload import Recorder, Workload, sequential_writer
from quorumlog.sdk import Admin, NewTopic, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.local import ClusterError, LocalCluster

NODES = 3
TOPIC = "chaos"
PARTITIONS = 3
#: Acknowledgements of the target's writer that make a steady phase, and that show recovery.
STEADY_ACKS = 20
#: How long the cluster may take (s) for what it must do after a fault; each is far beyond what it should need.
PROGRESS_TIMEOUT_S = 30.0
SHRINK_TIMEOUT_S = 20.0
FULL_TIMEOUT_S = 40.0
FINAL_READ_TIMEOUT_S = 60.0

Say = Callable[[str], None]


@dataclass(slots=True, frozen=True)
class Scenario:
    """What a round does.

    Arguments:
        victim: picks the node to hurt, given the nemesis and the number of the round.
        hurt, mend: the fault and its end.
        shrinks: whether the victim must be seen to leave the in-sync replicas before it is mended.
    """

    name: str
    summary: str
    rounds: int
    victim: Callable[[Nemesis, int], int]
    hurt: Callable[[LocalCluster, int], None]
    mend: Callable[[LocalCluster, int], None]
    shrinks: bool


def _start(cluster: LocalCluster, node: int) -> None:
    cluster.start(node)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "kill-leader", "kill -9 of a partition leader under load, restart", 10,
            lambda nemesis, number: nemesis.partition_leader(), LocalCluster.kill, _start, shrinks=True,
        ),
        Scenario(
            "kill-controller", "kill -9 of the active controller under load, restart", 3,
            lambda nemesis, number: nemesis.controller(), LocalCluster.kill, _start, shrinks=True,
        ),
        Scenario(
            "kill-follower", "kill -9 of a follower under load, restart", 3,
            lambda nemesis, number: nemesis.follower(), LocalCluster.kill, _start, shrinks=True,
        ),
        Scenario(
            "pause-leader", "SIGSTOP of a partition leader under load, then SIGCONT", 3,
            lambda nemesis, number: nemesis.partition_leader(), LocalCluster.pause, LocalCluster.resume, shrinks=True,
        ),
        Scenario(
            "rolling-restart", "SIGTERM of each node in turn under load, restart", 3,
            lambda nemesis, number: nemesis.cluster.node_ids[number % NODES], LocalCluster.stop, _start, shrinks=False,
        ),
    )
}  # fmt: skip


class Run:
    """One run of a scenario against a cluster of its own."""

    def __init__(self, scenario: Scenario, seed: int, cluster: LocalCluster, admin: Admin, say: Say) -> None:
        self.recorder = Recorder()
        self.rounds: list[Round] = []
        self._scenario = scenario
        self._rng = random.Random(seed)
        self._cluster = cluster
        self._say = say
        self._target = TopicPartition(TOPIC, self._rng.randrange(PARTITIONS))
        self._nemesis = Nemesis(cluster, admin, self._target, self._rng)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.workload = Workload(cluster.bootstrap_servers, partitions, self.recorder)

    def go(self, rounds: int, deadline: float | None) -> None:
        """Runs rounds until there have been ``rounds``, or ``deadline`` (``time.monotonic``) has passed."""
        with Watchdog(self.recorder.now_us) as watchdog:
            self.workload.start()
            try:
                for number in range(rounds):
                    if deadline is not None and number and time.monotonic() > deadline:
                        break
                    self.rounds.append(self._round(number, watchdog))
                    self._say(self.rounds[-1].line())
            finally:
                self.workload.stop()
            self._nemesis.wait_isr_full(FULL_TIMEOUT_S)
            self.workload.read_all(FINAL_READ_TIMEOUT_S)

    def compare_logs(self) -> list[Anomaly]:
        """Kills every node, and compares what they have on disk."""
        for node in self._cluster.node_ids:
            self._cluster.kill(node)
        return replicas_agree({node: self._cluster.data_dir(node) for node in self._cluster.node_ids})

    def _round(self, number: int, watchdog: Watchdog) -> Round:
        self._wait_acks(self.recorder.now_us(), "a steady phase")
        victim = self._scenario.victim(self._nemesis, number)
        led = self._nemesis.leader() == victim
        began = self.recorder.now_us()
        self._scenario.hurt(self._cluster, victim)
        hurt = self.recorder.now_us()
        self._wait_acks(hurt, f"acknowledgements after node {victim} was hurt")
        shrink_s = None
        if self._scenario.shrinks:
            self._nemesis.wait_isr_without(victim, SHRINK_TIMEOUT_S)
            shrink_s = (self.recorder.now_us() - hurt) / 1_000_000
        mended = self.recorder.now_us()
        self._scenario.mend(self._cluster, victim)
        full_s = self._nemesis.wait_isr_full(FULL_TIMEOUT_S)
        self._wait_acks(self.recorder.now_us(), f"acknowledgements after node {victim} was mended")
        ended = self.recorder.now_us()
        return Round(
            number=number + 1,
            victim=victim,
            victim_led_target=led,
            began_us=began,
            ended_us=ended,
            gap_ms=self._longest_gap_ms(began, mended),
            recovery_gap_ms=self._longest_gap_ms(mended, ended),
            shrink_s=shrink_s,
            full_s=full_s,
            stalls=watchdog.stalls_between(began, ended),
        )

    def _acks(self) -> list[int]:
        partition = f"{self._target.topic}-{self._target.partition}"
        return self.recorder.acknowledgements(sequential_writer(self._target), partition)

    def _wait_acks(self, since_us: int, what: str) -> None:
        def enough() -> bool:
            if self.workload.failures:
                raise ChaosError(self.workload.failures[0])
            return sum(1 for moment in self._acks() if moment > since_us) >= STEADY_ACKS

        wait_until(enough, PROGRESS_TIMEOUT_S, what)

    def _longest_gap_ms(self, first_us: int, last_us: int) -> float:
        """Longest time between two acknowledgements that touches [first, last]."""
        acks = self._acks()
        gaps = [after - before for before, after in itertools.pairwise(acks) if after > first_us and before < last_us]
        return max(gaps, default=0) / 1_000


def run_scenario(
    name: str,
    seed: int | None = None,
    duration_s: float | None = None,
    rounds: int | None = None,
    report_dir: str | Path | None = None,
    say: Say = print,
) -> Report:
    """Runs a scenario on a fresh three-node cluster of real processes, and judges it. Nothing of it is left behind.

    Arguments:
        seed: picks partition and victims; drawn and printed when None. Processes and threads are not replayed.
        duration_s: no new round after this many seconds.
        rounds: how often the fault strikes; the scenario's own number when None.
        report_dir: where report.json, history.jsonl and index.html go; nowhere when None.
        say: takes lines about progress.

    Raises:
        ValueError: no such scenario.
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise ValueError(f"there is no scenario {name!r}: say one of {', '.join(SCENARIOS)}")
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    wanted = scenario.rounds if rounds is None else rounds
    deadline = None if duration_s is None else time.monotonic() + duration_s
    say(f"{scenario.name}: {scenario.summary}; seed {seed}, {wanted} rounds")
    report = Report(scenario.name, scenario.summary, seed)
    began = time.monotonic()
    run: Run | None = None
    try:
        with LocalCluster(nodes=NODES) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            configs = {"min.insync.replicas": 2}
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES, configs)])
            run = Run(scenario, seed, cluster, admin, say)
            run.go(wanted, deadline)
            report.anomalies.extend(run.compare_logs())
    except (ChaosError, ClusterError, QuorumlogError, TimeoutError) as error:
        report.failures.append(str(error))
    report.duration_s = time.monotonic() - began
    if run is not None:
        report.rounds = run.rounds
        report.failures.extend(run.workload.failures)
        report.take(run.recorder.history, check(run.recorder.history))
        if report_dir is not None:
            report.write(Path(report_dir), run.recorder.history)
    for line in report.summary():
        say(line)
    return report
