"""``python -m bench kafka-port``: what the port for Kafka's clients costs beside the SDK's own way.

Both sides of a pair run on the same three nodes with as many records of 100 B, one right after the other, and another
side is first each time. New topics in each repetition.

- Produce: librdkafka's ``produce_batch`` beside ``send_arrow``.
- Consume: librdkafka beside ``poll_arrow``, of what librdkafka and what the SDK has written.
- The same without any client library, ready-made batches in and bytes out, one fetch at a time: the port beside gRPC.
- ``poll_arrow`` of what Kafka's clients have written, in batches of 1,200 and of 140 records, beside what the SDK has.
- The leader's CPU for a batch of 1,200 records, kept as it came, beside one of the SDK's: ready-made batches, without
  any client library.
- 1,000 connections on which nothing happens.
- A fetch of 1,000 partitions with nothing new, incremental beside full, on a node by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import shlex
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figures
from bench.job import JobError, run_job
from bench.kafka_port.jobs import PortJobError, run_port_job
from bench.measurements import RECORD_BYTES
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from bench.process_cost import cpu_seconds, watch
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.primitives import encode
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.local import ClusterError, LocalCluster

LARGE, SMALL = 1_200, 140
#: An entry of the SDK's with so many records takes about as many bytes as a Kafka batch.
_BYTES_PER_RECORD = RECORD_BYTES + 8
_WINDOW = 16
CONNECTIONS, IDLE_PARTITIONS = 1_000, 1_000
_WATCH_S = 10.0
_LEADERS_WITHIN_S = 60.0


#: Puts a load on the nodes.
Side = Callable[[], Figures]


class UnreadyPortError(Exception):
    """A cluster did not come to what is to be measured. The message is one line."""


@dataclass(slots=True)
class Budget:
    """A figure of two sides, pairwise: the n-th of each was measured right after the other.

    Arguments:
        what, unit: of the figure.
        target: what the median of the ratios, the port's side to the other, ought to be; None: no ratio is asked for.
        is_most: the target is the most that it may be.
        is_difference: what one side is more than the other stands for the ratio.
    """

    what: str
    unit: str
    target: float | None = None
    is_most: bool = False
    is_difference: bool = False
    port: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Of each pair, the port's side to the other."""
        pairs = zip(self.port, self.beside, strict=True)
        return [port - beside if self.is_difference else port / beside for port, beside in pairs]

    @property
    def met(self) -> bool | None:
        """Whether the median of the ratios is what it ought to be; None without a target."""
        if self.target is None:
            return None
        ratio = statistics.median(self.ratios)
        return ratio <= self.target if self.is_most else ratio >= self.target


def budgets() -> dict[str, Budget]:
    """All of them, by the names that ``_measured`` has for them."""
    return {
        "produce": Budget("produce, librdkafka / send_arrow", "k records/s", 0.8),
        "consume": Budget("consume, librdkafka / poll_arrow", "k records/s", 0.8),
        "translated": Budget("consume what the SDK wrote, librdkafka / poll_arrow", "k records/s", 0.25),
        "raw in": Budget(f"ready-made batches of {LARGE:,} in, the port / gRPC", "k records/s", 0.8),
        "raw out": Budget("bytes out, the port / gRPC", "k records/s", 0.8),
        "large": Budget(f"poll_arrow, Kafka's batches of {LARGE:,} / the SDK's", "k records/s", 0.4),
        "small": Budget(f"poll_arrow, Kafka's batches of {SMALL} / the SDK's", "k records/s", 0.4),
        "cpu": Budget(f"leader's CPU, a kept batch of {LARGE:,} / one of the SDK's", "µs", 1.4, is_most=True),
        "idle": Budget(
            f"{CONNECTIONS:,} idle connections, and what they are more than none",
            "% of a core",
            2.0,
            is_most=True,
            is_difference=True,
        ),
        "session": Budget(f"fetch of {IDLE_PARTITIONS:,} idle partitions, incremental / full", "µs of CPU"),
    }


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    given = _parser().parse_args(arguments)
    console = result_console()
    given.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        measured = _measured(given, console)
    except (JobError, PortJobError, ClusterError, QuorumlogError, UnreadyPortError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(console, measured, given.repetitions)
    if given.json is not None:
        _write(given.json, shlex.join(["python", "-m", "bench", "kafka-port", *arguments]), measured)
        console.print(f"written to {given.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench kafka-port", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="how often everything is measured; 5")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amounts of data")
    add_json(parser)
    add_work_dir(parser)
    return parser


@contextlib.contextmanager
def _nodes(work_dir: Path, count: int) -> Iterator[LocalCluster]:
    directory = Path(tempfile.mkdtemp(prefix="kafka-port-", dir=work_dir))
    settings = {"kafka_max_connections_per_ip": str(2 * CONNECTIONS), "max_connections": str(2 * CONNECTIONS)}
    try:
        with LocalCluster(nodes=count, data_dir=directory, kafka=True, settings=settings) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measured(given: argparse.Namespace, console: Console) -> dict[str, Budget]:
    found = budgets()
    records = int(600_000 * given.scale)
    with _nodes(given.work_dir, 3) as cluster:
        nodes = _MeasuredNodes(cluster)
        for repetition in range(given.repetitions):
            console.print(f"repetition {repetition + 1} of {given.repetitions}", style="dim")
            _measure_records(nodes, found, repetition, records)
        for _ in range(given.repetitions):
            found["idle"].beside.append(nodes.busiest_percent())
            with _connections(nodes.port(1)):
                found["idle"].port.append(nodes.busiest_percent())
    with _nodes(given.work_dir, 1) as cluster:
        _measure_sessions(_MeasuredNodes(cluster), found["session"], given.repetitions, max(50, int(400 * given.scale)))
    return found


def _measure_records(nodes: _MeasuredNodes, found: dict[str, Budget], repetition: int, records: int) -> None:
    is_first = repetition % 2 == 0
    sdk, kafka, large, small, cpu = (f"{name}-{repetition}" for name in ("sdk", "kafka", "large", "small", "cpu"))
    nodes.create((sdk, kafka, large, small, cpu))
    Turns(found["produce"], is_first).take(
        lambda: run_port_job("produce", servers=nodes.kafka, topic=kafka, size=RECORD_BYTES, count=records),
        lambda: run_job("produce-arrow", bootstrap=nodes.own, topic=sdk, size=RECORD_BYTES, count=records),
    )
    for topic, size in ((large, LARGE), (small, SMALL)):
        nodes.produce_batches(topic, size, records // size)

    def poll(topic: str, count: int) -> Figures:
        return run_job(
            "consume", bootstrap=nodes.own, topic=topic, partitions=1, size=RECORD_BYTES, count=count, arrow=True
        )

    def consume(topic: str) -> Figures:
        return run_port_job("consume", servers=nodes.kafka, topic=topic, size=RECORD_BYTES, count=records)

    Turns(found["consume"], is_first).take(lambda: consume(kafka), lambda: poll(sdk, records))
    Turns(found["translated"], is_first).take(lambda: consume(sdk), lambda: poll(sdk, records))
    for name, topic, size in (("large", large, LARGE), ("small", small, SMALL)):
        count = records // size * size
        Turns(found[name], is_first).take(partial(poll, topic, count), partial(poll, sdk, records))
    raw = {"size": RECORD_BYTES, "count": records // LARGE * LARGE}
    Turns(found["raw out"], is_first).take(
        lambda: run_port_job("fetch", address=nodes.leaders_port(large), topic=large, **raw),
        lambda: run_port_job("fetch-by-grpc", bootstrap=nodes.own, topic=large, **raw),
    )
    batches = max(50, records // LARGE)
    size = LARGE * _BYTES_PER_RECORD

    def in_by_port() -> Figures:
        used, figures = nodes.leaders_cpu_us(cpu, lambda: nodes.produce_batches(cpu, LARGE, batches), batches)
        found["cpu"].port.append(used)
        return figures

    def in_by_grpc() -> Figures:
        def load() -> Figures:
            return run_job("raw-produce", bootstrap=nodes.own, topic=cpu, size=size, count=batches, window=_WINDOW)

        used, figures = nodes.leaders_cpu_us(cpu, load, batches)
        found["cpu"].beside.append(used)
        return Figures(figures.seconds, batches * LARGE, figures.payload_bytes)

    Turns(found["raw in"], is_first).take(in_by_port, in_by_grpc)


def _measure_sessions(nodes: _MeasuredNodes, budget: Budget, repetitions: int, count: int) -> None:
    nodes.create(("idle",), IDLE_PARTITIONS)
    for repetition in range(repetitions):
        for in_session in (True, False) if repetition % 2 else (False, True):
            asked = count if not in_session else 10 * count
            used, _ = nodes.leaders_cpu_us("idle", partial(nodes.fetch_idle, in_session, asked), asked)
            (budget.port if in_session else budget.beside).append(used)


class Turns:
    """Runs the two sides of a budget one right after the other.

    Arguments:
        is_first: whether the port's side goes first.
    """

    def __init__(self, budget: Budget, is_first: bool) -> None:
        self._budget = budget
        self._is_first = is_first

    def take(self, port: Side, beside: Side) -> None:
        """Measures both, in thousands of records a second."""
        sides = ((port, self._budget.port), (beside, self._budget.beside))
        for measure, into in sides if self._is_first else reversed(sides):
            into.append(measure().operations_per_second / 1_000)


class _MeasuredNodes:
    """The nodes that are measured."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.own = cluster.bootstrap_servers
        self.kafka = cluster.kafka_bootstrap_servers

    def port(self, node: int) -> str:
        """Where a node serves Kafka's clients."""
        return dict(zip(self._cluster.node_ids, self.kafka.split(","), strict=True))[node]

    def create(self, topics: tuple[str, ...], partitions: int = 1) -> None:
        """Makes topics, and waits for their leaders."""
        factor = min(3, len(self._cluster.node_ids))
        with Admin(bootstrap_servers=self.own) as admin:
            admin.create_topics([NewTopic(topic, partitions, factor) for topic in topics])
            deadline = time.monotonic() + _LEADERS_WITHIN_S
            while any(
                each.leader is None or each.leader < 0
                for topic in admin.describe_topics(list(topics))
                for each in topic.partitions
            ):
                if time.monotonic() > deadline:
                    raise UnreadyPortError("not every partition has a leader after a minute")
                time.sleep(0.1)

    def _leader(self, topic: str) -> int:
        leader = self._cluster.leader(topic, 0)
        if leader is None:
            raise UnreadyPortError(f"{topic}-0 has no leader")
        return leader

    def produce_batches(self, topic: str, records: int, count: int) -> Figures:
        """Ready-made batches, as a Kafka client writes them."""
        return run_port_job(
            "produce-batches", address=self.leaders_port(topic), topic=topic, records=records, size=RECORD_BYTES,
            count=count, window=_WINDOW,
        )  # fmt: skip

    def fetch_idle(self, in_session: bool, count: int) -> Figures:
        """Fetches of a topic with nothing in it."""
        return run_port_job(
            "fetch-idle", address=self.port(1), topics=["idle"], partitions=IDLE_PARTITIONS, count=count,
            in_session=in_session,
        )  # fmt: skip

    def leaders_port(self, topic: str) -> str:
        """Where the leader serves Kafka's clients."""
        return self.port(self._leader(topic))

    def leaders_cpu_us(self, topic: str, load: Side, count: int) -> tuple[float, Figures]:
        """CPU of the leader's process for each of so many things, over a load, and what that comes to."""
        pid = self._cluster.pid(self._leader(topic))
        assert pid is not None
        began = cpu_seconds(pid)
        figures = load()
        return 1e6 * (cpu_seconds(pid) - began) / count, figures

    def busiest_percent(self) -> float:
        """Of a core: what the first node takes while nothing is asked of it."""
        pid = self._cluster.pid(1)
        assert pid is not None
        return watch([pid], _WATCH_S).cpu_percent[0]


@contextlib.contextmanager
def _connections(address: str) -> Iterator[None]:
    """So many connections that have asked for the versions, as all clients do, and then for nothing."""
    host, _, port = address.rpartition(":")
    header = pack_request_header(RequestHead(ApiVersionsRequest.API_KEY, 0, 1), "idle", flexible=False)
    asked = b"".join((header, *encode(ApiVersionsRequest(), 0)))
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            connection = opened.enter_context(socket.create_connection((host, int(port)), timeout=10))
            connection.sendall(struct.pack(">i", len(asked)) + asked)
            if len(connection.recv(4)) < 4:
                raise UnreadyPortError("the port does not take as many connections")
        time.sleep(1.0)
        yield


def show(console: Console, measured: dict[str, Budget], repetitions: int) -> None:
    """Prints the table."""
    table = Table(title=f"medians of {repetitions}", title_justify="left")
    table.add_column("what", overflow="fold")
    for column in ("port", "beside", "ratio", "min-max", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    for budget in measured.values():
        style = {True: "green", False: "yellow", None: ""}[budget.met]
        bound = "" if budget.target is None else f"{'≤' if budget.is_most else '≥'} {budget.target:g}"
        table.add_row(
            f"{budget.what} ({budget.unit})",
            f"{statistics.median(budget.port):,.1f}",
            f"{statistics.median(budget.beside):,.1f}",
            f"{statistics.median(budget.ratios):.2f}",
            f"{min(budget.ratios):.2f}-{max(budget.ratios):.2f}",
            bound,
            style=style,
        )
    console.print(table)


def _write(path: Path, command: str, measured: dict[str, Budget]) -> None:
    report = {
        "command": command,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "budgets": {
            name: {
                "what": each.what, "unit": each.unit, "port": each.port, "beside": each.beside,
                "ratios": each.ratios, "target": each.target, "met": each.met,
            }
            for name, each in measured.items()
        },
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
