"""Common parts of all scenarios on real processes: a seed and an opening line, a cluster of their own, a verdict.

A round that fails ends the rounds, not the run: its faults are ended, and everything that can still be read and
compared is judged. The rest is not checked, which is different from broken.
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
#: Exceptions of a part of a run after which the run continues to its verdict. Others are defects of the suite itself.
FAILURES = (ChaosError, BallastError, ClusterError, QuorumlogError, TimeoutError, AssertionError)
#: Invariants that require a reader to reach the end, and those that require all replicas in sync.
READ_TO_THE_END = "I3 and I8 up to the ends of the logs"
REPLICAS_AGREE = "I9"


def announced(
    name: str, summary: str, seed: int | None, size: str, say: Say, bounds: GapBounds | None = None
) -> Report:
    """Prints a line about the run, and returns an empty report.

    Arguments:
        seed: random if None.
        size: size of the run, for that line; may be empty.
        bounds: limits of the gaps.
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
    """Runs a cluster of real processes with one topic; it is deleted afterwards.

    Arguments:
        secure: use TLS, password authentication and ACLs.
        kafka: nodes serve Kafka clients too.
    """
    with (
        ScenarioCluster(nodes, secure=secure, kafka=kafka, settings=settings) as cluster,
        operator_of(cluster) as admin,
    ):
        admin.create_topics([topic])
        yield cluster, admin


@contextmanager
def operator_of(cluster: ScenarioCluster) -> Iterator[Admin]:
    """Yields the operator's client, after it has created the clients' user and ACLs."""
    with Admin(**cluster.admin_options) as admin:
        cluster.let_in(admin)
        yield admin


@contextmanager
def judged(report: Report, report_dir: str | Path | None, say: Say) -> Iterator[None]:
    """Wraps the run: an exception is recorded as a failure; then the report is written and printed.

    Arguments:
        report_dir: directory of the report's files; None to write none.
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
    """Wraps a round: adds its number to an exception.

    Raises:
        ChaosError: the round has failed.
    """
    try:
        yield
    except FAILURES as error:
        raise ChaosError(f"round {number}: {_said(error)}") from error


def attempted(report: Report, part: Callable[[], object], unchecked: str = "") -> bool:
    """Runs a part of a run; an exception is recorded as a failure, and the run continues.

    Arguments:
        unchecked: the invariants that cannot be checked without this part.

    Returns:
        True if it succeeded.
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
    """Ends every fault that a failed round may have left: links are restored, paused nodes resumed, others started."""

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
    """Kills every running node, so that no process has their data directories open; returns these."""
    for node in cluster.node_ids:
        if cluster.is_running(node):
            cluster.kill(node)
    return {node: cluster.data_dir(node) for node in cluster.node_ids}


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
