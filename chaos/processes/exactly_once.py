"""Exactly once through faults: several idempotent producers send numbered records while leaders are killed, stopped and
paused and partitions moved; then everything is read back, and there must be one copy of each record, in order.

A run has one share of the records for each round and one more. A round injects its fault while its share is being
written, waits until all of it is acknowledged without the victim, and ends the fault.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.once_checker import ONCE_EACH, OnceChecker, read_back
from quorumlog.chaos.processes.once_writers import Fate, Gate, OnceWriter, SdkOnceWriter, WriterKind, await_ended
from quorumlog.chaos.processes.replica_logs import replicas_agree
from quorumlog.chaos.processes.report import Report, Round
from quorumlog.chaos.processes.scenario_cluster import ScenarioCluster
from quorumlog.chaos.processes.scenario_run import (
    REPLICAS_AGREE,
    Say,
    announced,
    attempted,
    disks_of,
    fresh_cluster,
    heal,
    in_round,
    judged,
)
from quorumlog.chaos.processes.watchdog import Watchdog
from quorumlog.sdk import Admin, NewTopic, TopicPartition

NAME = "exactly-once"
SUMMARY = "numbered records of idempotent producers, some named or replaying, through kills, stops, pauses and moves"
ROUNDS = 8
RECORDS = 60_000
TOPIC = "once"
NODES = 4
REPLICAS = 3
PARTITIONS = 3
WRITERS = (WriterKind.UNNAMED, WriterKind.UNNAMED, WriterKind.NAMED, WriterKind.REPLAYING)
#: Part of a share that is acknowledged before the fault.
STRIKE_AT = 0.2
STRETCH_TIMEOUT_S = 180.0
FULL_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 300.0


class OnceRun:
    """One run against a cluster of its own.

    Arguments:
        records: number of records that all writers together send.
    """

    def __init__(self, cluster: ScenarioCluster, admin: Admin, seed: int, records: int, say: Say) -> None:
        self.rounds: list[Round] = []
        self._cluster = cluster
        self._say = say
        self._rng = random.Random(seed)
        self._gate = Gate()
        count = -(-records // len(WRITERS))
        self.writers = [self._writer(number, kind, count) for number, kind in enumerate(WRITERS)]
        self._admin = admin
        self._count = count
        self._nemeses = [
            Nemesis(cluster, admin, TopicPartition(TOPIC, number), self._rng) for number in range(PARTITIONS)
        ]
        self._moved: tuple[TopicPartition, tuple[int, ...]] | None = None
        self._began = time.monotonic()
        self._progress: list[int] = []

    def _writer(self, number: int, kind: WriterKind, count: int) -> OnceWriter:
        if self._cluster.kafka:
            from quorumlog.chaos.processes.kafka_writer import KafkaOnceWriter

            return KafkaOnceWriter(number, count, self._cluster.kafka_options, TOPIC, self._gate)
        seed = self._rng.getrandbits(32)
        return SdkOnceWriter(number, kind, count, self._cluster.client_options, TOPIC, self._gate, seed)

    def now_us(self) -> int:
        """Returns microseconds since the start of the run."""
        return int((time.monotonic() - self._began) * 1_000_000)

    def go(self, rounds: int) -> None:
        """Writes everything during the faults."""
        for writer in self.writers:
            writer.start()
        blows = itertools.cycle(BLOWS)
        with Watchdog(self.now_us) as watchdog:
            for number in range(rounds):
                with in_round(number + 1):
                    self.rounds.append(self._round(number, rounds, next(blows), watchdog))
        self._gate.open_to(self._count)
        self._wait(lambda: not any(writer.is_alive() for writer in self.writers), "all records are resolved")
        took_s, records = self.now_us() / 1_000_000, self._settled()
        self._say(f"{records} records in {took_s:.1f} s, {records / took_s:.0f}/s, faults included; reading them back")

    def _round(self, number: int, rounds: int, blow: Blow, watchdog: Watchdog) -> Round:
        target = self._rng.randrange(PARTITIONS)
        nemesis = self._nemeses[target]
        settled = self._settled()
        limit = self._count * (number + 1) // (rounds + 1)
        share = (limit - self._gate.limit) * len(self.writers)
        self._gate.open_to(limit)
        self._wait(
            lambda: self._settled() >= settled + STRIKE_AT * share or self._stretch_done(), "acknowledgements come in"
        )
        victim = nemesis.partition_leader()
        began = self.now_us()
        blow.hurt(self, target, victim)
        self._wait(self._stretch_done, f"a share is written during the fault ({blow.name}, node {victim})")
        mended = self.now_us()
        blow.mend(self, target, victim)
        full_s = self._await_in_sync()
        first, last = self._longest_gap(began, mended)
        made = Round(
            number=number + 1,
            victim=victim,
            victim_led_target=True,
            began_us=began,
            ended_us=self.now_us(),
            gap_ms=(last - first) / 1_000,
            recovery_gap_ms=0.0,
            shrink_s=None,
            full_s=full_s,
            stalls=watchdog.stalls_between(first, last),
        )
        self._say(f"  {blow.name}, {self._settled()} records resolved;{made.line()[1:]}")
        return made

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, target: int, victim: int) -> None:
        """Sends SIGKILL to the leader."""
        self._cluster.kill(victim)

    def stop(self, target: int, victim: int) -> None:
        """Sends SIGTERM to the leader."""
        self._cluster.stop(victim)

    def start(self, target: int, victim: int) -> None:
        """Restarts the node with its data, and waits until every node sees it: until then in-sync sets may be
        outdated.
        """
        self._cluster.start(victim)
        self._cluster.wait_ready()

    def pause(self, target: int, victim: int) -> None:
        """Sends SIGSTOP to the leader."""
        self._cluster.pause(victim)

    def resume(self, target: int, victim: int) -> None:
        """Sends SIGCONT."""
        self._cluster.resume(victim)

    def move(self, target: int, victim: int) -> None:
        """Starts to move the target partition from its leader to the node that has no replica of it."""
        now = next(one for one in self._nemeses[target].partitions() if one.partition == target)
        (other,) = set(self._cluster.node_ids) - set(now.replicas)
        replicas = tuple(other if node == victim else node for node in now.replicas)
        self._moved = TopicPartition(TOPIC, target), replicas
        self._admin.reassign_partitions({self._moved[0]: replicas})

    def await_move(self, target: int, victim: int) -> None:
        """Waits until the partition has moved."""
        assert self._moved is not None
        where, replicas = self._moved

        def there() -> bool:
            now = next(one for one in self._nemeses[target].partitions() if one.partition == target)
            return where not in self._admin.list_partition_reassignments() and set(now.replicas) == set(replicas)

        wait_until(there, FULL_TIMEOUT_S, f"{where.topic}-{where.partition} has moved to {replicas}")

    # -- progress -------------------------------------------------------------------------------------------------

    def _settled(self) -> int:
        return sum(writer.settled for writer in self.writers)

    def _stretch_done(self) -> bool:
        """True if every writer waits at the gate, with no record in flight."""
        return self._gate.waiting >= sum(writer.is_alive() for writer in self.writers)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        settled = self._settled()

        def holds() -> bool:
            nonlocal settled
            for writer in self.writers:
                if writer.failure is not None:
                    raise ChaosError(writer.failure)
            if self._settled() != settled:
                settled = self._settled()
                self._progress.append(self.now_us())
            return condition()

        wait_until(holds, STRETCH_TIMEOUT_S, what)

    def _longest_gap(self, first_us: int, last_us: int) -> tuple[int, int]:
        """Returns the longest time between two neighbouring acknowledgements."""
        moments = [first_us, *(moment for moment in self._progress if first_us < moment < last_us), last_us]
        return max(itertools.pairwise(moments), key=lambda gap: gap[1] - gap[0])

    def judge(self, report: Report) -> None:
        """Reads everything back, then kills the nodes and compares their disks."""
        self._gate.close()
        report.rounds = self.rounds
        together = attempted(report, self._await_in_sync, REPLICAS_AGREE)
        checker = OnceChecker(self.writers, PARTITIONS)
        if attempted(report, lambda: self._read_back(checker), ONCE_EACH):
            checker.finish()
        report.read = checker.read
        report.anomalies.extend(checker.anomalies)
        if together:
            report.anomalies.extend(replicas_agree(disks_of(self._cluster)))
        report.acknowledged = sum(writer.told(Fate.ACKNOWLEDGED) for writer in self.writers)
        report.unknown = sum(writer.told(Fate.UNKNOWN) for writer in self.writers)
        report.failed = sum(writer.told(Fate.FAILED) for writer in self.writers)

    def _await_in_sync(self) -> float:
        return wait_until(self._is_whole, FULL_TIMEOUT_S, "every node serves and all replicas are in sync again")

    def _is_whole(self) -> bool:
        # A restarted node is fenced until the controller has received a heartbeat: until then it gets no replica.
        brokers = self._admin.describe_cluster(linearizable=True).brokers
        return not any(broker.fenced for broker in brokers) and _in_sync(self._nemeses[0])

    def _read_back(self, checker: OnceChecker) -> None:
        await_ended(self.writers, STRETCH_TIMEOUT_S)
        read_back(self._cluster.client_options, TOPIC, PARTITIONS, checker, READ_TIMEOUT_S)


@dataclass(slots=True, frozen=True)
class Blow:
    """A fault of the leader of a partition, and its end."""

    name: str
    hurt: Callable[[OnceRun, int, int], None]
    mend: Callable[[OnceRun, int, int], None]


BLOWS = (
    Blow("kill -9", OnceRun.kill, OnceRun.start),
    Blow("moved away", OnceRun.move, OnceRun.await_move),
    Blow("SIGTERM", OnceRun.stop, OnceRun.start),
    Blow("SIGSTOP", OnceRun.pause, OnceRun.resume),
)


def _in_sync(nemesis: Nemesis) -> bool:
    """True if every replica of every partition is in sync."""
    return all(set(one.isr) == set(one.replicas) for one in nemesis.partitions())


def run_exactly_once(
    seed: int | None,
    rounds: int | None,
    records: int | None,
    report_dir: str | Path | None,
    say: Say,
    secure: bool = False,
    kafka: bool = False,
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`.

    Raises:
        ValueError: too few records to distinguish the rounds.
    """
    rounds = ROUNDS if rounds is None else rounds
    records = RECORDS if records is None else records
    if records < 1_000 * (rounds + 1):
        raise ValueError(f"{records} records are too few for {rounds} rounds: give at least {1_000 * (rounds + 1)}")
    report = announced(NAME, SUMMARY, seed, f"{rounds} rounds, {records} records", say)
    topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, {"min.insync.replicas": 2})
    with judged(report, report_dir, say), fresh_cluster(NODES, topic, secure=secure, kafka=kafka) as (cluster, admin):
        run = OnceRun(cluster, admin, report.seed, records, say)
        if not attempted(report, lambda: run.go(rounds)):
            heal(report, cluster)
        run.judge(report)
    return report
