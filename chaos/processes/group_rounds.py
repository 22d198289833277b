"""Consumer groups through faults: members join, leave, crash and stall, and nodes, including coordinators, are killed,
stopped and paused; then every record has been processed by every group, and repetitions are accounted for.

Members are processes that commit after processing (``group_member.py``) and log their actions. Writers send numbered
records with keys all the time. Each round injects a fault into the members of a group, every other one into a node too,
and waits until every group has processed all records written by the end of the fault.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.checkers.group_checkers import check_groups
from quorumlog.chaos.checkers.group_history import Act, GroupHistory, Part
from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.chaos.processes.group_figures import ConsumerGroupFigures, GroupRound, GroupTotals
from quorumlog.chaos.processes.member_history import MemberHistory, keys_in_order
from quorumlog.chaos.processes.member_log import Event
from quorumlog.chaos.processes.member_plan import MemberPlan
from quorumlog.chaos.processes.member_processes import MemberProcess, MemberProcesses
from quorumlog.chaos.processes.nemesis import ChaosError, Nemesis, wait_until
from quorumlog.chaos.processes.once_checker import ONCE_EACH, OnceChecker, read_back
from quorumlog.chaos.processes.once_writers import (
    DELIVERY_TIMEOUT_MS,
    Fate,
    Gate,
    OnceWriter,
    SdkOnceWriter,
    WriterKind,
    await_ended,
)
from quorumlog.chaos.processes.replica_logs import replicas_agree
from quorumlog.chaos.processes.report import Report
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
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition

NAME = "groups"
SUMMARY = "members of three groups killed, stopped, joining and leaving, while nodes are killed, stopped and paused"
ROUNDS = 24
NODES = 3
TOPIC = "work"
PARTITIONS = 6
WRITERS = 2
#: Records per second, of all writers together.
RATE = 240
SESSION_MS = 4_000
#: This is also the time that a member has to revoke partitions.
MAX_POLL_INTERVAL_MS = 8_000
#: The writers stop after this time in any case (s).
LONGEST_S = 7_200
#: Minimum time after the end of its session after which a stopped member continues (s).
BEYOND_SESSION_S = 1.5
MEMBERS = (2, 4)
#: Records written within this time after a fault (s) must be processed too: a killed member's partitions must have a
#: new owner.
AFTER_BLOW_S = 0.5
#: Share of the rounds in which a node's fault ends only when all groups have recovered without it.
AWAY_UNTIL_CAUGHT_UP = 0.4
START_TIMEOUT_S = 60.0
CATCH_UP_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 120.0
_PACE_S = 0.05


@dataclass(slots=True, frozen=True)
class GroupStyle:
    """Configuration of the members of a group.

    Arguments:
        kafka_assignor, kafka_protocol: for members with Kafka's client.
        is_shared: every other member uses our own client then.
    """

    group: str
    by_pattern: bool = False
    is_static: bool = False
    assignor: Literal["uniform", "range"] = "uniform"
    commit_every: int = 1
    asynchronous: bool = False
    kafka_assignor: str = "range"
    kafka_protocol: Literal["classic", "consumer"] = "classic"
    is_shared: bool = False


STYLES = (
    GroupStyle("plain"),
    GroupStyle(
        "lazy",
        by_pattern=True,
        assignor="range",
        commit_every=4,
        asynchronous=True,
        kafka_assignor="cooperative-sticky",
    ),
    GroupStyle("static", is_static=True, commit_every=2, kafka_assignor="roundrobin"),
)
#: Additional groups if members use Kafka's client: the coordinator assigns, and the group has both kinds of members.
KAFKA_STYLES = (
    *STYLES,
    GroupStyle("assigned", by_pattern=True, commit_every=2, asynchronous=True, kafka_protocol="consumer"),
    GroupStyle("shared", kafka_protocol="consumer", is_shared=True),
)


class _Pacer(threading.Thread):
    """Lets the writers continue at an even rate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(name="pacer", daemon=True)
        self._gate = gate
        self._over = threading.Event()

    def run(self) -> None:
        """Runs until it is stopped."""
        began = time.monotonic()
        while not self._over.wait(_PACE_S):
            self._gate.open_to(int((time.monotonic() - began) * RATE / WRITERS))

    def stop(self) -> None:
        """Stops the pacer, and closes the gate."""
        self._over.set()
        self.join()
        self._gate.close()


class GroupRun:
    """One run against a cluster of its own."""

    def __init__(self, cluster: ScenarioCluster, admin: Admin, members: MemberProcesses, seed: int, say: Say) -> None:
        self.figures = ConsumerGroupFigures()
        self.history = GroupHistory()
        self._cluster = cluster
        self._admin = admin
        self._members = members
        self._say = say
        self._rng = random.Random(seed)
        self._gate = Gate()
        self._pacer = _Pacer(self._gate)
        count = LONGEST_S * RATE // WRITERS
        self.writers: list[OnceWriter] = [
            SdkOnceWriter(n, WriterKind.UNNAMED, count, cluster.client_options, TOPIC, self._gate, seed + n)
            for n in range(WRITERS)
        ]
        self._partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._nemesis = Nemesis(cluster, admin, self._partitions[0], self._rng)
        self._styles = {style.group: style for style in (KAFKA_STYLES if cluster.kafka else STYLES)}
        self._numbers = itertools.count(1)
        self._running: dict[str, list[MemberProcess]] = {group: [] for group in self._styles}
        self._done: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._seen: dict[str, int] = defaultdict(int)

    def go(self, rounds: int, duration_s: float | None) -> None:
        """Injects faults until the end; then all members finish and leave."""
        began = time.monotonic()
        with Consumer(**self._cluster.client_options) as reader:
            for group in self._styles:
                for _ in range(MEMBERS[0]):
                    self._start(group)
            self._await_started()
            for writer in self.writers:
                writer.start()
            self._pacer.start()
            try:
                for number, (member_blow, node_blow) in zip(range(rounds), self._blows(), strict=False):
                    if duration_s is not None and number and time.monotonic() - began > duration_s:
                        break
                    with in_round(number + 1):
                        self.figures.rounds.append(self._round(number + 1, member_blow, node_blow, reader))
                    self._say(self.figures.rounds[-1].line())
            finally:
                self._pacer.stop()
            await_ended(self.writers, CATCH_UP_TIMEOUT_S)
            self._raise_failures()
            self._await_caught_up(reader)
        self._all_leave()

    def _blows(self) -> Iterator[tuple[MemberBlow, NodeBlow | None]]:
        """Yields all faults in turn, in another order each time; a node is a victim in every other round."""
        nodes = _in_turn(NODE_BLOWS, self._rng)
        for number, blow in enumerate(_in_turn(MEMBER_BLOWS, self._rng)):
            yield blow, next(nodes) if number % 2 == 0 else None

    def _round(self, number: int, member_blow: MemberBlow, node_blow: NodeBlow | None, reader: Consumer) -> GroupRound:
        self._raise_failures()
        began = time.monotonic()
        what = []
        with ExitStack() as mending:
            if node_blow is not None:
                group = self._rng.choice(list(self._styles))
                victim = self._victim(group, node_blow)
                mending.enter_context(node_blow.strike(self, victim))
                what.append(
                    f"node {victim}{f', coordinator of {group},' if node_blow.at_coordinator else ''} {node_blow.name}"
                )
            what.append(member_blow(self, self._rng.choice(list(self._styles))))
        self._await_started()
        took_s = time.monotonic() - began
        time.sleep(AFTER_BLOW_S)
        caught_up_s = self._await_caught_up(reader)
        return GroupRound(number, "; ".join(what), took_s, caught_up_s)

    def _victim(self, group: str, blow: NodeBlow) -> int:
        if not blow.at_coordinator:
            return self._rng.choice(self._cluster.node_ids)
        found: list[int] = []

        def there() -> bool:
            (description,) = self._admin.describe_groups([group])
            found.append(description.coordinator)
            return self._cluster.is_running(description.coordinator)

        wait_until(there, CATCH_UP_TIMEOUT_S, f"group {group} has a coordinator")
        return found[-1]

    # -- faults of nodes ------------------------------------------------------------------------------------------

    @contextmanager
    def node_killed(self, victim: int) -> Iterator[None]:
        """Sends SIGKILL; the node is restarted with its data."""
        self._cluster.kill(victim)
        yield
        self._cluster.start(victim)

    @contextmanager
    def node_stopped(self, victim: int) -> Iterator[None]:
        """Sends SIGTERM; the node is restarted with its data."""
        self._cluster.stop(victim)
        yield
        self._cluster.start(victim)

    @contextmanager
    def node_paused(self, victim: int) -> Iterator[None]:
        """Sends SIGSTOP, and later SIGCONT."""
        self._cluster.pause(victim)
        time.sleep(self._rng.uniform(1.0, 3.0))
        yield
        self._cluster.resume(victim)

    # -- faults of members ----------------------------------------------------------------------------------------

    def member_killed(self, group: str) -> str:
        """Sends SIGKILL. A static member is restarted immediately under its name; others are replaced after their
        session.
        """
        victim = self._pick(group)
        self._running[group].remove(victim)
        self._members.kill(victim)
        if self._styles[group].is_static:
            self._start(group, victim.plan.instance)
            return f"{victim.name} killed, and restarted under its name"
        self._start(group)
        return f"{victim.name} killed, another one joins"

    def member_gone(self, group: str) -> str:
        """Sends SIGKILL, without a replacement."""
        if len(self._running[group]) <= MEMBERS[0]:
            self._start(group)
            self._await_started()
        victim = self._pick(group)
        self._running[group].remove(victim)
        self._members.kill(victim)
        return f"{victim.name} killed"

    def member_stopped(self, group: str) -> str:
        """Sends SIGSTOP until others have its partitions, then SIGCONT."""
        victim = self._pick(group)
        self._members.stop(victim)
        time.sleep(SESSION_MS / 1_000 + self._rng.uniform(BEYOND_SESSION_S, 2 * BEYOND_SESSION_S))
        self._members.go_on(victim)
        return f"{victim.name} stopped beyond its session"

    def member_hesitates(self, group: str) -> str:
        """Sends SIGSTOP for a part of the session, then SIGCONT."""
        victim = self._pick(group)
        self._members.stop(victim)
        time.sleep(self._rng.uniform(0.2, 0.6) * SESSION_MS / 1_000)
        self._members.go_on(victim)
        return f"{victim.name} stopped for a moment"

    def member_leaves(self, group: str) -> str:
        """Sends SIGTERM; another member is started if there are few."""
        victim = self._pick(group)
        self._running[group].remove(victim)
        self._members.ask_to_leave(victim)
        if len(self._running[group]) < MEMBERS[0]:
            self._start(group, victim.plan.instance)
        self._members.await_left(victim)
        return f"{victim.name} leaves"

    def member_joins(self, group: str) -> str:
        """Starts a member; another one leaves if there are many."""
        joined = self._start(group)
        if len(self._running[group]) <= MEMBERS[1]:
            return f"{joined.name} joins"
        return f"{joined.name} joins, {self.member_leaves(group)}"

    def _start(self, group: str, instance: str = "") -> MemberProcess:
        style = self._styles[group]
        number = next(self._numbers)
        name = f"{group}-{number}"
        is_by_kafka = self._cluster.kafka and not (style.is_shared and number % 2)
        plan = MemberPlan(
            clients=self._cluster.client_options,
            group=group,
            log=str(self._members.path(name)),
            topic=TOPIC,
            by_pattern=style.by_pattern,
            instance=instance or (name if style.is_static else ""),
            assignor=style.assignor,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 10,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            commit_every=style.commit_every,
            asynchronous=style.asynchronous,
            kafka_options=self._cluster.kafka_options if is_by_kafka else {},
            kafka_assignor=style.kafka_assignor,
            kafka_protocol=style.kafka_protocol,
        )
        started = self._members.start(plan)
        self._running[group].append(started)
        return started

    def _pick(self, group: str) -> MemberProcess:
        return self._rng.choice([one for one in self._running[group] if one.has_started])

    # -- progress -------------------------------------------------------------------------------------------------

    def _await_started(self) -> None:
        def started() -> bool:
            self._raise_failures()
            return all(one.has_started for group in self._running.values() for one in group)

        wait_until(started, START_TIMEOUT_S, "every member process has started")

    def _await_caught_up(self, reader: Consumer) -> float:
        """Waits until every group has processed the current records; returns the seconds."""
        ends: dict[TopicPartition, int] = {}

        def caught_up() -> bool:
            self._raise_failures()
            if not ends:
                ends.update(reader.end_offsets(self._partitions))
            self._follow()
            return not self._behind(ends)

        try:
            return wait_until(caught_up, CATCH_UP_TIMEOUT_S, "every group catches up")
        except ChaosError as error:
            raise ChaosError(f"{error}; {'; '.join(self._behind(ends))}") from None

    def _behind(self, ends: dict[TopicPartition, int]) -> list[str]:
        return [
            f"group {group} has processed {self._done[group][tp.partition]} of {end} records in partition"
            f" {tp.partition}"
            for group in self._styles
            for tp, end in ends.items()
            if self._done[group][tp.partition] < end
        ]

    def _follow(self) -> None:
        for member in self._members.all:
            events = member.events
            done = self._done[member.plan.group]
            for event in events[self._seen[member.name] :]:
                if event.event is Event.WORKED:
                    done[event.partition] = max(done[event.partition], event.records[-1].offset + 1)
            self._seen[member.name] = len(events)

    def _all_leave(self) -> None:
        leaving = [member for group in self._running.values() for member in group]
        for member in leaving:
            self._members.ask_to_leave(member)
        for member in leaving:
            self._members.await_left(member)

    def _raise_failures(self) -> None:
        self._members.require_alive()
        for writer in self.writers:
            if writer.failure is not None:
                raise ChaosError(writer.failure)

    # -- the verdict ----------------------------------------------------------------------------------------------

    def judge(self, report: Report) -> None:
        """Reads everything back, checks the members' actions, then compares the nodes' disks."""
        finished = not report.failures
        together = attempted(report, lambda: self._nemesis.wait_isr_full(CATCH_UP_TIMEOUT_S), REPLICAS_AGREE)
        checker = OnceChecker(self.writers, PARTITIONS)
        read = attempted(report, lambda: self._read_back(checker), ONCE_EACH)
        if read:
            checker.finish()
        report.read = checker.read
        report.anomalies.extend(checker.anomalies)
        self._members.kill_all()
        if not finished:
            report.not_checked.append("I13 to the ends of the logs: the groups did not have enough time")
        self._judge_groups(report, checker.ends if finished and read else None)
        if finished and read:
            attempted(report, lambda: self._judge_commits(report, checker.ends), "the committed offsets of each group")
        if together:
            report.anomalies.extend(replicas_agree(disks_of(self._cluster)))
        report.groups, report.group_history = self.figures, self.history
        report.acknowledged = sum(writer.told(Fate.ACKNOWLEDGED) for writer in self.writers)
        report.unknown = sum(writer.told(Fate.UNKNOWN) for writer in self.writers)
        report.failed = sum(writer.told(Fate.FAILED) for writer in self.writers)

    def _read_back(self, checker: OnceChecker) -> None:
        await_ended(self.writers, DELIVERY_TIMEOUT_MS / 1_000)
        read_back(self._cluster.client_options, TOPIC, PARTITIONS, checker, READ_TIMEOUT_S)

    def _judge_commits(self, report: Report, ends: list[int]) -> None:
        for group in self._styles:
            committed = {tp.partition: one.offset for tp, one in self._admin.list_group_offsets(group).items()}
            if committed != {number: end for number, end in enumerate(ends) if end}:
                report.failures.append(f"group {group} has left having committed {committed} of {ends}")

    def _judge_groups(self, report: Report, ends: list[int] | None) -> None:
        """Checks the members' actions.

        Arguments:
            ends: ends of the partitions, if every group has processed all records.
        """
        now_ns = time.monotonic_ns()
        for group in self._styles:
            histories = [
                MemberHistory(member.life(), TOPIC, now_ns)
                for member in self._members.all
                if member.plan.group == group
            ]
            history = GroupHistory(operation for one in histories for operation in one.operations)
            self.history.operations.extend(history.operations)
            done_by = None if ends is None else {Part(group, f"{TOPIC}-{n}"): end for n, end in enumerate(ends)}
            verdict = check_groups(history, done_by)
            report.anomalies.extend(anomaly for one in histories for anomaly in one.anomalies)
            report.anomalies.extend(Anomaly(one.invariant, one.message) for one in verdict.anomalies)
            report.anomalies.extend(keys_in_order(group, (work for one in histories for work in one.work)))
            commits = [one for one in history if one.act is Act.COMMIT]
            taken = sum(one.outcome is OperationOutcome.OK for one in commits)
            self.figures.groups.append(
                GroupTotals(
                    group,
                    len(histories),
                    sum(one.act is Act.OWN for one in history),
                    verdict.processed,
                    taken,
                    len(commits) - taken,
                    dict(verdict.duplicates),
                )
            )


#: A fault of the members of some group; returns its description.
MemberBlow = Callable[[GroupRun, str], str]


@dataclass(slots=True, frozen=True)
class NodeBlow:
    """A fault of a node, while members have faults too.

    Arguments:
        at_coordinator: True if the victim coordinates some group.
    """

    name: str
    strike: Callable[[GroupRun, int], AbstractContextManager[None]]
    at_coordinator: bool


MEMBER_BLOWS: tuple[MemberBlow, ...] = (
    GroupRun.member_killed,
    GroupRun.member_joins,
    GroupRun.member_stopped,
    GroupRun.member_leaves,
    GroupRun.member_gone,
    GroupRun.member_hesitates,
)
NODE_BLOWS = (
    NodeBlow("killed", GroupRun.node_killed, at_coordinator=True),
    NodeBlow("paused", GroupRun.node_paused, at_coordinator=True),
    NodeBlow("stopped", GroupRun.node_stopped, at_coordinator=True),
    NodeBlow("killed", GroupRun.node_killed, at_coordinator=False),
)


Blow = TypeVar("Blow")


def _in_turn(blows: Sequence[Blow], rng: random.Random) -> Iterator[Blow]:
    """Yields all faults repeatedly, each time but the first in another order."""
    yield from blows
    while True:
        yield from rng.sample(blows, len(blows))


def run_groups(
    seed: int | None,
    rounds: int | None,
    duration_s: float | None,
    report_dir: str | Path | None,
    say: Say,
    secure: bool = False,
    kafka: bool = False,
) -> Report:
    """Runs the scenario on a fresh cluster, and judges it; see `scenarios.run_scenario`."""
    rounds = ROUNDS if rounds is None and duration_s is None else rounds
    size = f"{duration_s:g} s" if rounds is None else f"{rounds} rounds"
    report = announced(NAME, SUMMARY, seed, size, say)
    topic = NewTopic(TOPIC, PARTITIONS, NODES, {"min.insync.replicas": 2})
    with (
        judged(report, report_dir, say),
        tempfile.TemporaryDirectory(prefix="quorumlog-members-") as directory,
        # Members with Kafka's client do not choose their session timeout if the coordinator assigns.
        fresh_cluster(NODES, topic, {"group_session_timeout_ms": SESSION_MS}, secure=secure, kafka=kafka) as (
            cluster,
            admin,
        ),
        MemberProcesses(Path(directory)) as members,
    ):
        run = GroupRun(cluster, admin, members, report.seed, say)
        if not attempted(report, lambda: run.go(1 << 30 if rounds is None else rounds, duration_s)):
            heal(report, cluster)
        run.judge(report)
    return report
