"""Clients' own integration tests, unchanged from their registries: what fails is known, and why."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import AGAINST, Servers
from matrix_clients import BUILD, PROGRAMS

from tests.support.kafka_python_suite import run_suite
from tests.support.suite_outcomes import judge

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(3_600)]

#: Which kafka-python's tests take the cluster for: what the client itself infers from the APIs that are served.
KAFKA_VERSION = "4.3.0" if AGAINST == "apache" else "4.2.0"
_SUITE_WITHIN_S = 3_000
_BUILT_WITHIN_S = 600
_OUTCOMES = {"run": "failed", "pass": "passed", "fail": "failed", "skip": "skipped"}


def go_outcomes(servers: Servers) -> dict[str, str]:
    """Returns the outcomes of franz-go's tests; a test that never ended has failed."""
    package = "github.com/twmb/franz-go/pkg/kgo"
    command = ["go", "test", "-count=1", "-json", "-timeout", f"{_SUITE_WITHIN_S}s", package]
    surroundings = {"KGO_SEEDS": servers.kafka, "KGO_TEST_RECORDS": "20000", "KGO_TEST_RF": "3"}
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"franz-go-{AGAINST}.log"
    with log.open("w") as out:
        subprocess.run(
            command,
            cwd=PROGRAMS / "go",
            env={**os.environ, **surroundings},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_SUITE_WITHIN_S + _BUILT_WITHIN_S,
            check=False,
        )
    outcomes = {}
    for line in log.read_text().splitlines():
        reported = json.loads(line) if line.startswith("{") else {}
        if "Test" in reported and reported["Action"] in _OUTCOMES:
            outcomes[reported["Test"]] = _OUTCOMES[reported["Action"]]
    return outcomes


def test_the_suite_of_franz_go(servers: Servers) -> None:
    judge("franz-go", AGAINST, go_outcomes(servers))


def test_the_suite_of_kafka_python(servers: Servers) -> None:
    log = BUILD / f"kafka-python-{AGAINST}.log"
    judge("kafka-python", AGAINST, run_suite(servers.kafka, KAFKA_VERSION, log, _SUITE_WITHIN_S))
