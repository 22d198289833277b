"""``python -m bench rebalance``: how long partitions are not read when a member joins, leaves, or is killed.

Three real nodes; members are processes of their own; the writer is a thread of this process and sends one small record
to each partition every few milliseconds, so that gaps are seen to the millisecond. A member that joins has started and
connected before. What does not move is compared with as long a time right before, when nothing changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.delivery_gaps import Effect, deliveries_of, effect_of
from bench.options import add_json
from bench.printing import result_console
from bench.target_table import FigureLine, show, write_json
from quorumlog.chaos.processes.member_log import Event
from quorumlog.chaos.processes.member_plan import MemberPlan
from quorumlog.chaos.processes.member_processes import MemberProcess, MemberProcesses
from quorumlog.chaos.processes.nemesis import ChaosError, wait_until
from quorumlog.chaos.processes.once_writers import VALUE
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.errors import QuorumlogError

NODES = 3
MEMBERS = 3
TOPIC = "steady"
GROUP = "rebalanced"
WAIT_S = 60.0
#: What coordinators ask for, or a third of the session if that is shorter.
HEARTBEAT_MS = 3_000
KINDS = ("join", "leave", "crash")


class _ScheduledWriter(threading.Thread):
    """Sends one record to each partition, on a schedule."""

    def __init__(self, bootstrap_servers: str, partitions: int, interval_s: float) -> None:
        super().__init__(name="writer", daemon=True)
        self.failed: list[QuorumlogError] = []
        self._bootstrap_servers = bootstrap_servers
        self._partitions = partitions
        self._interval_s = interval_s
        self._over = threading.Event()

    def run(self) -> None:
        """Runs until it receives the signal to stop."""
        try:
            with Producer(bootstrap_servers=self._bootstrap_servers, linger_ms=0) as producer:
                number, due = 0, time.monotonic()
                while not self._over.wait(max(0.0, due - time.monotonic())):
                    for partition in range(self._partitions):
                        producer.send(TOPIC, VALUE.pack(number, 0, partition), partition=partition)
                    number += 1
                    due += self._interval_s
        except QuorumlogError as error:
            self.failed.append(error)

    def stop(self) -> None:
        """Ends it."""
        self._over.set()
        self.join()


class Rebalances:
    """Changes one group's members, over and over.

    Arguments:
        quiet_s: how long everything is left alone before a change, and is looked at after a join or leave.
        say: takes a line about progress.
    """

    def __init__(self, members: MemberProcesses, plan: MemberPlan, quiet_s: float, say: Callable[[str], None]) -> None:
        self._members = members
        self._plan = plan
        self._quiet_s = quiet_s
        self._say = say
        self._running: list[MemberProcess] = []
        self.moments: list[tuple[str, int, int, int]] = []

    def measure(self, repetitions: int, kinds: Sequence[str] = KINDS) -> dict[str, Effect]:
        """Joins, leaves and crashes in turn, or some of them; what each kind did."""
        changes = {"join": self._join, "leave": self._leave, "crash": self._crash}
        for _ in range(MEMBERS):
            self._start(waits=False)
        self._await_owners()
        for number in range(repetitions):
            for kind in kinds:
                self._say(f"{kind}, {number + 1} of {repetitions}")
                changes[kind](kind)
        deliveries = deliveries_of((one.name, one.events) for one in self._members.all)
        effects = {kind: Effect() for kind in kinds}
        for kind, before_ns, began_ns, ended_ns in self.moments:
            effects[kind].add(effect_of(deliveries, before_ns, began_ns, ended_ns))
        return effects

    def _join(self, kind: str) -> None:
        joining = self._start(waits=True)
        wait_until(lambda: joining.has_started, WAIT_S, "a member has started")
        self._change(kind, lambda: self._members.let_join(joining), self._quiet_s)

    def _leave(self, kind: str) -> None:
        leaving = self._running.pop(0)
        self._change(kind, lambda: self._members.ask_to_leave(leaving), self._quiet_s)
        self._members.await_left(leaving)

    def _crash(self, kind: str) -> None:
        """The others share what the killed one had; then a new one joins, unmeasured."""
        victim = self._running.pop(0)
        silence_s = (self._plan.session_timeout_ms + 2 * self._plan.heartbeat_interval_ms) / 1_000
        self._change(kind, lambda: self._members.kill(victim), silence_s + self._quiet_s)
        self._start(waits=False)
        self._await_owners()

    def _change(self, kind: str, change: Callable[[], None], after_s: float) -> None:
        before_ns = time.monotonic_ns()
        time.sleep(after_s)
        began_ns = time.monotonic_ns()
        change()
        time.sleep(after_s)
        self._await_owners()
        self.moments.append((kind, before_ns, began_ns, time.monotonic_ns()))

    def _start(self, *, waits: bool) -> MemberProcess:
        name = f"member-{len(self._members.all) + 1}"
        plan = dataclasses.replace(self._plan, log=str(self._members.path(name)), awaits_signal=waits)
        self._running.append(self._members.start(plan))
        return self._running[-1]

    def _await_owners(self) -> None:
        """Every member has partitions, and is given records of them."""

        def settled() -> bool:
            self._members.require_alive()
            return all(_works(member) for member in self._running)

        wait_until(settled, WAIT_S, "every member works on some partition")


def _works(member: MemberProcess) -> bool:
    last = next((one for one in reversed(member.events) if one.event is not Event.COMMITTED), None)
    return last is not None and last.event in (Event.WORKED, Event.COMMITTING)


def lines_of(effects: dict[str, Effect], session_ms: int, heartbeat_ms: int) -> list[FigureLine]:
    """The table's lines."""
    lines = []
    for kind, effect in effects.items():
        if effect.unmoved:
            lines.append(FigureLine(f"{kind}: longest gap of what does not move", _spread(effect.unmoved)))
            lines.append(FigureLine("the same partitions, as long, without a change", _spread(effect.undisturbed)))
        if effect.moved:
            most = 2 * heartbeat_ms + (session_ms if kind == "crash" else 0)
            worst = max(effect.moved)
            intervals = f"{(worst - (session_ms if kind == 'crash' else 0)) / heartbeat_ms:.2f} heartbeats"
            beyond = " beyond the session" if kind == "crash" else ""
            figure = f"{_spread(effect.moved)} = {intervals}{beyond}"
            lines.append(FigureLine(f"{kind}: stop of what moves", figure, worst, most))
    return lines


def _spread(gaps_ms: list[float]) -> str:
    return f"median {statistics.median(gaps_ms):.0f} ms, most {max(gaps_ms):.0f} ms ({len(gaps_ms)})"


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench rebalance", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="of each of join, leave and crash; 3")
    parser.add_argument("--only", choices=KINDS, help="measure one kind of change alone")
    parser.add_argument("--partitions", type=int, default=8, help="of the topic; 8")
    parser.add_argument("--interval-ms", type=float, default=20, help="between two records of a partition; 20")
    parser.add_argument("--session-ms", type=int, default=9_000, help="session timeout of the members; 9000")
    parser.add_argument("--quiet", type=float, default=8.0, help="seconds before each change and after it; 8")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    heartbeat_ms = min(HEARTBEAT_MS, parsed.session_ms // 3)
    console = result_console()
    load = os.getloadavg()[0]
    try:
        with (
            LocalCluster(nodes=NODES) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
            tempfile.TemporaryDirectory() as directory,
            MemberProcesses(Path(directory)) as members,
        ):
            admin.create_topics([NewTopic(TOPIC, parsed.partitions, NODES)])
            plan = MemberPlan(
                clients={"bootstrap_servers": cluster.bootstrap_servers},
                group=GROUP,
                log="",
                topic=TOPIC,
                session_timeout_ms=parsed.session_ms,
                heartbeat_interval_ms=heartbeat_ms,
                commit_every=20,
                asynchronous=True,
            )
            writer = _ScheduledWriter(cluster.bootstrap_servers, parsed.partitions, parsed.interval_ms / 1_000)
            writer.start()
            try:
                effects = Rebalances(members, plan, parsed.quiet, console.print).measure(
                    parsed.repetitions, [parsed.only] if parsed.only else KINDS
                )
            finally:
                writer.stop()
            if writer.failed:
                raise writer.failed[0]
    except (ChaosError, ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(effects, parsed.session_ms, heartbeat_ms)
    title = (
        f"{parsed.partitions} partitions, {MEMBERS} to {MEMBERS + 1} members, a record every {parsed.interval_ms:g} ms;"
        f" heartbeats {heartbeat_ms} ms, session {parsed.session_ms} ms; load average before {load:.1f}"
    )
    show(console, title, lines)
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "rebalance", *arguments])
        figures = {kind: dataclasses.asdict(effect) for kind, effect in effects.items()}
        write_json(parsed.json, {"command": command, "effects": figures}, lines)
    return 0
