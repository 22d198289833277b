"""Clients' own integration tests, unchanged from their registries: what fails is known, and why."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import AGAINST, Servers
from matrix_clients import BUILD, PROGRAMS, _made

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(3_600)]

HERE = Path(__file__).resolve().parent
EXPECTED = tomllib.loads((HERE / "expected_failures.toml").read_text())[
    "apache" if AGAINST == "apache" else "quorumlog"
]
KAFKA_PYTHON = "3.0.12"
#: Which its tests take the cluster for.
KAFKA_VERSION = "4.0.0"
_SUITE_WITHIN_S = 3_000


def judge(suite: str, outcomes: Mapping[str, str]) -> None:
    """Fails if a test failed that is not expected to; prints how many did what."""
    counts = Counter(outcomes.values())
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    expected = EXPECTED[suite]
    print(f"{suite} against {AGAINST}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    for test in sorted(failed & expected.keys()):
        print(f"  failed as expected: {test}: {expected[test]}")
    for test in sorted(expected.keys() - failed):
        print(f"  did not fail: {test}")
    assert sorted(failed - expected.keys()) == []
    assert counts["passed"] > 0


def test_the_suite_of_franz_go(servers: Servers) -> None:
    command = ["go", "test", "-count=1", "-json", "-timeout", f"{_SUITE_WITHIN_S}s", "github.com/twmb/franz-go/pkg/kgo"]
    surroundings = {"KGO_SEEDS": servers.kafka, "KGO_TEST_RECORDS": "20000", "KGO_TEST_RF": "3"}
    log = BUILD / f"franz-go-{AGAINST}.log"
    with log.open("w") as out:
        subprocess.run(
            command,
            cwd=PROGRAMS / "go",
            env={**os.environ, **surroundings},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_SUITE_WITHIN_S + 60,
            check=False,
        )
    outcomes = {}
    for line in log.read_text().splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        if "Test" in told and told["Action"] in ("pass", "fail", "skip"):
            outcomes[told["Test"]] = {"pass": "passed", "fail": "failed", "skip": "skipped"}[told["Action"]]
    judge("franz-go", outcomes)


def test_the_suite_of_kafka_python(servers: Servers) -> None:
    home = BUILD / f"kafka-python-suite-{KAFKA_PYTHON}"
    python = home / "venv" / "bin" / "python"
    if not python.exists():
        _made([sys.executable, "-m", "venv", home / "venv"], HERE)
        _made(
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                f"kafka-python[testing,lz4,snappy,zstd,crc32c]=={KAFKA_PYTHON}",
            ],
            HERE,
        )
    source = home / f"kafka_python-{KAFKA_PYTHON}"
    if not source.exists():
        _made(
            [
                python,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary=:all:",
                f"kafka-python=={KAFKA_PYTHON}",
            ],
            home,
        )
        with tarfile.open(home / f"{source.name}.tar.gz") as packed:
            packed.extractall(home, filter="data")
        shutil.rmtree(source / "kafka")  # What is tested is what was installed.
        # What the package leaves out: without it, Python has a "test" of its own.
        (source / "test" / "__init__.py").touch()
        shutil.copy(PROGRAMS / "python" / "external_service.py", source / "test" / "service.py")
        (source / "servers" / KAFKA_VERSION / "kafka-bin").mkdir(parents=True)
    report = BUILD / f"kafka-python-{AGAINST}.xml"
    first = servers.kafka.split(",", maxsplit=1)[0]
    with (BUILD / f"kafka-python-{AGAINST}.log").open("w") as out:
        subprocess.run(
            [
                python,
                "-m",
                "pytest",
                "test/integration",
                "-p",
                "no:cacheprovider",
                "--tb=native",
                f"--junitxml={report}",
                "--timeout=120",
            ],
            cwd=source,
            env={**os.environ, "KAFKA_URI": f"kafka://{first}", "KAFKA_VERSION": KAFKA_VERSION},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_SUITE_WITHIN_S,
            check=False,
        )
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {part.tag for part in case}
        name = f"{re.sub(r'.*[.]', '', case.get('classname', ''))}::{case.get('name')}"
        bad = kinds & {"failure", "error"}
        outcomes[name] = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
    judge("kafka-python", outcomes)
