"""kafka-python's own integration tests, unchanged from its registry, against nodes that another program has started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

from confluent_kafka.admin import AdminClient, NewTopic

_HERE = Path(__file__).resolve().parent
#: As in requirements.lock.
VERSION = "3.0.12"
HOME = _HERE.parent.parent / "build" / "kafka-clients" / f"kafka-python-suite-{VERSION}"
_INSTALLED_WITHIN_S = 600


class SuiteUnavailableError(Exception):
    """The suite cannot be brought here, or did not end; the message is what pip or the suite said last."""


def bring_suite() -> tuple[Path, Path]:
    """Brings the suite and an environment for it, once. Returns the environment's Python and the suite's folder.

    Raises:
        SuiteUnavailableError: there is no registry.
    """
    python, source = HOME / "venv" / "bin" / "python", HOME / f"kafka_python-{VERSION}"
    if not (HOME / ".installed").exists():
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)
        pip = [str(python), "-m", "pip"]
        _run([sys.executable, "-m", "venv", str(HOME / "venv")])
        _run([*pip, "install", "--quiet", f"kafka-python[testing,lz4,snappy,zstd,crc32c]=={VERSION}"])
        _run([*pip, "download", "--quiet", "--no-deps", "--no-binary=:all:", f"kafka-python=={VERSION}"])
        with tarfile.open(HOME / f"{source.name}.tar.gz") as packed:
            packed.extractall(HOME, filter="data")
        shutil.rmtree(source / "kafka")  # What is tested is what was installed.
        # What the package leaves out: without it, Python has a "test" of its own.
        (source / "test" / "__init__.py").touch()
        shutil.copy(_HERE / "kafka_python_service.py", source / "test" / "service.py")
        (HOME / ".installed").touch()
    return python, source


def run_suite(servers: str, kafka_version: str, log: Path, within_s: float) -> dict[str, str]:
    """Runs the suite. Returns what became of each test: passed, failed or skipped.

    Arguments:
        servers: where nodes speak Kafka's protocol.
        kafka_version: the one that the client itself takes them for.
        log: what the suite says goes there.
        within_s: how long it may take.

    Raises:
        SuiteUnavailableError: there is no registry, or the suite ended without a report.
    """
    python, source = bring_suite()
    (source / "servers" / kafka_version / "kafka-bin").mkdir(parents=True, exist_ok=True)
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    _create_topics(servers)
    first = servers.split(",", maxsplit=1)[0]
    command = [str(python), "-m", "pytest", "test/integration", "-p", "no:cacheprovider", "--tb=native"]
    surroundings = {"KAFKA_URI": f"kafka://{first}", "KAFKA_VERSION": kafka_version}
    # The suite's own settings choose the method "thread", which ends the whole process at the first test that takes too
    # long, before there is a report.
    limits = ["--timeout=120", "--timeout-method=signal"]
    with log.open("w") as out:
        subprocess.run(
            [*command, *limits, f"--junitxml={report}"],
            cwd=source,
            env={**os.environ, **surroundings},
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
        )
    if not report.exists():
        raise SuiteUnavailableError(f"the suite has left no report: {log.read_text()[-2_000:]}")
    return dict(map(_outcome, ElementTree.parse(report).iter("testcase")))


def _create_topics(servers: str) -> None:
    """Creates a topic that would be created automatically. A test names its second partition: the brokers that the
    suite itself starts give such topics four partitions (test/conftest.py)."""
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic("transactional_test_topic", 4, 3)]).values():
        created.result()


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    kinds = {part.tag for part in case}
    name = f"{re.sub(r'.*[.]', '', case.get('classname', ''))}::{case.get('name')}"
    return name, "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=_INSTALLED_WITHIN_S, check=False)
    if ended.returncode:
        raise SuiteUnavailableError(f"{' '.join(command)}: {(ended.stdout + ended.stderr).strip()[-2_000:]}")
