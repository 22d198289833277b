"""Shared parts of the pipelines: options, a session, progress line by line, one line for an error."""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.runtime.properties_file import properties_of
from quorumlog.sdk.spark.errors import DeliveryError, OptionError, SparkSourceError
from quorumlog.sdk.spark.option_values import SECURITY, SECURITY_PREFIX, SELECTIONS, SERVERS, GivenOptions
from quorumlog.sdk.spark.servers import Servers
from quorumlog.sdk.spark.session import local_session, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FAILURE = 1
WRONG_USAGE = 2
#: Interval of checks whether a silent query is alive, in seconds.
_LIVENESS_S = 2.0
#: Our own errors within Spark's messages; the last one is the cause.
_OURS = re.compile(r"\bquorumlog\.[a-z_.]+\.\w+Error: (.+)")
_THEIR_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")
#: Spark's messages about two queries on one checkpoint, by the file on which they collided.
_TWO_AT_ONCE = re.compile(
    r"Multiple streaming queries are concurrently using|CONCURRENT_STREAM_LOG_UPDATE"
    r"|Race while writing batch \d+|Rename destination \S+ already exists"
)
_MAX_LINE = 600


#: Options of the source that the commands set themselves.
_OWN_NAMES = (*SERVERS, *SELECTIONS, "startingOffsets", "startingTimestamp", "maxOffsetsPerTrigger")


class StoppedError(SparkSourceError):
    """A signal has stopped a job before its end."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def __init__(self, name: str, description: str, example: str) -> None:
        super().__init__(
            prog=name,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="nodes to ask first")
        self.add_argument(
            "--command-config", metavar="FILE", default=os.environ.get("QUORUMLOG_COMMAND_CONFIG") or None,
            help="how nodes are reached: a file of properties such as security.protocol=SASL_SSL (default:"
            " QUORUMLOG_COMMAND_CONFIG of the environment)",
        )  # fmt: skip
        self.add_argument("--master", metavar="URL", help="Spark's master (local[*]); spark-submit has its own option")
        self.add_argument(
            "--conf",
            action="append",
            default=[],
            type=pair,
            metavar="NAME=VALUE",
            help="a setting of Spark; repeatable",
        )
        self.add_argument(
            "--log-level", choices=("off", "error", "warn", "info"), default="off",
            help="of Spark's own log on stderr; why a job fails is said without it (default: off)",
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line and the exit status for wrong usage."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (--help shows how)\n")

    def add_stream_options(self) -> None:
        """Adds the options of pipelines that read a topic as a stream."""
        self.add_argument("--from", dest="source", required=True, metavar="TOPIC,...", help="topics to read")
        self.add_argument("--checkpoint", required=True, metavar="DIR", help="where the query keeps how far it is")
        self.add_argument(
            "--starting-offsets", default="earliest", metavar="WHERE",
            help='where a new query starts: earliest, latest or {"TOPIC": {"0": 42, "1": -2}} (default: earliest)',
        )  # fmt: skip
        self.add_argument(
            "--starting-timestamp", type=time_ms, metavar="TIME",
            help="where a new query starts: 2026-01-31T12:00:00Z or milliseconds since 1970",
        )  # fmt: skip
        self.add_argument(
            "--max-offsets-per-trigger", metavar="N", help="at most about so many records in a micro-batch"
        )
        self.add_argument(
            "--trigger", type=duration, metavar="TIME", help="time between micro-batches, such as '1 minute'"
        )
        self.add_argument("--until-now", action="store_true", help="end when all records present at the start are done")
        self.add_argument(
            "--option", action="append", default=[], type=pair, metavar="NAME=VALUE",
            help="a further option of the source (docs/use/spark.md), such as failOnDataLoss=false; repeatable",
        )  # fmt: skip


def pair(text: str) -> tuple[str, str]:
    """Parses NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def time_ms(text: str) -> int:
    """Parses a time as milliseconds since the epoch; without a zone it is UTC."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def duration(text: str) -> str:
    """Validates a time in Spark's format, for windows, watermarks and triggers."""
    if not re.fullmatch(r"\d{1,9}\s*(milliseconds?|seconds?|minutes?|hours?|days?)", text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as '10 seconds', '5 minutes' or '1 hour'")
    return text.strip()


def length(text: str) -> str:
    """Validates a time that is not 0."""
    if not duration(text).lstrip("0")[:1].isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a time")
    return text.strip()


def servers(given: argparse.Namespace) -> dict[str, str]:
    """Returns the validated options for the addresses of the cluster, TLS and authentication.

    Raises:
        OptionError: one is invalid.
    """
    options = {SERVERS[0]: given.bootstrap_servers, **_security(given)}
    return options | {SERVERS[0]: str(GivenOptions(options).bootstrap_servers())}


def cluster(given: argparse.Namespace) -> Servers:
    """Returns the same as a value for requests to nodes.

    Raises:
        OptionError: one is invalid.
    """
    return GivenOptions(servers(given)).bootstrap_servers()


def _security(given: argparse.Namespace) -> dict[str, str]:
    """Returns the content of the file of ``--command-config``, as options of the format."""
    if given.command_config is None:
        return {}
    file, options = Path(given.command_config), {}
    try:
        for number, key, value in properties_of(file):
            if value is None or SECURITY_PREFIX + key not in SECURITY:
                known = ", ".join(name.removeprefix(SECURITY_PREFIX) for name in SECURITY)
                raise OptionError(f"{file}, line {number}: expected KEY=VALUE, with a key of {known}")
            options[SECURITY_PREFIX + key] = value
    except OSError as problem:
        raise OptionError(f"--command-config: cannot read {file}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"--command-config: cannot read {file}: it is not text") from None
    return options


def stream_options(given: argparse.Namespace, **more: str) -> dict[str, str]:
    """Returns the source's options, validated before a JVM is started for them.

    Raises:
        OptionError: one is wrong; the message names it.
    """
    from quorumlog.sdk.spark.options import parse_stream_options

    options = {**servers(given), "subscribe": given.source, **more}
    if given.starting_timestamp is not None:
        options["startingTimestamp"] = str(given.starting_timestamp)
    else:
        options["startingOffsets"] = given.starting_offsets
    if given.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = given.max_offsets_per_trigger
    taken = {name.lower() for name in (*options, *_OWN_NAMES)}
    for name, value in given.option:
        if name.lower() in taken:
            raise OptionError(f"--option {name}={value}: that is for an option of this command to say")
        options[name] = value
    parse_stream_options(options)
    return options


def require_topics(given: argparse.Namespace, *topics: str) -> None:
    """Verifies with the cluster that topics exist, before a JVM is started for them.

    Raises:
        QuorumlogError: the cluster or a topic does not exist.
    """
    from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog

    known = ClusterCatalog(cluster(given), newest=True).describe(topics)
    for topic in topics:
        if topic not in known:
            raise DeliveryError(f"topic {topic!r} does not exist: create it with quorumlog topics create {topic}")


def require_sources(given: argparse.Namespace) -> None:
    """Verifies the topics of a new query.

    A continued query is judged by its checkpoint, which shows whether a topic never existed or was deleted.

    Raises:
        QuorumlogError: the cluster or a topic does not exist.
    """
    if "://" in given.checkpoint or Path(given.checkpoint, "metadata").exists():
        return
    require_topics(given, *(topic.strip() for topic in given.source.split(",") if topic.strip()))


def session(name: str, given: argparse.Namespace) -> SparkSession:
    """Returns the session that spark-submit has prepared, otherwise a local one. From then on a signal ends the job.

    Raises:
        SparkMissingError, JavaError: a requirement of Spark is not installed.
        OptionError: --master under spark-submit, which sets it itself.
    """
    _quieten(given.log_level)
    made = _session(name, given)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    return made


def _session(name: str, given: argparse.Namespace) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = {setting.replace(".", "__"): value for setting, value in given.conf}
        return local_session(name, given.master or "local[*]", log_level=given.log_level, **conf)
    if given.master is not None:
        raise OptionError("--master is spark-submit's: give it before the file's name")
    from pyspark.sql import SparkSession

    from quorumlog.sdk.spark.source import QuorumlogDataSource

    builder = SparkSession.builder.appName(name)
    # Days and times in results are in UTC, wherever the job runs.
    for setting, value in ({"spark.sql.session.timeZone": "UTC"} | dict(given.conf)).items():
        builder = builder.config(setting, value)
    prepared = builder.getOrCreate()
    # At Spark's own level, its log would hide the progress.
    prepared.sparkContext.setLogLevel(given.log_level.upper())
    prepared.dataSource.register(QuorumlogDataSource)
    return prepared


def _stop(*_: object) -> NoReturn:
    """Ends the job at the first signal; the JVM ends with this process, and everything that it runs.

    Spark's own handler would call the JVM on a connection that is in use, and py4j logs a traceback, or waits
    permanently.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def _quieten(log_level: str) -> None:
    """Silences errors that PySpark logs in addition to raising them, with the JVM's stack, at any log level of
    Spark."""
    from pyspark.logger import PySparkLogger

    if log_level == "off":
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def read_stream(spark: SparkSession, options: Mapping[str, str], columns: str) -> DataFrame:
    """Returns the topics as a stream of exactly the columns that the pipeline needs."""
    # Folders of days and times in results must not depend on the machine or settings of a restarted query.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark.readStream.format("quorumlog").schema(columns).options(**options).load()


def say(line: str) -> None:
    """Prints a line of progress."""
    print(line, file=sys.stderr, flush=True)


class StopSignal:
    """Detects SIGINT and SIGTERM, once a query can be stopped."""

    def __init__(self) -> None:
        self._received = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._received.set())

    def __bool__(self) -> bool:
        return self._received.is_set()


@dataclass(slots=True)
class QueryProgress:
    """Progress of a query in this run."""

    batches: int = 0
    records: int = 0
    late: int = 0
    ends: dict[str, Any] = field(default_factory=dict)
    last_batch: int = -1

    def add(self, report: Mapping[str, Any]) -> None:
        """Adds the report of a micro-batch and prints its line."""
        if report["batchId"] <= self.last_batch or "addBatch" not in report["durationMs"]:
            return
        self.last_batch = report["batchId"]
        self.batches += 1
        self.records += report["numInputRows"]
        for source in report["sources"]:
            self.ends |= _offsets(source["endOffset"])
        seconds = report["durationMs"]["triggerExecution"] / 1000
        watermark = report.get("eventTime", {}).get("watermark")
        kept = sum(operator["numRowsTotal"] for operator in report.get("stateOperators", ()))
        late = sum(operator["numRowsDroppedByWatermark"] for operator in report.get("stateOperators", ()))
        self.late += late
        say(
            f"micro-batch {self.last_batch}: {report['numInputRows']:,} records in {seconds:.1f} s,"
            f" up to {json.dumps(self.ends)}"
            + (f", watermark {watermark}, {kept:,} windows open" if watermark else "")
            + (f", {late:,} too late" if late else "")
        )


def _offsets(end: Any) -> dict[str, Any]:
    """Returns topics and offsets from a report's text or object."""
    parsed = json.loads(end) if isinstance(end, str) else end
    return {name: value for name, value in (parsed or {}).items() if not name.startswith("$")}


def run_stream(
    name: str, spark: SparkSession, writer: DataStreamWriter, given: argparse.Namespace, *, is_new: bool
) -> str:
    """Runs a query to its end or until a signal, with a line for each micro-batch.

    Arguments:
        is_new: True if its checkpoint is new.

    Returns:
        The summary.

    Raises:
        pyspark.errors.PySparkException: the query has failed.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    reports: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            reports.put(event.progress.json)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            reports.put(None)

    say(f"{name}: {'a new query' if is_new else f'continues from the checkpoint in {given.checkpoint}'}")
    stop, began, progress = StopSignal(), time.monotonic(), QueryProgress()
    listener = Listener()
    spark.streams.addListener(listener)
    writer = writer.queryName(name).option("checkpointLocation", given.checkpoint)
    if given.until_now:
        writer = writer.trigger(availableNow=True)
    elif given.trigger is not None:
        writer = writer.trigger(processingTime=given.trigger)
    query = writer.start()
    is_stopping = False
    while True:
        try:
            report = reports.get(timeout=_LIVENESS_S)
        except queue.Empty:
            report = "" if query.isActive else None
        if report is None:
            break
        if report:
            progress.add(json.loads(report))
        if stop and not is_stopping:
            is_stopping = True
            query.stop()
    query.awaitTermination()
    spark.streams.removeListener(listener)
    return (
        f"{name}: {'stopped' if is_stopping else 'done'}, {progress.records:,} records in {progress.batches:,}"
        f" micro-batches and {time.monotonic() - began:.1f} s"
        + (f", {progress.late:,} figures of late records left out" if progress.late else "")
        + (f"; the next run continues at {json.dumps(progress.ends)}" if progress.ends else "")
    )


def run(name: str, job: Callable[[], str]) -> int:
    """Runs a job and prints its summary; returns the exit status, and prints one line if the job has failed."""
    try:
        require_pyspark()
        print(job(), flush=True)
        return 0
    except OptionError as error:
        say(f"{name}: {error.message} (--help shows how)")
        return WRONG_USAGE
    except QuorumlogError as error:
        say(f"{name}: {error.message}")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        say(f"{name}: stopped before it had started")
    except Exception as error:
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.errors import PySparkException

        if isinstance(error, (Py4JNetworkError, ConnectionError)):
            say(f"{name}: Spark's JVM has exited, killed or out of memory: run it again, it will continue there")
        elif isinstance(error, (PySparkException, Py4JError, OSError)):
            say(f"{name}: {one_line(str(error))}")
        else:
            raise
    return FAILURE


def one_line(text: str) -> str:
    """Returns the essential line of Spark's error messages."""
    ours = _OURS.findall(text)
    two = None if ours else _TWO_AT_ONCE.search(text)
    if two is not None:
        met = two[0][:_MAX_LINE]
        return f"another run seems to use the same checkpoint: have one at a time, or give this one another ({met})"
    lines = [line.strip(" \t:") for line in text.splitlines() if line.strip(" \t:")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]
    theirs = _THEIR_CLASS.sub("", lines[0]) if lines else "Spark has failed without a word"
    return (ours[-1] if ours else theirs)[:_MAX_LINE]
