"""A whole run: three nodes, processes full of hostile clients, and the findings.

The seed determines what every client does and in which order. Answers of the cluster (ids of topics, epochs) become
part of the requests, so that a seed reproduces the kinds of requests and not their bytes; the record does that.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.chaos.hostile.fixture import NODES, staged_cluster
from quorumlog.chaos.hostile.record import read_record, write_record
from quorumlog.chaos.hostile.verdict import Watch, complaints, works
from quorumlog.chaos.hostile.worker import WorkerNews, WorkerOrder
from quorumlog.local import LocalCluster

Say = Callable[[str], None]
DEFAULT_REQUESTS = 20_000
#: Number of client processes that keep two cores busy together with the nodes.
WORKERS = 2
#: Interval at which the nodes are checked (s), and that of progress lines.
_LOOK_S, _TELL_S = 0.25, 15.0
#: Time limits for all clients to start sending, and to exit when requested (s).
_START_S, _STOP_S = 60.0, 60.0
RECORD_NAME = "hostile-requests.jsonl"


@dataclass(slots=True)
class FuzzReport:
    """Result of a run.

    Arguments:
        findings: one line for each failure; empty in a successful run.
        outcomes: counts of how calls and streams ended.
        answers: counts of partial results, by method and error code.
        memory_mib: node id -> memory at the start, at the end, and the maximum.
        record: the file with the last requests, if there are findings.
    """

    seed: int
    caller: HostileCaller = HostileCaller.ANYBODY
    requests: int = 0
    duration_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    by_method: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    memory_mib: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    record: str = ""

    @property
    def passed(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    def to_json(self) -> str:
        """Returns the report as JSON."""
        return json.dumps({**asdict(self), "passed": self.passed})

    def summary(self) -> list[str]:
        """Returns the report as lines."""
        rate = self.requests / self.duration_s if self.duration_s else 0.0
        lines = [
            f"{self.requests} requests in {self.duration_s:.0f} s ({rate:.0f}/s), seed {self.seed}, as {self.caller}"
        ]
        lines.append("calls and streams ended: " + _counts(self.outcomes))
        lines.append("requests: " + _counts(self.by_method))
        for node, (first, last, most) in sorted(self.memory_mib.items()):
            lines.append(f"node {node}: {first} MiB at the start, {last} at the end, {most} at most")
        lines += [f"FOUND: {finding}" for finding in self.findings]
        if self.record:
            lines.append(f"the last requests: {self.record}; again: quorumlog chaos fuzz --replay {self.record}")
        lines.append("passed: all nodes survived" if self.passed else "failed")
        return lines


def fuzz(
    *,
    requests: int = DEFAULT_REQUESTS,
    seed: int | None = None,
    caller: HostileCaller = HostileCaller.ANYBODY,
    duration_s: float | None = None,
    workers: int = WORKERS,
    report_dir: Path | None = None,
    kafka: bool = False,
    say: Say = print,
) -> FuzzReport:
    """Sends requests to a cluster of its own until the number or the time is reached, or there is a finding.

    Arguments:
        seed: random if None.
        caller: identity of the clients.
        duration_s: time limit from when all clients send.
        kafka: use Kafka's protocol. These requests are not recorded.
        report_dir: directory of the record if there are findings; a temporary directory if None.
    """
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    whose = "" if caller is HostileCaller.ANYBODY else f" as {caller}"
    say(f"hostile clients: {requests} requests{whose} to {NODES} nodes; seed {seed}")
    report = FuzzReport(seed, caller)
    with (
        tempfile.TemporaryDirectory(prefix="quorumlog-fuzz-") as scratch,
        staged_cluster(caller, kafka=kafka) as staged,
    ):
        cluster = staged.cluster
        watch = Watch.of(cluster)
        began = time.monotonic()
        orders = [
            WorkerOrder(
                number, seed, -(-requests // workers), str(Path(scratch) / f"{number}.jsonl"), caller, staged.entrance
            )
            for number in range(workers)
        ]
        crew = [_Crewman(order) for order in orders]
        try:
            report.findings += _watch(cluster, watch, crew, began, duration_s, say)
        finally:
            for one in crew:
                one.stop()
        report.duration_s = time.monotonic() - began
        _gather(report, crew)
        report.findings += [line for line in watch.look(cluster) if line not in report.findings]
        report.findings += complaints(cluster)
        report.findings += staged.leaks(token for one in crew for token in one.news.tokens)
        if not any("ended" in finding for finding in report.findings):
            report.findings += works(cluster)
            report.findings += [line for line in watch.look(cluster) if line not in report.findings]
        report.memory_mib = {
            node: (first >> 20, last >> 20, most >> 20) for node, (first, last, most) in watch.rss.items()
        }
        if report.findings:
            report.record = str(_keep_record(orders, report_dir, caller))
    if report_dir is not None:
        report_dir.mkdir(parents=True, exist_ok=True)
        (report_dir / "hostile.json").write_text(report.to_json())
    for line in report.summary():
        say(line)
    return report


class _Crewman:
    """One process of clients, and its last report."""

    def __init__(self, order: WorkerOrder) -> None:
        self.news = WorkerNews()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "quorumlog.chaos.hostile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._overhear, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        assert self._process.stdin is not None
        self._process.stdin.write(order.to_line())
        self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            self.news = WorkerNews(**json.loads(line))

    def _overhear(self) -> None:
        for line in self._process.stderr or ():
            self._errors = [*self._errors[-20:], line.strip()]

    @property
    def over(self) -> bool:
        """True if it is done, or has exited."""
        return self.news.done or self._process.poll() is not None

    def problem(self) -> str | None:
        """Returns how the clients themselves failed; None if they did not."""
        if self._process.returncode:
            return f"the clients failed (status {self._process.returncode}): {' | '.join(self._errors)[-1500:]}"
        return None

    def stop(self) -> None:
        """Stops the process, and waits until it has exited."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(_STOP_S)


def _watch(
    cluster: LocalCluster, watch: Watch, crew: list[_Crewman], began: float, duration_s: float | None, say: Say
) -> list[str]:
    """Watches until the clients are done, or there are findings, and returns these."""
    reported = began
    sending: float | None = None
    while not all(one.over for one in crew):
        time.sleep(_LOOK_S)
        now = time.monotonic()
        found = watch.look(cluster) + [line for one in crew for line in one.news.findings]
        if found:
            return list(dict.fromkeys(found))
        # On a busy machine the clients' processes may take longer to start than a short run lasts.
        if sending is None and (now - began > _START_S or all(one.news.sent or one.over for one in crew)):
            sending = now
        if duration_s is not None and sending is not None and now - sending > duration_s:
            break
        if now - reported > _TELL_S:
            reported = now
            sent = sum(one.news.sent for one in crew)
            most = max(last for _, last, _ in watch.rss.values()) >> 20
            say(f"{sent} requests, {sent / (now - began):.0f}/s, the largest node has {most} MiB")
    return []


def _gather(report: FuzzReport, crew: list[_Crewman]) -> None:
    outcomes: Counter[str] = Counter()
    by_method: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for one in crew:
        report.requests += one.news.sent
        outcomes.update(one.news.outcomes)
        by_method.update(one.news.by_method)
        answers.update(one.news.answers)
        report.findings += [line for line in one.news.findings if line not in report.findings]
        if (problem := one.problem()) is not None:
            report.findings.append(problem)
    report.outcomes, report.by_method = dict(outcomes.most_common()), dict(by_method.most_common())
    report.answers = dict(answers.most_common())


def _keep_record(orders: list[WorkerOrder], report_dir: Path | None, caller: HostileCaller) -> Path:
    """Merges the records of all processes, in time order."""
    directory = Path(tempfile.mkdtemp(prefix="quorumlog-found-")) if report_dir is None else report_dir
    directory.mkdir(parents=True, exist_ok=True)
    topics: dict[str, str] = {}
    sent = []
    for order in orders:
        if Path(order.record).exists():
            known, some = read_record(Path(order.record))
            topics |= known
            sent += some
    write_record(directory / RECORD_NAME, topics, sorted(sent, key=lambda one: one.at_us), caller)
    return directory / RECORD_NAME


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items()) or "none"
