"""Bits flip in one node's data file, and the file is truncated, under load: all damage is detected and repaired
automatically.

In each round the node's process is killed or stopped, bits are flipped or the file is truncated at a random position,
and it is started again; or the file is damaged while the node runs. The supervisor starts the process again when it
exits, and does nothing else. The round is over once the cluster is healthy, and the node has scrubbed all of its
storage again. Then all retained records are read, and every record must be as written.

Afterwards each flip is accounted for: the next time that the file is not being written, it must have disappeared from
all meaningful bytes.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.processes.nemesis import ChaosError, wait_until
from quorumlog.chaos.processes.page_map import FREE, PageMap, flips
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
from quorumlog.local import ClusterError
from quorumlog.sdk import Admin, Consumer, NewTopic, NodeDescription, OffsetOutOfRangeError, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

NAME = "damage"
SUMMARY = "bits flip in one node's data file, and it is truncated: repaired automatically, nothing damaged served"
#: In 50 of the rounds the file is truncated; in the others, this number of bits flip, by turns: 200 in all. A damaged
#: page moves the whole file aside with all other flips, so many rounds have only one.
ROUNDS = 130
CUT_ROUNDS = 50
FLIPS = (1, 1, 2, 6)
NODES = 3
PARTITIONS = 3
TOPIC = "damaged"
COMPACTED = "compacted"
GROUP = "readers"
RETENTION_BYTES = 2_000_000
VALUE_BYTES = (100, 9_000)
KEYS = 40
#: The load: seconds between two records of each partition's writer.
PACE_S = 0.01
IN_FLIGHT = 20
PATIENCE_S = 90.0
#: A node may exit this often in a round for each fault: when the damage is detected, and again when a replica is
#: found that cannot be repaired in place.
ENDS_PER_STRIKE = 2
#: Bytes around a flipped one by which it is recognized later.
AROUND = 16
SETTINGS = {
    "damaged_storage": "move-aside",
    "scrub_bytes_per_second": 64 << 20,
    "scrub_interval_ms": 500,
    "metadata_checkpoint_entries": 100,
    "compaction_interval_ms": 2_000,
}


def content(partition: int, number: int) -> bytes:
    """Returns the expected value of a record, which cannot be derived from its neighbours."""
    rng = random.Random((partition << 40) + number)
    return b"%d " % number + rng.randbytes(rng.randint(*VALUE_BYTES))


class _Writer(threading.Thread):
    """Writes numbered records to one partition until it is stopped; to the compacted topic, with cyclic keys."""

    def __init__(self, clients: ClientOptions, tp: TopicPartition) -> None:
        super().__init__(name=f"writer-{tp.topic}-{tp.partition}", daemon=True)
        self.tp = tp
        self.acknowledged = 0
        self.failure: str | None = None
        self.stopped = threading.Event()
        self._clients = clients

    def run(self) -> None:
        """Sends records; each must get the offset of its number."""
        try:
            with Producer(**self._clients, linger_ms=1, batch_size=16_384) as producer:
                waiting = []
                for number in itertools.count():
                    key = b"%d" % (number % KEYS) if self.tp.topic == COMPACTED else None
                    value = content(self.tp.partition, number)
                    waiting.append(producer.send(self.tp.topic, value, key=key, partition=self.tp.partition))
                    if len(waiting) >= IN_FLIGHT or self.stopped.is_set():
                        self._settle(waiting.pop(0).result(timeout=PATIENCE_S).offset)
                    if self.stopped.is_set():
                        for future in waiting:
                            self._settle(future.result(timeout=PATIENCE_S).offset)
                        return
                    time.sleep(PACE_S)
        except QuorumlogError as error:
            self.failure = f"a record of {self.tp} was not accepted: {error}"

    def _settle(self, offset: int) -> None:
        if offset != self.acknowledged:
            raise QuorumlogError(f"record {self.acknowledged} was acknowledged at offset {offset}")
        self.acknowledged += 1


@dataclass(slots=True)
class _Flip:
    """A bit that was flipped.

    Arguments:
        kind: kind of page; empty if it is unknown, because the node was running.
        meant: True if the byte is meaningful; None: unknown.
        around: the bytes there, as flipped, from ``first`` on.
    """

    number: int
    offset: int
    kind: str
    meant: bool | None
    first: int
    around: bytes


class DamageRun:
    """One run against a cluster of its own."""

    def __init__(self, cluster: ScenarioCluster, admin: Admin, seed: int, report: Report, say: Say) -> None:
        self._cluster = cluster
        self._admin = admin
        self._report = report
        self._say = say
        self._rng = random.Random(seed)
        self.victim = self._rng.choice(cluster.node_ids)
        tps = [*(TopicPartition(TOPIC, number) for number in range(PARTITIONS)), TopicPartition(COMPACTED, 0)]
        self._writers = [_Writer(cluster.client_options, tp) for tp in tps]
        self._open: list[_Flip] = []
        self._inode = 0
        self._log_read = 0
        self.ends = 0
        self.by_kind: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.said: Counter[str] = Counter()

    def go(self, rounds: int) -> None:
        """Writes, damages, and waits until the cluster is healthy."""
        for writer in self._writers:
            writer.start()
        wait_until(lambda: all(writer.acknowledged > 50 for writer in self._writers), PATIENCE_S, "a load")
        cuts = round(rounds * CUT_ROUNDS / ROUNDS)
        strikes = [0] * cuts + [FLIPS[number % len(FLIPS)] for number in range(rounds - cuts)]
        self._rng.shuffle(strikes)
        for number, count in enumerate(strikes, 1):
            with in_round(number):
                self._round(number, count)

    def stop(self) -> None:
        """Stops the writers, once their records are acknowledged."""
        for writer in self._writers:
            writer.stopped.set()
        for writer in self._writers:
            writer.join(2 * PATIENCE_S)
            if writer.is_alive():
                writer.failure = f"{writer.name} does not end within {2 * PATIENCE_S:g} s: some call of the SDK hangs"

    def judge(self) -> None:
        """Reads everything, then kills the nodes and compares their disks. The writers have stopped."""
        report = self._report
        attempted(report, self._raise_failures)
        report.acknowledged = sum(writer.acknowledged for writer in self._writers)
        for writer in self._writers:
            attempted(report, lambda writer=writer: self._read(writer), f"I1 and I3 of {writer.tp}")  # type: ignore[misc]
        together = attempted(report, lambda: wait_until(self._is_well, PATIENCE_S, "all is well"), REPLICAS_AGREE)
        data_dirs = disks_of(self._cluster)
        if together:
            report.anomalies.extend(replicas_agree(data_dirs))
            self._account()
        self._say(f"  flipped bits by page: {_listed(self.by_kind)}")
        self._say(f"  what became of them: {_listed(self.outcomes)}")
        self._say(f"  node {self.victim} exited {self.ends} times, and logged: {_listed(self.said)}")

    # -- a round ------------------------------------------------------------------------------------------------------

    def _round(self, number: int, count: int) -> None:
        """Runs one round: bits flip, or the file is truncated if none exist to flip."""
        began = time.monotonic()
        time.sleep(self._rng.uniform(0, 0.5))
        how = self._rng.choice(("killed", "killed", "stopped", "running"))
        if how == "killed":
            self._cluster.kill(self.victim)
        elif how == "stopped":
            self._said()
            self._cluster.stop(self.victim)
            # gRPC may log the calls that it cancels then.
            self._log_read = self._cluster.log_path(self.victim).stat().st_size
        if how != "running":
            self._account()
        done = self._flip(number, count, how == "running") if count else self._cut()
        struck_ms = time.time_ns() // 1_000_000
        if how != "running":
            self._start_again()
        ends = self._heal(ENDS_PER_STRIKE * max(1, count), struck_ms)
        self._raise_failures()
        read = sum(self._read(writer) for writer in self._writers)
        said = self._said()
        shutil.rmtree(self._data_dir / "damaged-1", ignore_errors=True)
        self._say(
            f"  round {number}: node {self.victim} {how}, {done}; it exited {ends} times and logged {_listed(said)};"
            f" {read} records read as written; {time.monotonic() - began:.1f} s"
        )

    @property
    def _data_dir(self) -> Path:
        return self._cluster.data_dir(self.victim)

    @property
    def _data_file(self) -> Path:
        return self._data_dir / "data.mdb"

    def _cut(self) -> str:
        size = self._data_file.stat().st_size
        at = self._rng.randrange(size)
        os.truncate(self._data_file, at)
        self.outcomes["not checked: the file was truncated before"] += len(self._open)
        self._open.clear()
        return f"its file of {size} bytes truncated at {at}"

    def _flip(self, number: int, count: int, running: bool) -> str:
        kinds = []
        self._inode = self._data_file.stat().st_ino
        page_map = None if running else PageMap(self._data_file)
        size = self._data_file.stat().st_size
        drawn = (
            [(self._rng.randrange(size), self._rng.randrange(8)) for _ in range(count)]
            if page_map is None
            else list(flips(self._rng, page_map, count))
        )
        with self._data_file.open("r+b", buffering=0) as file:
            for offset, bit in drawn:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 1 << bit]))
                first = max(0, offset - AROUND)
                file.seek(first)
                kind = "any, while it ran" if page_map is None else page_map.kind_at(offset)
                is_meaningful = None if page_map is None else page_map.is_meant(offset)
                self._open.append(_Flip(number, offset, kind, is_meaningful, first, file.read(2 * AROUND + 1)))
                self.by_kind[kind] += 1
                kinds.append(kind if is_meaningful is not False or kind == FREE else f"{kind} (unused bytes)")
        return f"bits flipped in {', '.join(kinds)}"

    def _heal(self, most_ends: int, struck_ms: int) -> int:
        """Starts the node again whenever it has exited, and waits until the cluster is healthy; returns how often it
        exited.
        """
        ends, until = 0, time.monotonic() + PATIENCE_S
        passes: list[int] = []
        while True:
            if not self._cluster.is_running(self.victim):
                ends += 1
                self.ends += 1
                if ends > most_ends:
                    raise ChaosError(f"node {self.victim} keeps exiting: {self._tail()}")
                self._start_again()
            with suppress(QuorumlogError):
                finished = self._finished_scrub()
                if finished > struck_ms and finished not in passes:
                    passes.append(finished)
                # The first pass may have started before.
                if len(passes) > 1 and self._is_well():
                    return ends
            if time.monotonic() > until:
                raise ChaosError(f"not well after {PATIENCE_S:g} s: {self._complaint()}; {self._tail()}")
            time.sleep(0.1)

    def _start_again(self) -> None:
        """Starts the node again. A node that exits immediately has met damage that prevents opening its storage; its
        next start handles that.
        """
        try:
            self._cluster.start(self.victim)
        except ClusterError as error:
            if "ended" not in str(error):
                raise

    def _described(self) -> dict[int, NodeDescription]:
        found = [each for each in self._admin.describe_nodes() if isinstance(each, NodeDescription)]
        return {each.node_id: each for each in found}

    def _finished_scrub(self) -> int:
        described = self._described().get(self.victim)
        return described.last_scrubbed_ms if described is not None and described.ready else 0

    def _is_well(self) -> bool:
        return not self._complaint()

    def _complaint(self) -> str:
        """Returns what is unhealthy, from an operator's view; empty if nothing is."""
        cluster = self._admin.describe_cluster()
        for broker in cluster.brokers:
            if broker.fenced or broker.lost or broker.returning:
                return f"{broker}"
        described = self._described()
        for node in self._cluster.node_ids:
            if node not in described or not described[node].ready or described[node].damaged_entries:
                return f"node {node}: {described.get(node, 'no answer')}"
        if len(self._admin.describe_quorum().voters) != NODES:
            return "fewer voters on the metadata"
        for topic in self._admin.describe_topics(include_internal=True):
            for each in topic.partitions:
                if len(each.replicas) != NODES or len(each.isr) != NODES:
                    return f"{topic.name}-{each.partition}: replicas {each.replicas}, in sync {each.isr}"
        return ""

    def _said(self) -> Counter[str]:
        """Returns what the node's log has reported about damage since the last call."""
        text = self._cluster.log_path(self.victim).read_bytes()
        lines = text[self._log_read :].decode(errors="replace").splitlines()
        self._log_read = len(text)
        found: Counter[str] = Counter()
        for line in lines:
            for word in ("damage_found", "damage_mended", "replica_set_aside", "replica_begins_anew", "moved to"):
                found[word] += word in line
            found["ended of a signal"] += "killed by a signal" in line
            found["trace"] += "Traceback" in line
        found = +found
        if found["trace"]:
            self._broken("I7", f"node {self.victim} ended with a trace")
        self.said.update(found)
        return found

    def _tail(self) -> str:
        return self._cluster.log_path(self.victim).read_text(errors="replace")[-1_500:]

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Records what became of each flip of earlier rounds, while the file is not being written."""
        pending, self._open = self._open, []
        if not pending:
            return
        if self._data_file.stat().st_ino != self._inode:
            self.outcomes["moved aside with the file"] += len(pending)
            return
        page_map = PageMap(self._data_file)
        with self._data_file.open("rb") as file:
            for flip in pending:
                file.seek(flip.first)
                if file.read(len(flip.around)) != flip.around:
                    self.outcomes["repaired, or overwritten"] += 1
                elif page_map.is_meant(flip.offset):
                    self.outcomes["STILL THERE"] += 1
                    where = f"{flip.kind}, then {page_map.kind_at(flip.offset)}, page {flip.offset // 4096}"
                    self._broken("I6", f"a bit flipped in round {flip.number} was never found: {where}: {flip}")
                elif flip.meant:
                    self.outcomes["repaired, in a page that is now free"] += 1
                else:
                    self.outcomes["harmless: a free page, or unused bytes"] += 1

    def _read(self, writer: _Writer) -> int:
        """Reads all retained records of a partition, up to those acknowledged at the start."""
        tp, end = writer.tp, writer.acknowledged
        count, until = 0, time.monotonic() + PATIENCE_S
        latest: dict[bytes, int] = {}
        with Consumer(
            **self._cluster.client_options,
            auto_offset_reset="none",
            group_id=GROUP,
            enable_auto_commit=False,
        ) as consumer:
            consumer.assign([tp])
            next_offset = self._seek_to_start(consumer, tp)
            while next_offset < end:
                if time.monotonic() > until:
                    raise ChaosError(f"{tp} is not served up to {end}: offset {next_offset} is next")
                try:
                    polled = consumer.poll(timeout_ms=500)
                except OffsetOutOfRangeError:
                    next_offset = self._seek_to_start(consumer, tp)
                    continue
                for record in itertools.chain.from_iterable(polled.values()):
                    value = record.value or b""
                    number = record.offset
                    if value != content(tp.partition, number):
                        self._broken("I1", f"record {number} of {tp} is not what was written")
                    if number < next_offset or (number > next_offset and tp.topic != COMPACTED):
                        self._broken("I1", f"record {number} of {tp} was read where {next_offset} was expected")
                    if record.key is not None:
                        latest[record.key] = number
                    next_offset = number + 1
                    count += 1
            wait_until(lambda: _committed(consumer, tp, next_offset), PATIENCE_S, f"a commit of {tp}")
        if tp.topic == COMPACTED:
            for number in range(max(0, end - KEYS), end):
                if latest.get(b"%d" % (number % KEYS), -1) < number:
                    self._broken("I3", f"record {number} of {tp}, the last of its key, is gone")
        self._report.read += count
        return count

    def _seek_to_start(self, consumer: Consumer, tp: TopicPartition) -> int:
        found: list[int] = []

        def answered() -> bool:
            found.append(consumer.beginning_offsets([tp])[tp])
            return True

        wait_until(answered, PATIENCE_S, f"an answer for the start of {tp}")
        consumer.seek(tp, found[-1])
        return found[-1]

    def _raise_failures(self) -> None:
        for writer in self._writers:
            if writer.failure is not None:
                raise ChaosError(writer.failure)

    def _broken(self, invariant: str, what: str) -> None:
        self._report.anomalies.append(Anomaly(invariant, what))


def _committed(consumer: Consumer, tp: TopicPartition, offset: int) -> bool:
    consumer.commit({tp: offset})
    return True


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


def run_damage(
    seed: int | None, rounds: int | None, report_dir: str | Path | None, say: Say, secure: bool = False
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`."""
    rounds = ROUNDS if rounds is None else rounds
    report = announced(NAME, SUMMARY, seed, f"{rounds} rounds", say)
    topic = NewTopic(TOPIC, PARTITIONS, NODES, {"min.insync.replicas": 2, "retention.bytes": RETENTION_BYTES})
    with judged(report, report_dir, say), fresh_cluster(NODES, topic, SETTINGS, secure=secure) as (cluster, admin):
        admin.create_topics([NewTopic(COMPACTED, 1, NODES, {"min.insync.replicas": 2, "cleanup.policy": "compact"})])
        run = DamageRun(cluster, admin, report.seed, report, say)
        try:
            if not attempted(report, lambda: run.go(rounds)):
                heal(report, cluster)
        finally:
            run.stop()
        run.judge()
    return report
