"""kafka-python's own integration tests against three nodes: what fails is known, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from tests.support.kafka_python_suite import SuiteUnavailableError, bring_suite, run_suite
from tests.support.suite_outcomes import judge

# Its own time-outs are short: nothing else may run beside it.
pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]

#: What the client takes the nodes for, by the APIs that they serve.
TAKEN_FOR = "4.2.0"
WITHIN_S = 300.0


def test_the_suite_of_kafka_python_fails_only_where_something_is_refused(tmp_path: Path) -> None:
    try:
        bring_suite()
    except SuiteUnavailableError as problem:
        pytest.skip(f"needs a registry of Python packages: {problem}")
    with LocalCluster(nodes=3, kafka=True, settings={"kafka_auto_create_topics_enable": "true"}) as nodes:
        outcomes = run_suite(nodes.kafka_bootstrap_servers, TAKEN_FOR, tmp_path / "suite.log", WITHIN_S)
        for node in nodes.node_ids:
            assert nodes.is_running(node), nodes.log_path(node).read_text()[-2_000:]
            assert "fault=failed" not in nodes.log_path(node).read_text()
    judge("kafka-python", "quorumlog", outcomes)
