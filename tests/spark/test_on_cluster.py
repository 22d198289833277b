"""Jobs on a standalone Spark cluster of separate processes: workers and drivers die, and nothing is lost or doubled."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Producer
from tests.support.pipeline_records import (
    RECORDS,
    TOTALS_OPTIONS,
    by_key,
    closed,
    contents,
    counter_of,
    create_topics,
    fill,
    totals_by_window,
    values_in,
    windows,
)
from tests.support.standalone import StandaloneSpark, kill_tree
from tests.support.troubled_copy import TROUBLED_PARTITION, TROUBLED_RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes with a topic of records, and topics for what becomes of them."""
    with LocalCluster(nodes=3) as nodes:
        create_topics(nodes, "orders", "copies", "totals")
        fill(nodes, "orders")
        yield nodes


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """A master and two workers."""
    started = StandaloneSpark(tmp_path_factory.mktemp("standalone"), workers=2)
    yield started
    started.stop()


class Submitted:
    """A job under way: a driver, whose work is done in the workers' executors."""

    def __init__(self, standalone: StandaloneSpark, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file, env=standalone.environment, cwd=ROOT)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits for something that becomes so before the job is done."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert self._process.poll() is None, f"it has ended: {self.said()}"
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def finish(self) -> str:
        """Waits until it is done; returns what it has said."""
        status = self._process.wait(DEADLINE_S)
        assert status == 0, self.said()
        return self.said()

    def said(self) -> str:
        """Returns what the job has printed and Spark has logged."""
        return self._log.read_text()

    def __enter__(self) -> Submitted:
        return self

    def __exit__(self, *error: object) -> None:
        kill_tree(self._process)


def line_of_the_docs(**values: str) -> list[str]:
    """The spark-submit line of docs/use/spark.md, with values of one's own for some of its options."""
    page = (ROOT / "docs/use/spark.md").read_text()
    (line,) = re.findall(r"^(spark-submit --master spark://(?:.*\\\n)*.*)$", page, re.M)
    words = shlex.split(line.replace("\\\n", " "))
    for name, value in values.items():
        words[words.index(f"--{name.replace('_', '-')}") + 1] = value
    return words


def test_a_read_and_a_copy_of_a_topic_outlive_a_worker_that_dies(
    standalone: StandaloneSpark, cluster: LocalCluster, tmp_path: Path
) -> None:
    script = ROOT / "tests" / "support" / "copy_on_cluster.py"
    job = ["spark-submit", "--master", standalone.master, str(script), cluster.bootstrap_servers, "orders", "copies"]
    job.append(str(tmp_path / "checkpoint"))
    with counter_of(cluster, "copies") as copied, Submitted(standalone, job, tmp_path / "log") as copy:
        copy.wait_until(lambda: f"{RECORDS} rows, {RECORDS} offsets, 2 executors" in copy.said())
        # What the first micro-batch gives this worker to do, it has started and not done when it dies.
        standalone.pause_worker(0)
        copy.wait_until(lambda: copied() > 0)
        assert not contents(cluster, "copies"), "a part of a micro-batch is visible"
        standalone.kill_worker(0)
        said = copy.finish()
    standalone.start_worker(0)
    assert "its executor exited for a reason unrelated to the task" in said, "no task has died with the worker"
    assert by_key(contents(cluster, "copies")) == by_key(contents(cluster, "orders"))


@pytest.mark.skipif(sys.platform != "linux", reason="Spark runs a speculative copy only on another host")
@pytest.mark.parametrize(
    ("trouble", "settings", "line"),
    [
        (
            "slow",
            ["spark.speculation=true", "spark.speculation.quantile=0.3", "spark.speculation.multiplier=1.1"],
            "as speculatable because it ran more",
        ),
        ("killed", [], "Lost executor"),
    ],
)
def test_a_task_that_runs_twice_is_committed_once(
    standalone: StandaloneSpark, cluster: LocalCluster, tmp_path: Path, trouble: str, settings: list[str], line: str
) -> None:
    """The records of the first attempt are in the log, and aborted."""
    source, target, count = f"before-{trouble}", f"after-{trouble}", TROUBLED_RECORDS + 60
    create_topics(cluster, source, target)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            partition = TROUBLED_PARTITION if number < TROUBLED_RECORDS else 1 + number % 2
            producer.send(source, b"%d" % number, key=b"%d" % (number % 7), partition=partition)
    standalone.wait_for_workers()
    script = ROOT / "tests" / "support" / "troubled_copy.py"
    job = ["spark-submit", "--master", standalone.master]
    job += [word for setting in settings for word in ("--conf", setting)]
    job += [str(script), cluster.bootstrap_servers, source, target, str(tmp_path / "checkpoint"), trouble]
    with Submitted(standalone, job, tmp_path / "log") as copy:
        said = copy.finish()
    assert line in said, "the task has run once"
    expected = Counter(b"%d" % number for number in range(count))
    assert unpadded(values_in(cluster.bootstrap_servers, target)) == expected
    everything = unpadded(values_in(cluster.bootstrap_servers, target, "read_uncommitted"))
    assert everything > expected, "the first attempt has written nothing"


def unpadded(values: Counter[bytes]) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for value, times in values.items():
        found[value.rstrip(b".")] += times
    return found


def test_a_pipeline_goes_on_where_a_worker_has_taken_its_state_along_and_where_its_driver_has_died(
    standalone: StandaloneSpark, cluster: LocalCluster, tmp_path: Path
) -> None:
    line = line_of_the_docs(
        master=standalone.master,
        bootstrap_servers=cluster.bootstrap_servers,
        to="totals",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    line += [*TOTALS_OPTIONS, "--max-offsets-per-trigger", "450", "--until-now"]
    standalone.wait_for_workers()
    with (
        counter_of(cluster, "totals") as written,
        Submitted(standalone, line, tmp_path / "first-log") as totals,
    ):
        totals.wait_until(lambda: "micro-batch 0:" in totals.said())
        standalone.kill_worker(1)
        totals.wait_until(lambda: "micro-batch 1:" in totals.said())
        # In the middle of the next one, the driver dies too, and a node.
        before = written()
        totals.wait_until(lambda: written() > before)
        node = cluster.leader("totals", 0) or 1
        cluster.kill(node)
    standalone.start_worker(1)
    with Submitted(standalone, line, tmp_path / "second-log") as totals:
        said = totals.finish()
    assert "window_totals: continues from the checkpoint" in said and "window_totals: done, " in said
    cluster.start(node)
    cluster.wait_ready()
    expected = closed(windows(contents(cluster, "orders")))
    assert totals_by_window(contents(cluster, "totals")) == {place: [row] for place, row in expected.items()}
