"""What all scenarios on real processes share: a seed and an opening line, a cluster of their own, a verdict."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quorumlog.chaos.ballast import BallastError
from quorumlog.chaos.nemesis import ChaosError
from quorumlog.chaos.report import GapBounds, Report
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.local import ClusterError, LocalCluster

Say = Callable[[str], None]


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
    nodes: int, topic: NewTopic, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[LocalCluster, Admin]]:
    """A cluster of real processes that holds one topic; nothing of it is left behind."""
    with (
        LocalCluster(nodes=nodes, settings=settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([topic])
        yield cluster, admin


@contextmanager
def judged(report: Report, report_dir: str | Path | None, say: Say) -> Iterator[None]:
    """The story goes inside: what it cannot get over is noted as its failure; then the report is written and told.

    Arguments:
        report_dir: where the report's files go; nowhere when None.
    """
    began = time.monotonic()
    try:
        yield
    except (ChaosError, BallastError, ClusterError, QuorumlogError, TimeoutError) as error:
        report.failures.append(str(error))
    report.duration_s = time.monotonic() - began
    if report_dir is not None:
        report.write(Path(report_dir))
    for line in report.summary():
        say(line)
