"""What all scenarios on real processes share: a seed and an opening line, a cluster of their own, a verdict.

A round that fails ends the rounds, not the run: what it broke is healed, and whatever can still be read and compared is
judged. What cannot is not checked, which is something else than broken.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quorumlog.chaos.processes.ballast import BallastError
from quorumlog.chaos.processes.link_proxy import LinkProxies
from quorumlog.chaos.processes.nemesis import ChaosError
from quorumlog.chaos.processes.report import GapBounds, Report
from quorumlog.chaos.processes.scenario_cluster import ScenarioCluster
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError

Say = Callable[[str], None]
#: What a part of a run may end with, and the run goes on to its verdict. Anything else is a fault of the suite itself.
FAILURES = (ChaosError, BallastError, ClusterError, QuorumlogError, TimeoutError, AssertionError)
#: What takes a reader that comes to the end, and what takes replicas that have come together.
READ_TO_THE_END = "I3 and I8 up to the ends of the logs"
REPLICAS_AGREE = "I9"


def announced(
    name: str, summary: str, seed: int | None, size: str, say: Say, bounds: GapBounds | None = None
) -> Report:
    """An empty report, after a line that says what is about to run.

    Arguments:
        seed: drawn when None.
        size: how much of it runs, as that line says it; empty where there is nothing to say.
        bounds: what gaps are held against.
    """
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    say(f"{name}: {summary}; seed {seed}{', ' if size else ''}{size}")
    return Report(name, summary, seed, bounds=bounds)


@contextmanager
def fresh_cluster(
    nodes: int,
    topic: NewTopic,
    settings: Mapping[str, object] | None = None,
    *,
    secure: bool = False,
    kafka: bool = False,
) -> Iterator[tuple[ScenarioCluster, Admin]]:
    """A cluster of real processes that holds one topic; nothing of it is left behind.

    Arguments:
        secure: with TLS, sign-in by password, and rules.
        kafka: its nodes speak Kafka's protocol too.
    """
    with (
        ScenarioCluster(nodes, secure=secure, kafka=kafka, settings=settings) as cluster,
        operator_of(cluster) as admin,
    ):
        admin.create_topics([topic])
        yield cluster, admin


@contextmanager
def operator_of(cluster: ScenarioCluster) -> Iterator[Admin]:
    """Whoever may do everything there, and has let clients in."""
    with Admin(**cluster.admin_options) as admin:
        cluster.let_in(admin)
        yield admin


@contextmanager
def judged(report: Report, report_dir: str | Path | None, say: Say) -> Iterator[None]:
    """The story goes inside: what it cannot get over is noted as its failure; then the report is written and told.

    Arguments:
        report_dir: where the report's files go; nowhere when None.
    """
    began = time.monotonic()
    try:
        yield
    except FAILURES as error:
        report.failures.append(_said(error))
    report.duration_s = time.monotonic() - began
    if report_dir is not None:
        report.write(Path(report_dir))
    for line in report.summary():
        say(line)


@contextmanager
def in_round(number: int) -> Iterator[None]:
    """A round goes inside: what it cannot get over is told with its number.

    Raises:
        ChaosError: the round has failed.
    """
    try:
        yield
    except FAILURES as error:
        raise ChaosError(f"round {number}: {_said(error)}") from error


def attempted(report: Report, part: Callable[[], object], unchecked: str = "") -> bool:
    """Does a part of a run; what that cannot get over is noted as a failure, and the run goes on.

    Arguments:
        unchecked: the invariants that nothing can be said about without this part.

    Returns:
        whether it was done.
    """
    try:
        part()
    except FAILURES as error:
        report.failures.append(_said(error))
        if unchecked:
            report.not_checked.append(f"{unchecked}: {_said(error)}")
        return False
    return True


def heal(report: Report, cluster: LocalCluster, proxies: LinkProxies | None = None) -> None:
    """Ends every fault that a failed round may have left: links carry, paused nodes go on, all others are started."""

    def mend(node: int) -> None:
        if proxies is not None:
            proxies.rejoin(node)
        if cluster.is_running(node):
            cluster.resume(node)
        else:
            cluster.start(node)

    for node in cluster.node_ids:
        attempted(report, lambda node=node: mend(node))  # type: ignore[misc]


def disks_of(cluster: LocalCluster) -> dict[int, Path]:
    """Kills every node that runs: nobody has their data directories open then."""
    for node in cluster.node_ids:
        if cluster.is_running(node):
            cluster.kill(node)
    return {node: cluster.data_dir(node) for node in cluster.node_ids}


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
