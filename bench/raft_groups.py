"""``python -m bench raft-groups``: what many idle partitions cost three real nodes.

Each partition is a Raft group. Also: how soon their leaderships move when a node dies.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.options import add_json
from bench.printing import result_console
from bench.process_cost import Idleness, Memory, memory_of, watch
from bench.target_table import FigureLine, show, write_json
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.types import PartitionDescription

NODES = 3
#: Partitions of one topic at most; more groups are spread over several.
TOPIC_PARTITIONS = 1_000
#: Before anything is called idle, at most: leaders reported, caches trimmed, connections of clients gone.
SETTLE_S = 5.0
WAIT_S = 120.0
POLL_S = 0.02

IDLE_TARGET_PERCENT = 2.0
REPLICA_TARGET_KIB = 10.0
FIRST_TARGET_S = 0.5
ALL_TARGET_S = 5.0

#: A partition by topic and number.
Place = tuple[str, int]


@dataclass(slots=True)
class PartitionFailover:
    """After a node was killed: seconds until its partitions had other leaders.

    Arguments:
        led: partitions that it led.
        first_metadata_s, all_metadata_s: as reported by the metadata.
        first_write_s, all_write_s: until a record, sent right after the kill to each of them, was acknowledged.
        write_median_s: the same, median over the partitions.
    """

    led: int
    first_metadata_s: float
    all_metadata_s: float
    first_write_s: float
    all_write_s: float
    write_median_s: float


@dataclass(slots=True)
class RaftGroupFigures:
    """Everything that one run measured. Memory is per node in KiB, in the order of the nodes.

    Arguments:
        moved_while_idle: partitions that started a new term though nothing happened.
    """

    groups: int
    load_average: float = 0.0
    empty: list[Memory] = field(default_factory=list)
    full: list[Memory] = field(default_factory=list)
    create_s: float = 0.0
    led_s: float = 0.0
    moved_while_idle: int = 0
    idle_empty: Idleness | None = None
    idle: Idleness | None = None
    failover: PartitionFailover | None = None
    idle_one_down: Idleness | None = None
    restart_ready_s: float = 0.0
    restart_in_sync_s: float = 0.0
    restarted: Memory | None = None

    @property
    def kib_per_replica(self) -> list[float]:
        """Private memory that a replica takes, per node."""
        return [(full.private - empty.private) / self.groups for full, empty in zip(self.full, self.empty, strict=True)]

    @property
    def kib_per_replica_restarted(self) -> float:
        """The same on the node that was started again: without the traces of the creation."""
        assert self.restarted is not None
        return (self.restarted.private - statistics.mean(one.private for one in self.empty)) / self.groups


class RaftGroupsError(Exception):
    """The cluster did not come to where it can be measured. The message says what did not happen."""


class RaftGroups:
    """Measures one cluster.

    Arguments:
        groups: partitions; each has a replica on every node.
        idle_s: how long idleness is looked at.
        say: takes a line about progress.
    """

    def __init__(
        self, cluster: LocalCluster, admin: Admin, groups: int, idle_s: float, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._idle_s = idle_s
        self._say = say
        self._topics = {
            f"groups-{first}": min(TOPIC_PARTITIONS, groups - first) for first in range(0, groups, TOPIC_PARTITIONS)
        }
        self.figures = RaftGroupFigures(groups, load_average=os.getloadavg()[0])

    def measure(self) -> RaftGroupFigures:
        """Runs everything in its order."""
        figures, nodes = self.figures, list(self._cluster.node_ids)
        self._say("idle without partitions")
        time.sleep(min(SETTLE_S, self._idle_s))
        figures.idle_empty = watch(self._pids(nodes), self._idle_s)
        figures.empty = [memory_of(pid) for pid in self._pids(nodes)]
        self._create()
        self._say("idle")
        time.sleep(min(SETTLE_S, self._idle_s))
        terms = self._terms()
        figures.idle = watch(self._pids(nodes), self._idle_s)
        figures.moved_while_idle = sum(term != terms[place] for place, term in self._terms().items())
        figures.full = [memory_of(pid) for pid in self._pids(nodes)]
        victim = nodes[-1]
        figures.failover = self._kill(victim)
        self._say("idle with one node down")
        rest = [node for node in nodes if node != victim]
        time.sleep(min(SETTLE_S, self._idle_s))
        figures.idle_one_down = watch(self._pids(rest), self._idle_s)
        self._restart(victim)
        time.sleep(min(SETTLE_S, self._idle_s))
        figures.restarted = memory_of(self._pids([victim])[0])
        return figures

    def _pids(self, nodes: list[int]) -> list[int]:
        found = [self._cluster.pid(node) for node in nodes]
        return [pid for pid in found if pid is not None]

    def _partitions(self) -> dict[Place, PartitionDescription]:
        return {
            (topic.name, partition.partition): partition
            for topic in self._admin.describe_topics(list(self._topics))
            for partition in topic.partitions
        }

    def _terms(self) -> dict[Place, int]:
        return {place: one.leader_epoch for place, one in self._partitions().items()}

    def _create(self) -> None:
        self._say(f"creating {self.figures.groups} partitions")
        began = time.monotonic()
        self._admin.create_topics([NewTopic(name, count, NODES) for name, count in self._topics.items()])
        self.figures.create_s = time.monotonic() - began
        self._wait(
            lambda found: len(found) == self.figures.groups and all(one.leader is not None for one in found.values()),
            "every partition has a leader",
        )
        self.figures.led_s = time.monotonic() - began
        self._wait(_all_in_sync, "every replica is in sync")

    def _kill(self, victim: int) -> PartitionFailover:
        led = {place: one.leader_epoch for place, one in self._partitions().items() if one.leader == victim}
        self._say(f"killing node {victim}, which leads {len(led)} partitions")
        addresses = [self._cluster.address(node) for node in self._cluster.node_ids if node != victim]
        first_metadata: float | None = None
        acknowledged: list[float] = []
        failed: list[QuorumlogError] = []
        with Producer(bootstrap_servers=addresses, linger_ms=0, delivery_timeout_ms=WAIT_S * 1_000) as producer:
            for topic, number in led:  # its connections and its metadata are warm, as a running client's are
                producer.send(topic, b"before", partition=number)
            producer.flush()
            began = time.monotonic()

            def settled(future: RecordFuture) -> None:
                problem = future.exception(0)
                if problem is not None:
                    failed.append(problem)
                acknowledged.append(time.monotonic() - began)

            self._cluster.kill(victim)
            for topic, number in led:
                producer.send(topic, b"after", partition=number).add_done_callback(settled)

            def moved(found: dict[Place, PartitionDescription]) -> bool:
                nonlocal first_metadata
                count = sum(found[place].leader not in (None, victim) for place in led)
                if count and first_metadata is None:
                    first_metadata = time.monotonic() - began
                return count == len(led)

            self._wait(moved, f"the partitions of node {victim} have other leaders")
            all_metadata = time.monotonic() - began
            producer.flush()
        if failed:
            raise RaftGroupsError(f"{len(failed)} records were not acknowledged: {failed[0]}")
        assert first_metadata is not None
        return PartitionFailover(
            led=len(led),
            first_metadata_s=first_metadata,
            all_metadata_s=all_metadata,
            first_write_s=min(acknowledged),
            all_write_s=max(acknowledged),
            write_median_s=statistics.median(acknowledged),
        )

    def _restart(self, victim: int) -> None:
        self._wait(lambda found: all(victim not in one.isr for one in found.values()), f"node {victim} is out of sync")
        self._say(f"starting node {victim} again")
        began = time.monotonic()
        self._cluster.start(victim)
        self._cluster.wait_ready()
        self.figures.restart_ready_s = time.monotonic() - began
        self._wait(_all_in_sync, "every replica is in sync again")
        self.figures.restart_in_sync_s = time.monotonic() - began

    def _wait(self, there: Callable[[dict[Place, PartitionDescription]], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not there(self._partitions()):
            if time.monotonic() > deadline:
                raise RaftGroupsError(f"not within {WAIT_S:g} s: {what}")
            time.sleep(POLL_S)


def _all_in_sync(found: dict[Place, PartitionDescription]) -> bool:
    return all(len(one.isr) == NODES for one in found.values())


def lines_of(figures: RaftGroupFigures) -> list[FigureLine]:
    """The table's lines."""
    idle, failover = figures.idle, figures.failover
    assert figures.idle_empty is not None and idle is not None and figures.idle_one_down is not None
    assert failover is not None
    per_replica = figures.kib_per_replica

    def cpu(what: str, one: Idleness, target: float | None = None) -> FigureLine:
        text = f"{_each(one.cpu_percent)} % of a core, {_each(one.wake_ups_per_s)} wake-ups/s"
        return FigureLine(
            f"{what} (the rest of the machine: {one.others_percent:.0f} %)", text, max(one.cpu_percent), target
        )

    def seconds(what: str, value: float, target: float | None = None) -> FigureLine:
        return FigureLine(what, f"{value:.2f} s", value, target)

    return [
        cpu("idle without partitions", figures.idle_empty),
        cpu(f"idle with {figures.groups} partitions x {NODES}", idle, IDLE_TARGET_PERCENT),
        cpu("idle with one node down", figures.idle_one_down, IDLE_TARGET_PERCENT),
        FigureLine("leaderships that moved while idle", str(figures.moved_while_idle), figures.moved_while_idle, 0),
        FigureLine("private memory per replica", f"{_each(per_replica)} KiB", max(per_replica), REPLICA_TARGET_KIB),
        FigureLine(
            "the same after a restart",
            f"{figures.kib_per_replica_restarted:.1f} KiB",
            figures.kib_per_replica_restarted,
            REPLICA_TARGET_KIB,
        ),
        FigureLine("private memory of a node", f"{_each([one.private / 1024 for one in figures.full])} MiB"),
        FigureLine("resident memory of a node", f"{_each([one.resident / 1024 for one in figures.full])} MiB"),
        seconds("created and every partition led", figures.led_s, ALL_TARGET_S),
        seconds(f"node killed, {failover.led} partitions: first new leader in metadata", failover.first_metadata_s),
        seconds("first write acknowledged", failover.first_write_s, FIRST_TARGET_S),
        seconds("median write acknowledged", failover.write_median_s),
        seconds("last write acknowledged", failover.all_write_s, ALL_TARGET_S),
        seconds("last new leader in metadata", failover.all_metadata_s, ALL_TARGET_S),
        seconds("started again: ready", figures.restart_ready_s, ALL_TARGET_S),
        seconds("started again: every replica in sync", figures.restart_in_sync_s),
    ]


def _each(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench raft-groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000, help="partitions, each on all three nodes")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of each look at idle nodes")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    console = result_console()
    try:
        with LocalCluster(nodes=NODES) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            figures = RaftGroups(cluster, admin, parsed.groups, parsed.idle, console.print).measure()
    except (ClusterError, RaftGroupsError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(figures)
    show(console, f"{parsed.groups} partitions on three nodes; load average {figures.load_average:.1f}", lines)
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "raft-groups", *arguments])
        write_json(parsed.json, {"command": command, **dataclasses.asdict(figures)}, lines)
    return 0
