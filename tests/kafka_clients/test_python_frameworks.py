"""Python's frameworks, unchanged: a node is killed while they work, then they continue in a new process."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import AGAINST
from framework_run import Run
from frameworks import FRAMEWORKS, Framework
from matrix_clients import _python

from quorumlog.local import LocalCluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]


@pytest.mark.parametrize(
    "framework",
    FRAMEWORKS,
    ids=lambda each: each.name,
)
def test_framework_survives_a_kill(framework: Framework, tmp_path: Path) -> None:
    """No number is lost, and every sum is exact; a number is repeated only if the framework documents it."""
    with LocalCluster(nodes=3, kafka=True) as cluster:
        Run(cluster, framework, _python(framework.program, *framework.requirements), tmp_path).play()
