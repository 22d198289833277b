"""kill -9 at random moments while logs are trimmed: all retained records must be served, and no others.

Each partition has one writer, whose records are numbered from 0 and idempotent: record n has offset n. Retention by
bytes trims the logs all the time, DeleteRecords now and then, and in each round one node is killed at any moment of it
and restarted. Then every partition is checked: its log start never moves back, nothing before it is served, and
everything from there on is.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.replica_logs import replicas_agree
from quorumlog.chaos.processes.report import Report
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
from quorumlog.sdk import Admin, Consumer, NewTopic, OffsetOutOfRangeError, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.partition.partition import META_ROW, decode_meta
from quorumlog.storage.batch_row import any_batch
from quorumlog.storage.storage import Storage

NAME = "retention"
SUMMARY = "kill -9 of any node at a random moment while retention and delete-records trim the logs, restart"
ROUNDS = 50
TOPIC = "retained"
NODES = 3
PARTITIONS = 3
RETENTION_BYTES = 200_000
VALUE_BYTES = (100, 6_000)
#: Maximum number of unacknowledged records of one writer.
IN_FLIGHT = 20
#: Maximum delay of a kill, and of the restart (s).
STRIKE_WITHIN_S = 0.5
#: Share of the rounds with a DeleteRecords request.
DELETIONS = 0.3
PATIENCE_S = 60.0


class _PartitionWriter(threading.Thread):
    """Writes one partition until it is stopped."""

    def __init__(self, clients: ClientOptions, tp: TopicPartition, seed: int) -> None:
        super().__init__(name=f"writer-{tp.partition}", daemon=True)
        self.acknowledged = 0
        self.failure: str | None = None
        self.stopped = threading.Event()
        self._tp = tp
        self._rng = random.Random(seed)
        self._clients = clients

    def run(self) -> None:
        """Sends numbered records; each must get the offset of its number."""
        try:
            with Producer(**self._clients, batch_size=8_192, linger_ms=1) as producer:
                waiting = []
                for number in itertools.count():
                    padding = bytes(self._rng.randint(*VALUE_BYTES))
                    waiting.append(producer.send(TOPIC, b"%d " % number + padding, partition=self._tp.partition))
                    if len(waiting) >= IN_FLIGHT or self.stopped.is_set():
                        self._settle(waiting.pop(0).result(timeout=PATIENCE_S).offset)
                    if self.stopped.is_set():
                        for future in waiting:
                            self._settle(future.result(timeout=PATIENCE_S).offset)
                        return
        except QuorumlogError as error:
            self.failure = f"a record of {self._tp} was not accepted: {error}"

    def _settle(self, offset: int) -> None:
        if offset != self.acknowledged:
            raise QuorumlogError(f"record {self.acknowledged} was acknowledged at offset {offset}")
        self.acknowledged += 1


class RetentionRun:
    """One run against a cluster of its own."""

    def __init__(self, cluster: ScenarioCluster, admin: Admin, seed: int, report: Report, say: Say) -> None:
        self._cluster = cluster
        self._admin = admin
        self._report = report
        self._say = say
        self._rng = random.Random(seed)
        self._partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._writers = {
            tp: _PartitionWriter(cluster.client_options, tp, self._rng.getrandbits(32)) for tp in self._partitions
        }
        self._starts = dict.fromkeys(self._partitions, 0)

    def go(self, rounds: int) -> None:
        """Writes, trims and kills."""
        for writer in self._writers.values():
            writer.start()
        for number in range(rounds):
            with in_round(number + 1):
                self._round(number)

    def stop(self) -> None:
        """Stops the writers, once their records are acknowledged."""
        for writer in self._writers.values():
            writer.stopped.set()
        for writer in self._writers.values():
            writer.join(2 * PATIENCE_S)
            if writer.is_alive():
                writer.failure = f"{writer.name} does not end within {2 * PATIENCE_S:g} s: some call of the SDK hangs"

    def judge(self) -> None:
        """Reads everything, then kills the nodes and compares their disks. The writers have stopped."""
        report = self._report
        resolved = attempted(report, self._raise_failures, "I3 at the ends of the logs")
        nemesis = Nemesis(self._cluster, self._admin, self._partitions[0], self._rng)
        together = attempted(report, lambda: nemesis.wait_isr_full(PATIENCE_S), REPLICAS_AGREE)
        report.acknowledged = sum(writer.acknowledged for writer in self._writers.values())
        for tp in self._partitions:
            attempted(report, lambda tp=tp: self._look_at_the_end(tp), f"I1, I3 and I8 of {tp}")  # type: ignore[misc]
        if together:
            self._compare(resolved)

    def _look_at_the_end(self, tp: TopicPartition) -> None:
        self._report.read += self._look_at(tp)

    def _round(self, number: int) -> None:
        before = sum(self._starts.values())
        time.sleep(self._rng.uniform(0, STRIKE_WITHIN_S))
        if self._rng.random() < DELETIONS:
            threading.Thread(target=self._delete, args=(self._rng.choice(self._partitions),), daemon=True).start()
            time.sleep(self._rng.uniform(0, 0.05))
        victim = self._rng.choice(self._cluster.node_ids)
        self._cluster.kill(victim)
        time.sleep(self._rng.uniform(0, STRIKE_WITHIN_S))
        self._cluster.start(victim)
        read = sum(self._look_at(tp) for tp in self._partitions)
        self._raise_failures()
        trimmed = sum(self._starts.values()) - before
        self._say(f"  round {number + 1}: node {victim} killed, {trimmed} records trimmed, {read} served as written")

    def _delete(self, tp: TopicPartition) -> None:
        offset = self._writers[tp].acknowledged
        try:
            start = self._admin.delete_records({tp: offset})[tp]
        except OffsetOutOfRangeError as error:
            self._broken("I3", f"record {offset - 1} of {tp} was acknowledged, but cannot be deleted: {error}")
        except QuorumlogError:
            return  # The records may be deleted, or not.
        else:
            self._starts[tp] = max(self._starts[tp], start)

    def _look_at(self, tp: TopicPartition) -> int:
        """Reads what is served of a partition; returns the number of records."""
        floor, acknowledged = self._starts[tp], self._writers[tp].acknowledged
        with Consumer(**self._cluster.client_options, auto_offset_reset="none") as consumer:
            consumer.assign([tp])
            start = self._asked(lambda: consumer.beginning_offsets([tp])[tp])
            if start < floor:
                self._broken("I8", f"{tp} started at {floor}, and now starts at {start}")
            self._starts[tp] = max(floor, start)
            if start:
                self._must_be_gone(consumer, tp, start - 1)
            return self._read(consumer, tp, acknowledged)

    def _must_be_gone(self, consumer: Consumer, tp: TopicPartition, offset: int) -> None:
        consumer.seek(tp, offset)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                served = consumer.poll(timeout_ms=500)
            except OffsetOutOfRangeError:
                return
            if served:
                self._broken("I8", f"record {offset} of {tp} is served, below the log start")
                return
        raise ChaosError(f"a fetch below the log start of {tp} is not answered")

    def _read(self, consumer: Consumer, tp: TopicPartition, end: int) -> int:
        """Reads from the log start at least to ``end``, even while the start advances."""
        position = next_offset = self._asked(lambda: consumer.beginning_offsets([tp])[tp])
        count = 0
        consumer.seek(tp, position)
        until = time.monotonic() + PATIENCE_S
        while next_offset < end:
            try:
                polled = consumer.poll(timeout_ms=500)
            except OffsetOutOfRangeError:
                # Trimmed during the read: the reader continues at the new log start.
                next_offset = self._asked(lambda: consumer.beginning_offsets([tp])[tp])
                consumer.seek(tp, next_offset)
                continue
            for record in itertools.chain.from_iterable(polled.values()):
                number = int((record.value or b"-1").split(b" ", 1)[0])
                if not record.offset == number == next_offset:
                    self._broken("I1", f"record {number} of {tp} at offset {record.offset}, expected {next_offset}")
                next_offset = record.offset + 1
                count += 1
            if time.monotonic() > until:
                raise ChaosError(f"{tp} is not served up to {end}: offset {next_offset} is next")
        return count

    def _asked(self, ask: Callable[[], int]) -> int:
        found: list[int] = []

        def answered() -> bool:
            found.append(ask())
            return True

        wait_until(answered, PATIENCE_S, "an answer for the start of a log")
        return found[-1]

    def _raise_failures(self) -> None:
        for writer in self._writers.values():
            if writer.failure is not None:
                raise ChaosError(writer.failure)

    def _broken(self, invariant: str, what: str) -> None:
        self._report.anomalies.append(Anomaly(invariant, what))

    def _compare(self, resolved: bool) -> None:
        """Kills every node, and checks the disks: they must agree, and contain all that was served.

        Arguments:
            resolved: True if the writers have the outcome of each of their records.
        """
        data_dirs = disks_of(self._cluster)
        self._report.anomalies.extend(replicas_agree(data_dirs))
        ends = sorted(writer.acknowledged for writer in self._writers.values())
        for node, data_dir in data_dirs.items():
            with Storage(data_dir) as storage:
                groups = [group for group, state in storage.groups().items() if META_ROW in state.table and group]
                found = []
                for group in groups:
                    last, first = storage.last_batch(group), storage.find_batch(group, 0, any_batch)
                    _, high_watermark, log_start, _ = decode_meta(storage.groups()[group].table[META_ROW])
                    found.append(last.last_offset + 1 if last is not None else high_watermark)
                    if first is not None and first.base_offset > log_start:
                        self._broken("I9", f"node {node} lacks records of group {group} before {first.base_offset}")
                if resolved and sorted(found) != ends:
                    self._broken("I3", f"logs of node {node} end at {sorted(found)}, acknowledged are {ends}")


def run_retention(
    seed: int | None, rounds: int | None, report_dir: str | Path | None, say: Say, secure: bool = False
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`."""
    rounds = ROUNDS if rounds is None else rounds
    report = announced(NAME, SUMMARY, seed, f"{rounds} rounds", say)
    topic = NewTopic(TOPIC, PARTITIONS, NODES, {"min.insync.replicas": 2, "retention.bytes": RETENTION_BYTES})
    with judged(report, report_dir, say), fresh_cluster(NODES, topic, secure=secure) as (cluster, admin):
        run = RetentionRun(cluster, admin, report.seed, report, say)
        try:
            if not attempted(report, lambda: run.go(rounds)):
                heal(report, cluster)
        finally:
            run.stop()
        run.judge()
    return report
