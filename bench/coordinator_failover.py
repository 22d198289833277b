"""``python -m bench coordinator-failover``: the time until all members are served after their coordinator is killed.

Three real nodes, one group of many consumers (the SDK's, in a few processes), each with a partition of its own and
nothing to read. The node that coordinates the group is killed; a member is back when a heartbeat that it sent after the
kill has been answered, which only the new coordinator can have done. Nothing may be reassigned.
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
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from bench.consumers import Answered, Consumers
from bench.options import add_json
from bench.printing import result_console
from bench.target_table import FigureLine, show, write_json
from quorumlog.chaos.processes.nemesis import ChaosError, wait_until
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, GroupState, NewTopic
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import GroupDescription

NODES = 3
GROUP = "large"
TOPIC = "wide"
TARGET_S = 3.0
ANSWER_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0


@dataclass(slots=True)
class CoordinatorFailover:
    """One kill of the coordinator.

    Arguments:
        coordinator, successor: the node before and after.
        back_s: per member, from the kill to the first heartbeat answered by the successor.
        changed: differences of the group afterwards.
        lost: number of times that a member lost its partitions.
    """

    coordinator: int
    successor: int
    back_s: list[float]
    changed: list[str] = field(default_factory=list)
    lost: int = 0


class FailoverError(Exception):
    """Raised if the group does not reach a measurable state. The message says what did not happen."""


class ConsumerProcess:
    """A process full of consumers; stopped at the end of the block."""

    def __init__(self, task: Consumers) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.consumers", json.dumps(dataclasses.asdict(task))],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)

    def ask(self, moment_ns: int) -> None:
        """Requests a report of when every member has been answered after a time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{moment_ns}\n")
        self._process.stdin.flush()

    def line(self, timeout_s: float) -> str:
        """Returns its next line.

        Raises:
            FailoverError: none exists in time.
        """
        try:
            said = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise FailoverError(f"consumers did not come so far within {timeout_s:g} s") from None
        if not said:
            raise FailoverError(f"a process of consumers exited with status {self._process.wait()}")
        return said

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


def _described(admin: Admin) -> GroupDescription:
    (group,) = admin.describe_groups([GROUP])
    return group


def differences(before: GroupDescription, after: GroupDescription) -> list[str]:
    """Returns the changes of a group that should not have changed."""
    found = [
        f"{name} was {getattr(before, name)}, is {getattr(after, name)}"
        for name in ("state", "group_epoch", "assignment_epoch")
        if getattr(before, name) != getattr(after, name)
    ]
    members = {one.member_id: one for one in after.members}
    for one in before.members:
        now = members.pop(one.member_id, None)
        if now is None:
            found.append(f"member {one.member_id} is gone")
        elif (now.member_epoch, now.assignment, now.target) != (one.member_epoch, one.assignment, one.target):
            found.append(f"member {one.member_id} had epoch {one.member_epoch}, {one.assignment}; now {now}")
    return found + [f"member {member_id} is new" for member_id in members]


def measure(
    cluster: LocalCluster, admin: Admin, clients: list[ConsumerProcess], kills: int, say: Callable[[str], None]
) -> list[CoordinatorFailover]:
    """Kills the group's coordinator several times."""
    made = []
    lost_before = 0
    for number in range(kills):
        wait_until(lambda: _described(admin).state is GroupState.STABLE, ANSWER_TIMEOUT_S, "the group is stable")
        before = _described(admin)
        cluster.kill(before.coordinator)
        killed_ns = time.monotonic_ns()
        for client in clients:
            client.ask(killed_ns)
        answers = [Answered(**json.loads(client.line(ANSWER_TIMEOUT_S))) for client in clients]
        back_s = [ms / 1e3 for one in answers for ms in one.after_ms]
        after = _described(admin)
        lost = sum(one.lost for one in answers)
        made.append(
            CoordinatorFailover(
                before.coordinator, after.coordinator, back_s, differences(before, after), lost - lost_before
            )
        )
        lost_before = lost
        say(f"kill {number + 1} of {kills}: all {len(back_s)} back after {max(back_s):.2f} s")
        if number + 1 < kills:
            cluster.start(before.coordinator)
            cluster.wait_ready()
            await_in_sync(admin)
    return made


def await_in_sync(admin: Admin) -> None:
    """Waits until every replica is in sync."""

    def in_sync() -> bool:
        return all(set(p.isr) == set(p.replicas) for topic in admin.describe_topics() for p in topic.partitions)

    wait_until(in_sync, ANSWER_TIMEOUT_S, "every replica is in sync")


def lines_of(failovers: list[CoordinatorFailover]) -> list[FigureLine]:
    """Returns the lines of the table."""
    times = [back for one in failovers for back in one.back_s]
    slowest = [max(one.back_s) for one in failovers]
    changed = sum(len(one.changed) for one in failovers)
    return [
        FigureLine("back with the new coordinator, median of the members", f"{statistics.median(times):.2f} s"),
        FigureLine("first member back, of each kill", _each([min(one.back_s) for one in failovers])),
        FigureLine("all members back, of each kill", _each(slowest), max(slowest), TARGET_S),
        FigureLine("changes of epochs and assignments", str(changed), changed, 0),
        FigureLine("members that lost their partitions", str(sum(one.lost for one in failovers))),
    ]


def _each(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values) + " s"


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench coordinator-failover", description=__doc__)
    parser.add_argument(
        "--members", type=int, default=200, help="number of members of the group, each with a partition; 200"
    )
    parser.add_argument("--kills", type=int, default=5, help="number of kills of the coordinator; 5")
    parser.add_argument("--clients", type=int, default=2, help="processes that the members run in; 2")
    parser.add_argument("--session-ms", type=int, default=45_000, help="session timeout; 45000")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    if parsed.members < parsed.clients:
        parser.error(f"--members {parsed.members}: each of {parsed.clients} clients needs one")
    console = result_console()
    load = os.getloadavg()[0]
    try:
        with (
            LocalCluster(nodes=NODES) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
            ExitStack() as running,
        ):
            admin.create_topics([NewTopic(TOPIC, parsed.members, NODES)])
            share, rest = divmod(parsed.members, parsed.clients)
            clients = [
                running.enter_context(
                    ConsumerProcess(
                        Consumers(
                            cluster.bootstrap_servers,
                            GROUP,
                            TOPIC,
                            share + (number < rest),
                            parsed.session_ms,
                        )
                    )
                )
                for number in range(parsed.clients)
            ]
            for client in clients:
                client.line(ANSWER_TIMEOUT_S + parsed.members)
            failovers = measure(cluster, admin, clients, parsed.kills, console.print)
    except (ChaosError, ClusterError, FailoverError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(failovers)
    show(console, f"{parsed.members} members of one group, three nodes; load average before {load:.1f}", lines)
    for one in failovers:
        for change in one.changed[:5]:
            console.print(f"changed after node {one.coordinator} was killed: {change}")
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "coordinator-failover", *arguments])
        figures = [dataclasses.asdict(one) for one in failovers]
        write_json(parsed.json, {"command": command, "failovers": figures}, lines)
    return 0
