"""The pipelines as users run them: processes of their own, killed in the middle together with a node, and run again."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.java import find_java_home
from quorumlog.sdk.spark.pipelines import archive, backfill, checkpoints, job, parquet_input, window_totals
from tests.support.pipeline_records import (
    RECORDS,
    TOTALS_OPTIONS,
    Row,
    by_key,
    contents,
    counter_of,
    create_topics,
    fill,
    totals_by_window,
    windows,
)
from tests.support.standalone import QUICK, kill_tree
from tests.support.stream_queries import MOST_STARTS, SLOW_START, InjectedError

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
DEADLINE_S = 250
#: A session's time zone: days and times must not depend on it.
ELSEWHERE = ["--conf", "spark.sql.session.timeZone=Pacific/Auckland"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes and a topic of records with keys, without, without values, with headers, over thirty hours."""
    with LocalCluster(nodes=3) as nodes:
        create_topics(nodes, "orders", "updates", "again")
        fill(nodes, "orders")
        yield nodes


@pytest.fixture
def own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests, for commands that take it for their own: settings and signals are put back."""
    names = ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
    settings = {name: spark.conf.get(name) for name in names}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield spark
    for name, value in settings.items():
        spark.conf.set(name, value)
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Pipeline:
    """A command, with its options."""

    def __init__(self, module: Any, log: Path, *options: str) -> None:
        self._module, self._log = module, log
        self._options = [*options, "--conf", f"spark.driver.extraJavaOptions={QUICK}"]

    def kill_once(self, is_under_way: Callable[[str], bool]) -> None:
        """Runs the command until it is in the middle, by what it has said or done, and kills all of its processes."""
        command = [sys.executable, "-m", self._module.__name__, "--master", "local[1]"]
        process = self._start(command)
        deadline = time.monotonic() + DEADLINE_S
        try:
            while not is_under_way(self._log.read_text()):
                if process.poll() is not None:
                    assert SLOW_START in self._log.read_text(), f"it has ended: {self._log.read_text()}"
                    process = self._start(command)
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.01)
        finally:
            kill_tree(process)

    def main(self, *more: str) -> int:
        """Runs the command in this process, with further options; returns its exit status."""
        status: int = self._module.main([*self._options, *more])
        return status

    def finish_here(self, capsys: pytest.CaptureFixture[str]) -> str:
        """Runs the command to its end in this process, with the session of the tests; returns its summary."""
        for _ in range(MOST_STARTS):
            status = self.main()
            said = capsys.readouterr()
            self._log.write_text(said.err)
            if status == 0 or SLOW_START not in said.err:
                break
        assert status == 0, said.err
        return said.out

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        java = {"JAVA_HOME": str(find_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment = os.environ | java | {"PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            return subprocess.Popen([*command, *self._options], stderr=log, env=environment)


class NodeDown:
    """A node that dies with the pipeline, and is back for the next test."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic

    def __enter__(self) -> None:
        self._node = self._cluster.leader(self._topic, 0) or 1
        self._cluster.kill(self._node)

    def __exit__(self, *error: object) -> None:
        self._cluster.start(self._node)
        self._cluster.wait_ready()


def crashing(updates_to: Callable[..., Callable[..., None]], crashes: list[int]) -> Callable[..., Callable[..., None]]:
    """Writes all of the second micro-batch, and fails before Spark has noted that it is done."""

    def made(target: dict[str, str]) -> Callable[..., None]:
        write = updates_to(target)

        def write_and_fail(updates: DataFrame, batch: int) -> None:
            write(updates, batch)
            if batch == 1:
                crashes.append(batch)
                raise InjectedError("it fails after its work is done")

        return write_and_fail

    return made


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_totals_of_windows_that_change_are_written_once_over_a_crash(
    own_session: SparkSession,
    cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of windows that are closed, over the driver's own death: test_on_cluster.py."""
    totals = Pipeline(
        window_totals,
        tmp_path / "log",
        "--bootstrap-servers",
        cluster.bootstrap_servers,
        "--from",
        "orders",
        "--to",
        "updates",
        "--output-mode",
        "update",
        "--checkpoint",
        str(tmp_path / "check point"),
        *TOTALS_OPTIONS,
        "--max-offsets-per-trigger",
        "500",
        "--until-now",
        *ELSEWHERE,
        "--conf",
        "spark.sql.shuffle.partitions=2",
    )
    with monkeypatch.context() as patched:
        crashes: list[int] = []
        patched.setattr(window_totals, "_updates_to", crashing(window_totals._updates_to, crashes))
        for _ in range(MOST_STARTS):
            assert totals.main() == job.FAILURE
            if crashes:
                break
    said = capsys.readouterr().err
    assert "micro-batch 0:" in said and crashes == [1], said
    with NodeDown(cluster, "updates"):
        summary = totals.finish_here(capsys)
    assert "continues from the checkpoint" in (tmp_path / "log").read_text()
    assert summary.startswith("window_totals: done, ") and '"orders"' in summary

    expected, written = windows(contents(cluster, "orders")), totals_by_window(contents(cluster, "updates"))
    assert {place: results[-1] for place, results in written.items()} == expected
    for results in written.values():
        counts = [result["count"] for result in results]
        assert counts == sorted(set(counts)), "a window is written when it has changed, and not again"
    assert max(len(results) for results in written.values()) > 1


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_archive_and_what_is_filled_from_it_hold_each_record_once_over_kills(
    own_session: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "all files"
    common = ["--bootstrap-servers", cluster.bootstrap_servers]
    copy = Pipeline(
        archive,
        tmp_path / "archive-log",
        *common,
        "--from",
        "orders",
        "--into",
        str(files),
        "--checkpoint",
        str(tmp_path / "checkpoint"),
        "--max-offsets-per-trigger",
        "300",
        "--until-now",
        *ELSEWHERE,
    )
    copy.kill_once(lambda said: "micro-batch 1:" in said)
    with NodeDown(cluster, "orders"):
        assert "archive: done, " in copy.finish_here(capsys)
    original = contents(cluster, "orders")
    assert sorted(archived(files), key=place) == sorted(original, key=place)

    fill = Pipeline(
        backfill,
        tmp_path / "backfill-log",
        *common,
        "--from",
        str(files),
        "--to",
        "again",
        "--transaction-id",
        "again-1",
        "--tasks",
        "6",
    )
    with counter_of(cluster, "again") as filled:
        fill.kill_once(lambda _: filled() > 0)
        assert filled() < RECORDS and not contents(cluster, "again")
    with NodeDown(cluster, "again"):
        assert f"done, {RECORDS:,} records are in again" in fill.finish_here(capsys)
    assert by_key(contents(cluster, "again")) == by_key(original)
    assert fill.main("--tasks", "7") == 0, "what is done is not written again, in whatever tasks"
    assert by_key(contents(cluster, "again")) == by_key(original)


def archived(files: Path) -> list[Row]:
    """The rows of the files that Spark lists; what a killed task has left is none of them."""
    listed = set()
    for manifest in (files / "_spark_metadata").glob("[0-9]*"):
        listed |= {json.loads(line)["path"] for line in manifest.read_text().splitlines()[1:]}
    rows = []
    for path in (Path(unquote(urlparse(uri).path)) for uri in sorted(listed)):
        table = pq.ParquetFile(path).read(columns=COLUMNS).to_pylist()
        assert {f"date={row['timestamp']:%Y-%m-%d}" for row in table} <= {path.parent.name}
        rows += table
    return rows


def place(row: Row) -> tuple[int, int]:
    return row["partition"], row["offset"]


@pytest.mark.parametrize(
    ("module", "options", "status", "line"),
    [
        (archive, "--bootstrap-servers h:1 --from t --into d", 2, "the following arguments are required: --checkpoint"),
        (archive, "--bootstrap-servers h --from t --into d --checkpoint c", 2, "'h' is not host:port"),
        (
            archive,
            "--bootstrap-servers h:1 --from t --into d --checkpoint c --option startingOfsets=1",
            2,
            "did you mean",
        ),
        (
            archive,
            "--bootstrap-servers h:1 --from t --into d --checkpoint c --starting-offsets x",
            2,
            "startingOffsets",
        ),
        (
            archive,
            "--bootstrap-servers h:1 --from t --into d --checkpoint c --starting-timestamp soon",
            2,
            "is not a time",
        ),
        (archive, "--bootstrap-servers h:1 --from t --into d --checkpoint c --conf master", 2, "is not NAME=VALUE"),
        (archive, "--bootstrap-servers h:1 --from t --into d --checkpoint c --option Subscribe=u", 2, "Subscribe=u"),
        (window_totals, "--bootstrap-servers h:1 --from t --to u --checkpoint c --window 1x", 2, "'1x' is not a time"),
        (
            window_totals,
            "--bootstrap-servers h:1 --from t --to u --checkpoint c --window 0day",
            2,
            "'0day' is not a time",
        ),
        (backfill, "--bootstrap-servers h:1 --from d --to u --transaction-id i --tasks 0", 2, "--tasks is 0"),
        (backfill, "--bootstrap-servers h:1 --from d --to u --transaction-id i --tasks x", 2, "invalid int value"),
        (
            backfill,
            "--bootstrap-servers h:1 --from d --to u --transaction-id i --transaction-timeout 2h",
            2,
            "transactionTimeout is '2h': give 1s to 1h",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    module: Any, options: str, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        result = module.main(options.split())
    except SystemExit as ended:
        result = ended.code
    said = capsys.readouterr()
    assert (result, said.out, said.err.count("\n")) == (status, "", 1)
    assert line in said.err and said.err.startswith(f"{module.NAME}: ")


@pytest.mark.parametrize("module", [archive, window_totals, backfill])
def test_help_has_an_example(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    assert f"example:\n  python -m {module.__name__} --bootstrap-servers" in capsys.readouterr().out


def test_how_nodes_are_reached_is_read_from_a_file_for_all_that_a_pipeline_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of spark\nsecurity.protocol=SASL_SSL\nsasl.username = spark\nsasl.password=canary\n")
    words = ["--bootstrap-servers", "h:1", "--from", "t", "--to", "u", "--checkpoint", "c"]
    expected = {
        "quorumlog.bootstrap.servers": "h:1",
        "quorumlog.security.protocol": "SASL_SSL",
        "quorumlog.sasl.username": "spark",
        "quorumlog.sasl.password": "canary",
    }
    given = window_totals._parser().parse_args([*words, "--command-config", str(file)])
    assert job.servers(given) == expected
    assert expected.items() <= job.stream_options(given).items()
    assert job.cluster(given).security.sasl_plain_username == "spark"
    monkeypatch.setenv("QUORUMLOG_COMMAND_CONFIG", str(file))
    assert job.servers(window_totals._parser().parse_args(words)) == expected
    monkeypatch.delenv("QUORUMLOG_COMMAND_CONFIG")
    assert job.servers(window_totals._parser().parse_args(words)) == {"quorumlog.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "--command-config: cannot read"),
        (b"\xff\xfe", "it is not text"),
        (b"security.protocol", "line 1: expected KEY=VALUE, with a key of security.protocol"),
        (b"\nbootstrap.servers=h:1", "line 2: expected KEY=VALUE"),
        (b"security.protocol=TLS", "security_protocol is 'TLS'"),
    ],
)
def test_a_file_that_does_not_say_how_nodes_are_reached_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, line: str
) -> None:
    file = tmp_path / "client.properties"
    if content is not None:
        file.write_bytes(content)
    options = f"--bootstrap-servers h:1 --from t --to u --checkpoint c --command-config {file}"
    assert window_totals.main(options.split()) == job.WRONG_USAGE
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


@pytest.mark.cluster
def test_a_topic_that_is_missing_is_told_before_a_java_is_started(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"--bootstrap-servers {cluster.bootstrap_servers} --from d --to nowhere --transaction-id i"
    assert backfill.main(options.split()) == job.FAILURE
    assert capsys.readouterr().err == (
        "backfill: topic 'nowhere' does not exist: create it with quorumlog topics create nowhere\n"
    )


@pytest.mark.spark
def test_an_archive_is_not_gone_on_with_under_another_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    archive.refuse_taken_directory(spark, str(files), str(checkpoint))
    (files / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(OptionError, match="was written with another checkpoint"):
        archive.refuse_taken_directory(spark, str(files), str(checkpoint))
    checkpoint.mkdir()
    (checkpoint / "metadata").touch()
    archive.refuse_taken_directory(spark, str(files), str(checkpoint))


@pytest.mark.spark
def test_a_checkpoint_is_of_one_query(spark: SparkSession, tmp_path: Path) -> None:
    place, options = str(tmp_path / "check point"), {"--to": "a", "--field": None}
    assert checkpoints.claim(spark, place, "window_totals", options)
    assert checkpoints.claim(spark, place, "window_totals", options), "Spark has started nothing yet"
    Path(place, "metadata").touch()
    assert not checkpoints.claim(spark, place, "window_totals", options)
    with pytest.raises(OptionError, match="is of a query with --to a: give this query a checkpoint of its own"):
        checkpoints.claim(spark, place, "window_totals", options | {"--to": "b"})
    with pytest.raises(OptionError, match="is of a query with no --field"):
        checkpoints.claim(spark, place, "window_totals", options | {"--field": "x"})
    with pytest.raises(OptionError, match="is a checkpoint of window_totals"):
        checkpoints.claim(spark, place, "archive", {"--into": "d"})
    Path(place, "quorumlog.json").unlink()
    with pytest.raises(OptionError, match="is the checkpoint of some other query"):
        checkpoints.claim(spark, place, "window_totals", options)


@pytest.mark.spark
def test_an_archive_whose_files_are_gone_does_not_go_on(spark: SparkSession, tmp_path: Path) -> None:
    files, commits = tmp_path / "files", tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    archive.refuse_lost_directory(spark, str(files), str(commits.parent))
    (commits / "41").touch()
    with pytest.raises(OptionError, match="has lost what"):
        archive.refuse_lost_directory(spark, str(files), str(commits.parent))
    (files / "_spark_metadata").mkdir(parents=True)
    archive.refuse_lost_directory(spark, str(files), str(commits.parent))


def write_parquet(path: Path, **columns: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.mark.spark
def test_files_that_differ_in_their_columns_are_read_with_all_of_them(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "day=1" / "a.parquet", value=[b"1"])
    write_parquet(tmp_path / "day=1" / "b.parquet", value=[b"2"], key=[b"k"])
    write_parquet(tmp_path / "day=2" / "c.parquet", value=[b"3"], offset=[7])
    rows = parquet_input.read(spark, str(tmp_path)).orderBy("value").toArrow().to_pylist()
    assert [(bytes(row["value"]), row["key"], row["offset"], row["day"]) for row in rows] == [
        (b"1", None, None, 1),
        (b"2", b"k", None, 1),
        (b"3", None, 7, 2),
    ]


@pytest.mark.spark
def test_files_that_spark_would_pass_over_are_told(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", value=[b"1"])
    write_parquet(tmp_path / "2026" / "b.parquet", value=[b"2"])
    with pytest.raises(OptionError, match=r"1 files below .*2026/b\.parquet.*not named COLUMN=VALUE"):
        parquet_input.read(spark, str(tmp_path))
    assert parquet_input.read(spark, str(tmp_path / "2026")).count() == 1


@pytest.mark.spark
def test_a_part_of_what_a_stream_has_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(tmp_path / "orders" / "date=2026-01-01" / "a.parquet", value=[b"1"])
    (tmp_path / "orders" / "_spark_metadata").mkdir()
    for part in ("orders/date=2026-01-01", "orders/*", "orders/date=2026-01-01/a.parquet", "ord*"):
        with pytest.raises(OptionError, match=r"is a part of file:.*/orders, which a stream has written"):
            parquet_input.read(spark, str(tmp_path / part))


def test_late_records_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = {
        "batchId": 0,
        "durationMs": {"addBatch": 1, "triggerExecution": 2},
        "numInputRows": 9,
        "sources": [{"endOffset": '{"orders": {"0": 9}, "$quorumlog": {}}'}],
        "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
        "stateOperators": [{"numRowsTotal": 2, "numRowsDroppedByWatermark": 3}],
    }
    progress = job.QueryProgress()
    progress.add(report)
    progress.add(report | {"batchId": 1})
    assert capsys.readouterr().err.splitlines()[0].endswith("2 windows open, 3 too late")
    assert (progress.late, progress.records) == (6, 18)


def test_the_first_signal_from_when_there_is_a_session_ends_a_pipeline_and_further_ones_print_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's own handler asks the JVM on a connection in use, and py4j logs a page about that, or hangs."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(logging.root.manager, "disable", logging.NOTSET)
    monkeypatch.setattr(job, "local_session", lambda *_, **__: "made")
    try:
        given = argparse.Namespace(master=None, conf=[], log_level="error")
        assert job.session("archive", given) == "made"  # type: ignore[comparison-overlap]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert {signal.getsignal(number) for number in handlers} == {signal.SIG_IGN}
        assert not logging.getLogger().isEnabledFor(logging.CRITICAL)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)


def test_a_jvm_that_has_ended_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> str:
        raise ConnectionRefusedError(111, "Connection refused")

    assert job.run("archive", refused) == job.FAILURE
    assert capsys.readouterr().err.startswith("archive: Spark's JVM has exited")


def test_the_cause_is_told_of_all_that_spark_says() -> None:
    said = (
        "[STREAM_FAILED] Query failed\npyspark: Traceback\nquorumlog.sdk.spark.errors.DataLossError: it is gone\n at x"
    )
    assert job.one_line(said) == "it is gone"
    assert (
        job.one_line("[PATH_NOT_FOUND] Path does not exist: /x.\n at y") == "[PATH_NOT_FOUND] Path does not exist: /x."
    )
    assert job.one_line("[STREAM_FAILED] Query\n[CONCURRENT_STREAM_LOG_UPDATE] Multiple jobs").startswith(
        "another run seems to use"
    )
    met = "terminated with exception: Rename destination file:/c/state/0/0/_metadata/schema already exists. SQLSTATE: X"
    assert job.one_line(met).endswith("(Rename destination file:/c/state/0/0/_metadata/schema already exists)")
