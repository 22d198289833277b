"""``python -m bench kafka-port``: the costs of the port for Kafka clients beside the SDK's own protocol.

Both sides of a pair run on the same three nodes with as many records of 100 B, in direct succession, in another order
each time. New topics in each repetition.

- Produce: librdkafka's ``produce_batch`` beside ``send_arrow``.
- Consume: librdkafka beside ``poll_arrow``, for records written by librdkafka and by the SDK.
- The same without any client library, ready-made batches in and bytes out, one fetch at a time: the port beside gRPC.
- ``poll_arrow`` of records written by Kafka's clients, in batches of 1,200 and of 140, beside those of the SDK.
- The leader's CPU for a batch of 1,200 records, kept as received, beside one of the SDK's: ready-made batches, without
  any client library.
- 1,000 idle connections.
- A fetch of 1,000 partitions without news, incremental beside full, on a node of its own.
- With ``--apache``: librdkafka on the port beside librdkafka on three brokers of Apache Kafka.
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
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figures
from bench.job import JobError, run_job
from bench.kafka_port.budget import (
    CONNECTIONS,
    IDLE_PARTITIONS,
    LARGE,
    SMALL,
    Budget,
    Side,
    Turns,
    apache_budgets,
    budgets,
)
from bench.kafka_port.jobs import PortJobError, run_port_job
from bench.measurements import RECORD_BYTES
from bench.options import add_json, add_work_dir
from bench.peers import kafka as apache
from bench.peers.server_processes import PeerError
from bench.printing import result_console
from bench.process_cost import cpu_seconds, watch
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.primitives import encode
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest

#: An entry of the SDK's with as many records has about as many bytes as a Kafka batch.
_BYTES_PER_RECORD = RECORD_BYTES + 8
_WINDOW = 16
_WATCH_S = 10.0
_LEADERS_WITHIN_S = 60.0


class UnreadyPortError(Exception):
    """Raised if a cluster does not reach a measurable state. The message is one line."""


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    console = result_console()
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        measured = _measured(parsed, console)
    except (JobError, PortJobError, ClusterError, PeerError, QuorumlogError, UnreadyPortError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(console, measured, parsed.repetitions)
    if parsed.json is not None:
        _write(parsed.json, shlex.join(["python", "-m", "bench", "kafka-port", *arguments]), measured)
        console.print(f"written to {parsed.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench kafka-port", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="number of repetitions; 5")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the amounts of data")
    parser.add_argument("--apache", action="store_true", help="run the same client on Apache Kafka, too")
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
    found = budgets() | (apache_budgets() if given.apache else {})
    records = int(600_000 * given.scale)
    if given.apache and apache.missing():
        raise UnreadyPortError(f"Apache Kafka requires: {apache.missing()}")
    with _nodes(given.work_dir, 3) as cluster:
        nodes = _MeasuredNodes(cluster)
        for repetition in range(given.repetitions):
            console.print(f"repetition {repetition + 1} of {given.repetitions}", style="dim")
            _measure_records(nodes, found, repetition, records)
        for _ in range(given.repetitions):
            found["idle"].beside.append(nodes.busiest_percent())
            with _connections(nodes.port(1)):
                found["idle"].port.append(nodes.busiest_percent())
        if given.apache:
            # Last: as soon as brokers run, they use a part of the machine.
            with apache.starter({})(given.work_dir) as brokers:
                for repetition in range(given.repetitions):
                    _measure_apache(nodes, brokers.addresses, found, repetition, records)
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


def _measure_apache(
    nodes: _MeasuredNodes, brokers: str, found: dict[str, Budget], repetition: int, records: int
) -> None:
    topic, is_first = f"beside-{repetition}", repetition % 2 == 0
    nodes.create((topic,))
    run_port_job("create", servers=brokers, topic=topic)
    for name, job in (("apache produce", "produce"), ("apache consume", "consume")):
        Turns(found[name], is_first).take(
            *(
                partial(run_port_job, job, servers=servers, topic=topic, size=RECORD_BYTES, count=records)
                for servers in (nodes.kafka, brokers)
            )
        )


def _measure_sessions(nodes: _MeasuredNodes, budget: Budget, repetitions: int, count: int) -> None:
    nodes.create(("idle",), IDLE_PARTITIONS)
    for repetition in range(repetitions):
        for in_session in (True, False) if repetition % 2 else (False, True):
            requests = count if not in_session else 10 * count
            used, _ = nodes.leaders_cpu_us("idle", partial(nodes.fetch_idle, in_session, requests), requests)
            (budget.port if in_session else budget.beside).append(used)


class _MeasuredNodes:
    """The measured nodes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.own = cluster.bootstrap_servers
        self.kafka = cluster.kafka_bootstrap_servers

    def port(self, node: int) -> str:
        """Returns the address of a node for Kafka clients."""
        return dict(zip(self._cluster.node_ids, self.kafka.split(","), strict=True))[node]

    def create(self, topics: tuple[str, ...], partitions: int = 1) -> None:
        """Creates topics, and waits for their leaders."""
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
        """Sends ready-made batches, as a Kafka client writes them."""
        return run_port_job(
            "produce-batches",
            address=self.leaders_port(topic),
            topic=topic,
            records=records,
            size=RECORD_BYTES,
            count=count,
            window=_WINDOW,
        )

    def fetch_idle(self, in_session: bool, count: int) -> Figures:
        """Fetches an empty topic."""
        return run_port_job(
            "fetch-idle",
            address=self.port(1),
            topics=["idle"],
            partitions=IDLE_PARTITIONS,
            count=count,
            in_session=in_session,
        )

    def leaders_port(self, topic: str) -> str:
        """Returns the address of the leader for Kafka clients."""
        return self.port(self._leader(topic))

    def leaders_cpu_us(self, topic: str, load: Side, count: int) -> tuple[float, Figures]:
        """Returns the CPU of the leader's process per item over a load, and the load's figures."""
        pid = self._cluster.pid(self._leader(topic))
        assert pid is not None
        began = cpu_seconds(pid)
        figures = load()
        return 1e6 * (cpu_seconds(pid) - began) / count, figures

    def busiest_percent(self) -> float:
        """Returns the load of the idle first node, in percent of a core."""
        pid = self._cluster.pid(1)
        assert pid is not None
        return watch([pid], _WATCH_S).cpu_percent[0]


@contextlib.contextmanager
def _connections(address: str) -> Iterator[None]:
    """Holds connections that have requested the versions, as all clients do, and then nothing."""
    host, _, port = address.rpartition(":")
    header = pack_request_header(RequestHead(ApiVersionsRequest.API_KEY, 0, 1), "idle", flexible=False)
    request = b"".join((header, *encode(ApiVersionsRequest(), 0)))
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            connection = opened.enter_context(socket.create_connection((host, int(port)), timeout=10))
            connection.sendall(struct.pack(">i", len(request)) + request)
            if len(connection.recv(4)) < 4:
                raise UnreadyPortError("the port does not accept as many connections")
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
                "what": each.what,
                "unit": each.unit,
                "port": each.port,
                "beside": each.beside,
                "ratios": each.ratios,
                "target": each.target,
                "met": each.met,
            }
            for name, each in measured.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
