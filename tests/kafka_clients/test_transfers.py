"""Transfers in transactions of the Java client, through faults of workers and nodes."""

from __future__ import annotations

import shlex

import pytest
from conftest import AGAINST
from matrix_clients import JAVA_3_JARS, SERVER_JARS, JarSet, _java

from quorumlog.chaos.processes.scenarios import run_scenario

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(600),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]


@pytest.mark.parametrize("jars", [JAVA_3_JARS, SERVER_JARS], ids=["3.9", "4.3"])
def test_sums_are_constant_with_java(jars: JarSet) -> None:
    """3.9 keeps its epoch across transactions, 4.3 gets a new one with each."""
    command = shlex.join(map(str, _java(jars, "Transfers")))
    report = run_scenario("transactions", rounds=4, records=1_500, client=command)
    assert report.passed, "\n".join(report.summary())
    assert report.transfers is not None
    assert report.transfers.transfers == 1_500
