"""``python -m bench consumer-heartbeats``: the costs of many group members' heartbeats for three nodes.

The same nodes are measured idle before, for comparison. The members run in a few processes of their own and send only
heartbeats: the SDK's state machine over a few streams to each node per process. Nothing is written or read: all load of
nodes beyond idleness is for the members.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import queue
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from bench.heartbeat_clients import Clients, HeartbeatProgress
from bench.options import add_json
from bench.printing import result_console
from bench.process_cost import Idleness, Memory, memory_of, watch
from bench.target_table import FigureLine, show, write_json
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic, PartitionDescription, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.wire.topic_names import GROUPS_TOPIC

NODES = 3
TOPIC = "beaten"
SETTLE_S = 5.0
BALANCE_TIMEOUT_S = 30.0
END_TIMEOUT_S = 20.0


@dataclass(slots=True)
class HeartbeatFigures:
    """Results of one run. Memory is per node, in the order of the nodes.

    Arguments:
        answered_per_s: answered heartbeats, over all nodes.
        joined_s: time until all members had joined and every group's partitions were assigned.
        errors: rejections and broken streams in the measured time.
        moved: coordinators that started a new term in it. Each notifies all members of its groups: NOT_COORDINATOR.
        clients_percent: load of all client processes together, in percent of a core.
    """

    groups: int
    members: int
    load_average: float
    idle: Idleness | None = None
    busy: Idleness | None = None
    empty: list[Memory] = field(default_factory=list)
    full: list[Memory] = field(default_factory=list)
    answered_per_s: float = 0.0
    joined_s: float = 0.0
    clients_percent: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    lost: int = 0

    @property
    def kib_per_member(self) -> list[float]:
        """The private memory of a node per member of the whole cluster."""
        count = self.groups * self.members
        return [(full.private - empty.private) / count for full, empty in zip(self.full, self.empty, strict=True)]

    @property
    def microseconds_per_heartbeat(self) -> float:
        """CPU of the three nodes together beyond idleness, per answered heartbeat."""
        assert self.idle is not None and self.busy is not None
        beyond = sum(self.busy.cpu_percent) - sum(self.idle.cpu_percent)
        return beyond / 100 * 1e6 / self.answered_per_s if self.answered_per_s else 0.0


class HeartbeatsError(Exception):
    """Raised if the members do not reach a measurable state. The message says what did not happen."""


class ClientProcess:
    """A process full of members; stopped at the end of the block."""

    def __init__(self, task: Clients) -> None:
        self.progress = HeartbeatProgress()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.heartbeat_clients", json.dumps(dataclasses.asdict(task))],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_TIMEOUT_S)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def look(self) -> HeartbeatProgress:
        """Returns its last report.

        Raises:
            HeartbeatsError: it has exited.
        """
        while not self._lines.empty():
            self.progress = HeartbeatProgress(**json.loads(self._lines.get()))
        if self._process.poll() is not None:
            raise HeartbeatsError(f"a process of members exited with status {self._process.returncode}")
        return self.progress

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)


class Heartbeats:
    """Measures one cluster.

    Arguments:
        watch_s: duration of the observations, idle and with the members.
        say: prints a line about progress.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        admin: Admin,
        tasks: list[Clients],
        watch_s: float,
        wait_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._tasks = tasks
        self._watch_s = watch_s
        self._wait_s = wait_s
        self._say = say
        groups, members = sum(task.groups for task in tasks), tasks[0].members
        self.figures = HeartbeatFigures(groups, members, os.getloadavg()[0])

    def measure(self) -> HeartbeatFigures:
        """Runs all parts in order."""
        figures = self.figures
        self._say("idle, without groups")
        time.sleep(min(SETTLE_S, self._watch_s))
        figures.idle = watch(self._cluster.pids, self._watch_s)
        figures.empty = [memory_of(pid) for pid in self._cluster.pids]
        with ExitStack() as running:
            began = time.monotonic()
            clients = [running.enter_context(ClientProcess(task)) for task in self._tasks]
            self._await_settled(clients)
            figures.joined_s = time.monotonic() - began
            self._say(f"all members have joined, {figures.joined_s:.0f} s; heartbeats alone")
            self._balance_coordinators()
            time.sleep(min(SETTLE_S, self._watch_s))
            terms = self._terms()
            self._watch(clients)
            figures.moved = sum(now != before for now, before in zip(self._terms(), terms, strict=True))
            figures.full = [memory_of(pid) for pid in self._cluster.pids]
        return figures

    def _watch(self, clients: list[ClientProcess]) -> None:
        figures = self.figures
        before = [dataclasses.replace(client.look()) for client in clients]
        pids = self._cluster.pids
        seen = watch([*pids, *(client.pid for client in clients)], self._watch_s)
        after = [client.look() for client in clients]
        nodes = len(pids)
        figures.clients_percent = sum(seen.cpu_percent[nodes:])
        figures.busy = dataclasses.replace(
            seen, cpu_percent=seen.cpu_percent[:nodes], wake_ups_per_s=seen.wake_ups_per_s[:nodes]
        )
        answered = sum(one.answered for one in after) - sum(one.answered for one in before)
        figures.answered_per_s = answered / seen.seconds
        figures.lost = sum(one.lost for one in after) - sum(one.lost for one in before)
        errors = Counter[str]()
        for one in after:
            errors.update(one.errors)
        for one in before:
            errors.subtract(one.errors)
        figures.errors = dict(+errors)

    def _await_settled(self, clients: list[ClientProcess]) -> None:
        groups, members = self.figures.groups, self.figures.groups * self.figures.members
        deadline = time.monotonic() + self._wait_s
        reported = 0
        while True:
            seen = [client.look() for client in clients]
            joined, settled = sum(one.joined for one in seen), sum(one.settled for one in seen)
            if (joined, settled) == (members, groups):
                return
            if joined >= reported + members // 5:
                reported = joined
                self._say(f"{joined} members, {settled} groups settled")
            if time.monotonic() > deadline:
                errors = [one.errors for one in seen]
                raise HeartbeatsError(
                    f"{joined} of {members} members have joined, {settled} of {groups} groups have settled after"
                    f" {self._wait_s:g} s; refused: {errors}"
                )
            time.sleep(0.1)

    def _balance_coordinators(self) -> None:
        """Makes every coordinator lead by its preferred leader.

        (If another node took over while thousands joined at once on a busy machine, the nodes would hand it back
        automatically within half a minute: during the measurement, with a notification of all its members.)
        """
        deadline = time.monotonic() + BALANCE_TIMEOUT_S
        while displaced := [one for one in self._coordinators() if one.leader != one.replicas[0]]:
            if time.monotonic() > deadline:
                raise HeartbeatsError(f"{len(displaced)} coordinators are still not led by their preferred leaders")
            self._admin.elect_leaders(TopicPartition(GROUPS_TOPIC, one.partition) for one in displaced)
            time.sleep(0.1)

    def _terms(self) -> list[int]:
        return [one.leader_epoch for one in self._coordinators()]

    def _coordinators(self) -> tuple[PartitionDescription, ...]:
        return self._admin.describe_topics([GROUPS_TOPIC], linearizable=True)[0].partitions


def lines_of(figures: HeartbeatFigures) -> list[FigureLine]:
    """Returns the lines of the table."""
    idle, busy = figures.idle, figures.busy
    assert idle is not None and busy is not None
    each = [now - before for now, before in zip(busy.cpu_percent, idle.cpu_percent, strict=True)]
    return [
        FigureLine("idle: CPU of each node, % of a core", _each(idle.cpu_percent)),
        FigureLine("with heartbeats alone", _each(busy.cpu_percent)),
        FigureLine("heartbeats answered per second, all nodes", f"{figures.answered_per_s:.0f}"),
        FigureLine("cost of the heartbeats per node, % of a core", _each(each)),
        FigureLine("CPU per heartbeat", f"{figures.microseconds_per_heartbeat:.0f} µs"),
        FigureLine("wake-ups per second of each node", _each(busy.wake_ups_per_s)),
        FigureLine("private memory of a node per member of the cluster", f"{_each(figures.kib_per_member)} KiB"),
        FigureLine("all joined and assigned", f"{figures.joined_s:.1f} s"),
        FigureLine("refused while measured", ", ".join(f"{name} {n}" for name, n in figures.errors.items()) or "none"),
        FigureLine("coordinators that moved while measured", str(figures.moved), figures.moved, 0),
        FigureLine("partitions lost by members while measured", str(figures.lost), figures.lost, 0),
        FigureLine("CPU of the clients", f"{figures.clients_percent:.0f} % of a core"),
        FigureLine("the rest of the machine", f"{busy.others_percent:.0f} % of a core"),
    ]


def _each(values: list[float]) -> str:
    return f"{' / '.join(f'{value:.1f}' for value in values)} (mean {statistics.mean(values):.1f})"


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench consumer-heartbeats", description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000, help="number of consumer groups; 1000")
    parser.add_argument("--members", type=int, default=10, help="number of members of each group; 10")
    parser.add_argument(
        "--partitions", type=int, default=10, help="partitions of the topic that all groups subscribe to; 10"
    )
    parser.add_argument("--session-ms", type=int, default=45_000, help="session timeout; 45000")
    parser.add_argument("--join-rate", type=float, default=300.0, help="members that join per second; 300")
    parser.add_argument("--clients", type=int, default=2, help="processes that the members run in; 2")
    parser.add_argument("--watch", type=float, default=20.0, help="seconds of each look at the nodes; 20")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    if parsed.groups < parsed.clients:
        parser.error(f"--groups {parsed.groups}: each of {parsed.clients} clients needs one")
    console = result_console()
    wait_s = 60 + 4 * parsed.groups * parsed.members / parsed.join_rate
    try:
        with LocalCluster(nodes=NODES) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, parsed.partitions, NODES)])
            tasks = _tasks(cluster.bootstrap_servers, parsed)
            figures = Heartbeats(cluster, admin, tasks, parsed.watch, wait_s, console.print).measure()
    except (ClusterError, HeartbeatsError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(figures)
    load = f"load average before {figures.load_average:.1f}"
    title = f"{parsed.groups} groups x {parsed.members} members, three nodes; {load}"
    show(console, title, lines)
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "consumer-heartbeats", *arguments])
        write_json(parsed.json, {"command": command, **dataclasses.asdict(figures)}, lines)
    return 0


def _tasks(bootstrap: str, given: argparse.Namespace) -> list[Clients]:
    """Spreads groups evenly over the client processes."""
    bounds = [given.groups * number // given.clients for number in range(given.clients + 1)]
    return [
        Clients(
            bootstrap,
            TOPIC,
            given.partitions,
            first,
            end - first,
            given.members,
            given.session_ms,
            given.join_rate / given.clients,
        )
        for first, end in pairwise(bounds)
    ]
