"""Compaction through kill -9: keys are written, overwritten and deleted while nodes die at random moments of their
passes; then every last value must exist, no deleted key may have reappeared, and the replicas must be equal.
"""

from __future__ import annotations

import random
import threading
import time
from itertools import pairwise
from pathlib import Path

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.replica_logs import compacted_replicas_agree, replicas_agree
from quorumlog.chaos.processes.report import Report, Round
from quorumlog.chaos.processes.scenario_cluster import ClientOptions, ScenarioCluster
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
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.producer.delivery import RecordFuture

NAME = "compaction"
SUMMARY = "kill -9 of any node at random moments of its passes, while keys are overwritten and deleted"
ROUNDS = 10
TOPIC = "keyed"
NODES = 3
KEYS = 400
BATCH = 50
#: Maximum delay of a kill after the last round (s).
MOST_DELAY_S = 1.2
FULL_TIMEOUT_S = 60.0
REST_TIMEOUT_S = 120.0
#: Compaction counts as finished when no node has completed a pass for this time (s).
REST_S = 3.0
READ_TIMEOUT_S = 120.0
RESULT_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = RESULT_TIMEOUT_S + 10.0
#: So slow that passes take a good part of the time: many kills hit one.
SETTINGS = {"compaction_interval_ms": 200, "compaction_bytes_per_second": 6_000_000, "log_format": "json"}
CONFIGS = {
    "cleanup.policy": "compact",
    "delete.retention.ms": 1_000,
    "min.cleanable.dirty.ratio": 0.1,
    "min.insync.replicas": 2,
}


#: Key and value of the records that were read, by offset.
Content = dict[int, tuple[bytes | None, bytes | None]]


class KeyWriter(threading.Thread):
    """Writes random keys; one in six records deletes its key. Tracks the last value of each key."""

    def __init__(self, clients: ClientOptions, seed: int) -> None:
        super().__init__(name="key-writer", daemon=True)
        self.last: dict[bytes, bytes | None] = {}
        self.by_offset: dict[int, tuple[bytes, bytes | None]] = {}
        self.acknowledged_s: list[float] = []
        #: Keys of the newest batch until all of it is acknowledged: their last value is unknown.
        self.unresolved: set[bytes] = set()
        self.failure: str | None = None
        self._stop_asked = threading.Event()
        self._clients = clients
        self._rng = random.Random(seed)

    def run(self) -> None:
        """Writes until it is stopped."""
        number = 0
        try:
            with Producer(**self._clients) as producer:
                while not self._stop_asked.is_set():
                    sent: list[tuple[RecordFuture, bytes, bytes | None]] = []
                    for _ in range(BATCH):
                        number += 1
                        key = b"key-%d" % self._rng.randrange(KEYS)
                        value = None if self._rng.random() < 1 / 6 else b"%d-" % number + b"x" * 300
                        self.unresolved.add(key)
                        sent.append((producer.send(TOPIC, value, key=key), key, value))
                    for handle, key, value in sent:
                        self.by_offset[handle.result(timeout=RESULT_TIMEOUT_S).offset] = (key, value)
                        self.last[key] = value
                    self.unresolved.clear()
                    self.acknowledged_s.append(time.monotonic())
        except QuorumlogError as error:
            self.failure = f"the writer failed: {type(error).__name__}: {error}"

    def stop(self) -> None:
        """Stops the writer once its records are acknowledged. Idempotent."""
        self._stop_asked.set()
        self.join(STOP_TIMEOUT_S)
        if self.is_alive():
            self.failure = f"the writer does not end within {STOP_TIMEOUT_S:g} s: some call of the SDK hangs"


class CompactionRun:
    """One run against a cluster of its own."""

    def __init__(self, cluster: ScenarioCluster, admin: Admin, seed: int, say: Say) -> None:
        self.rounds: list[Round] = []
        self.writer = KeyWriter(cluster.client_options, seed)
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._nemesis = Nemesis(cluster, admin, TopicPartition(TOPIC, 0), self._rng)
        self._say = say
        self._began = time.monotonic()

    def go(self, rounds: int) -> None:
        """Writes during the kills."""
        self.writer.start()
        wait_until(lambda: self._raise_failure() or self._passes() >= NODES, REST_TIMEOUT_S, "the first passes end")
        for number in range(rounds):
            with in_round(number + 1):
                self._raise_failure()
                self.rounds.append(self._round(number))

    def _round(self, number: int) -> Round:
        victim = self._rng.choice(self._cluster.node_ids)
        moment = time.monotonic() + self._rng.uniform(0.0, MOST_DELAY_S)
        wait_until(lambda: time.monotonic() >= moment, 2 * MOST_DELAY_S, "the moment of the kill")
        led = self._nemesis.leader() == victim
        began = self._now_us()
        self._cluster.kill(victim)
        self._cluster.start(victim)
        full_s = self._nemesis.wait_isr_full(FULL_TIMEOUT_S)
        gap_ms = self._longest_gap_ms(moment)
        made = Round(number + 1, victim, led, began, self._now_us(), gap_ms, 0.0, None, full_s, 0)
        self._say(f"  {self._passes()} passes, {len(self.writer.by_offset)} records;{made.line()[1:]}")
        return made

    def _longest_gap_ms(self, since_s: float) -> float:
        moments = [since_s, *(moment for moment in list(self.writer.acknowledged_s) if moment > since_s)]
        return max((after - before for before, after in pairwise([*moments, time.monotonic()])), default=0.0) * 1_000

    def _now_us(self) -> int:
        return int((time.monotonic() - self._began) * 1_000_000)

    def _raise_failure(self) -> bool:
        if self.writer.failure is not None:
            raise ChaosError(self.writer.failure)
        return False

    def _passes(self) -> int:
        """Returns the number of completed passes, of all nodes and their restarts."""
        return sum(
            self._cluster.log_path(node).read_text(errors="replace").count("partition_compacted")
            for node in self._cluster.node_ids
        )

    def _rest(self) -> None:
        self._nemesis.wait_isr_full(FULL_TIMEOUT_S)
        seen, since = self._passes(), time.monotonic()

        def rests() -> bool:
            nonlocal seen, since
            if self._passes() != seen:
                seen, since = self._passes(), time.monotonic()
            return time.monotonic() - since > REST_S

        wait_until(rests, REST_TIMEOUT_S, "compaction comes to rest")

    # -- the verdict ------------------------------------------------------------------------------------------------

    def judge(self, report: Report) -> None:
        """Reads everything back when compaction has finished, then kills the nodes and compares their disks."""
        report.rounds = self.rounds
        self.writer.stop()
        attempted(report, self._raise_failure)
        at_rest = attempted(report, self._rest, REPLICAS_AGREE)
        report.acknowledged = len(self.writer.by_offset)
        found: list[tuple[Content, int]] = []
        if attempted(report, lambda: found.append(self._read()), "I1 and I3"):
            report.read = len(found[0][0])
            report.anomalies.extend(self._anomalies(found[0][0]))
        if not at_rest:
            return
        data_dirs = disks_of(self._cluster)
        report.anomalies.extend(replicas_agree(data_dirs))
        compacted, anomalies = compacted_replicas_agree(data_dirs)
        report.anomalies.extend(anomalies)
        for read, end in found:
            self._say(f"{len(read)} of {end} records are left, for {KEYS} keys; {self._passes()} passes")
            # Rounds that ended early have not given compaction enough time.
            if not report.failures and (compacted != NODES or len(read) > end // 2):
                report.failures.append(f"{compacted} replicas were compacted, {len(read)} of {end} records are left")

    def _read(self) -> tuple[Content, int]:
        partition = TopicPartition(TOPIC, 0)
        found: Content = {}
        with Consumer(**self._cluster.client_options) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets([partition])[partition]

            def at_end() -> bool:
                for records in consumer.poll(timeout_ms=500).values():
                    for record in records:
                        found[record.offset] = (record.key, record.value)
                return consumer.position(partition) >= end

            wait_until(at_end, READ_TIMEOUT_S, "a reader gets to the end")
        return found, end

    def _anomalies(self, read: Content) -> list[Anomaly]:
        found = [
            Anomaly("I1", f"offset {offset} has another record than was acknowledged there")
            for offset, record in read.items()
            if record != self.writer.by_offset.get(offset, record)
        ]
        state: dict[bytes | None, bytes | None] = {}
        for offset in sorted(read):
            key, value = read[offset]
            state[key] = value
        for key, value in self.writer.last.items():
            if key not in self.writer.unresolved and state.get(key) != value:
                what = "is lost" if value is not None else "was deleted and has reappeared"
                found.append(Anomaly("I3", f"the last value of {key!r} {what}: {state.get(key)!r:.40}"))
        return found


def run_compaction(
    seed: int | None, rounds: int | None, report_dir: str | Path | None, say: Say, secure: bool = False
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`."""
    rounds = ROUNDS if rounds is None else rounds
    report = announced(NAME, SUMMARY, seed, f"{rounds} rounds", say)
    with (
        judged(report, report_dir, say),
        fresh_cluster(NODES, NewTopic(TOPIC, 1, NODES, CONFIGS), SETTINGS, secure=secure) as (cluster, admin),
    ):
        run = CompactionRun(cluster, admin, report.seed, say)
        try:
            if not attempted(report, lambda: run.go(rounds)):
                heal(report, cluster)
            run.judge(report)
        finally:
            run.writer.stop()
    return report
