"""``quorumlog cluster``: a local cluster of real processes (up, down, status); describe and health are in health.py."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli import health
from quorumlog.cli.boundary import CommandError, say
from quorumlog.cli.options import (
    DEFAULT_BASE_PORT,
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_DATA_DIRECTORY,
    DataDirectory,
    NodeSettings,
    Output,
    OutputFormat,
    node_settings,
)
from quorumlog.cli.progress import waiting
from quorumlog.cli.rendering import plural, print_json, print_table

if TYPE_CHECKING:
    from quorumlog.local import LocalCluster
    from quorumlog.local.cluster import NodeStatus

#: Interval at which a cluster in the foreground checks its processes.
WATCH_INTERVAL_S = 0.2

app = typer.Typer()


@app.command("up", epilog="Example: quorumlog cluster up --nodes 3 --data-dir /tmp/quorumlog --detach")
def up(
    *,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", min=1, max=64, help="Number of node processes; 3 by default.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=64, help="Workers of each node, to use more cores; 1 by default."),
    ] = None,
    data_dir: DataDirectory = DEFAULT_DATA_DIRECTORY,
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            envvar="QUORUMLOG_BASE_PORT",
            min=1,
            max=65_535,
            help=f"Port of node 1; node 2 uses the next one, and so on; {DEFAULT_BASE_PORT} by default.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Keep the nodes running; 'cluster down' stops them.")
    ] = False,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Use mutual TLS; all certificates are created in DIR/certs."),
    ] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Serve Kafka clients too, on a second port of each node.")
    ] = False,
    settings: NodeSettings = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Starts a cluster on this machine and waits until it serves. An existing directory keeps its data, number of
    nodes, ports and settings.

    In the foreground it runs until Ctrl-C; with --detach the nodes keep running after the command.
    """
    chosen = node_settings(settings)
    cluster = _cluster(nodes, data_dir, base_port, chosen, workers=workers, detached=detach, tls=tls, kafka=kafka)
    if detach:
        problem = _start(cluster)
        _print(cluster, output)
        _say_where_kafka_is(cluster, output)
        _say_how_to_go_on(data_dir, cluster, output)
        if problem:
            raise CommandError(problem)
        return
    with _stop_signals() as signals, _running(cluster) as problem:
        _print(cluster, output)
        _say_where_kafka_is(cluster, output)
        if problem:
            say(problem)
        if output is OutputFormat.TABLE:
            print("Press Ctrl-C to stop the cluster; its data is kept.", flush=True)
        while not signals:
            time.sleep(WATCH_INTERVAL_S)
            ended = [node for node in cluster.node_ids if not cluster.is_running(node)]
            if ended:
                raise CommandError(
                    f"node {ended[0]} has exited, so all nodes are stopped; see its log {cluster.log_path(ended[0])}"
                )


@app.command("down", epilog="Example: quorumlog cluster down --data-dir /tmp/quorumlog")
def down(*, data_dir: DataDirectory = DEFAULT_DATA_DIRECTORY, output: Output = OutputFormat.TABLE) -> None:
    """Stops the nodes of a local cluster; its data is kept for the next 'cluster up'."""
    from quorumlog.local import LocalCluster

    cluster = LocalCluster.attach(data_dir)
    running = [node for node in cluster.node_ids if cluster.is_running(node)]
    with waiting(f"stopping {plural(len(running), 'node')}"):
        cluster.shutdown()
    if output is OutputFormat.JSON:
        print_json({"data_dir": str(data_dir), "stopped": running})
    elif running:
        print(f"Stopped {plural(len(running), 'node')}; the data is kept in {data_dir}.")
    else:
        print(f"No node was running; the data is kept in {data_dir}.")


@app.command("status", epilog="Example: quorumlog cluster status --data-dir /tmp/quorumlog --output json")
def status(*, data_dir: DataDirectory = DEFAULT_DATA_DIRECTORY, output: Output = OutputFormat.TABLE) -> None:
    """Shows the processes of a local cluster: state, address and log file."""
    from quorumlog.local import LocalCluster

    _print(LocalCluster.attach(data_dir), output)


def _cluster(
    nodes: int | None,
    data_dir: Path,
    base_port: int | None,
    settings: dict[str, str],
    *,
    workers: int | None,
    detached: bool,
    tls: bool,
    kafka: bool,
) -> LocalCluster:
    """Returns the cluster of a directory: an existing one keeps its size and port unless others are given."""
    from quorumlog.local import LocalCluster
    from quorumlog.local.state import FILE_NAME

    if (data_dir / FILE_NAME).exists():
        known = LocalCluster.attach(data_dir)
        nodes = len(known.node_ids) if nodes is None else nodes
        workers = known.workers if workers is None else workers
    else:
        base_port = DEFAULT_BASE_PORT if base_port is None else base_port
    return LocalCluster(
        3 if nodes is None else nodes,
        workers=1 if workers is None else workers,
        data_dir=data_dir,
        base_port=base_port,
        settings=settings,
        detached=detached,
        tls=tls,
        kafka=kafka,
    )


def _start(cluster: LocalCluster) -> str:
    """Starts the nodes; returns why not all of them serve, if they keep running, otherwise an empty string."""
    from quorumlog.local import NodesSlowError, NodeWaitsError

    try:
        with waiting("starting the nodes"):
            cluster.up()
    except NodeWaitsError as lacking:
        return str(lacking)
    except NodesSlowError as slow:
        look = f"quorumlog cluster status --data-dir {shlex.quote(str(cluster.root))}"
        return f"{slow}; all nodes keep running: {look} shows when it is ready"
    return ""


@contextmanager
def _running(cluster: LocalCluster) -> Iterator[str]:
    try:
        yield _start(cluster)
    finally:
        with waiting("stopping"):
            cluster.shutdown()


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Yields a list that SIGINT and SIGTERM append to: both are the regular way to stop a cluster in the foreground."""
    # Not a threading.Event: the handler interrupts this very thread, and set() waits for the lock that wait() holds.
    received: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(cluster: LocalCluster, output: OutputFormat) -> None:
    states = cluster.status()
    if output is OutputFormat.JSON:
        nodes = [
            {
                "node_id": state.node_id,
                "address": state.address,
                "pid": state.pid,
                "running": state.running,
                "ready": state.ready,
                "reason": state.reason,
                "data_dir": str(cluster.data_dir(state.node_id)),
                "log": str(cluster.log_path(state.node_id)),
            }
            for state in states
        ]
        served = {"bootstrap_servers": cluster.bootstrap_servers}
        if cluster.kafka_bootstrap_servers:
            served["kafka_bootstrap_servers"] = cluster.kafka_bootstrap_servers
        print_json({**served, "nodes": nodes})
        return
    print_table(
        ("Node", "Process", "Address", "State", "Log"),
        (
            (
                state.node_id,
                state.pid or "-",
                state.address,
                _state(state),
                cluster.log_path(state.node_id),
            )
            for state in states
        ),
    )


def _say_where_kafka_is(cluster: LocalCluster, output: OutputFormat) -> None:
    if cluster.kafka_bootstrap_servers and output is OutputFormat.TABLE:
        print(f"Kafka clients: bootstrap.servers={cluster.kafka_bootstrap_servers}", flush=True)


def _state(state: NodeStatus) -> str:
    if not state.running:
        return "stopped"
    if not state.ready:
        return f"not serving: {state.reason}"
    return f"serving, but {state.reason}" if state.reason else "serving"


def _say_how_to_go_on(data_dir: Path, cluster: LocalCluster, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        return
    if cluster.certificates is not None:
        print(f"export QUORUMLOG_COMMAND_CONFIG={cluster.certificates.properties}  # TLS settings for other commands")
    if cluster.bootstrap_servers != DEFAULT_BOOTSTRAP_SERVERS:  # With several, commands also work when node 1 is down.
        print(f"export QUORUMLOG_BOOTSTRAP_SERVERS={cluster.bootstrap_servers}  # for other commands")
    print(f"quorumlog cluster down --data-dir {shlex.quote(str(data_dir))}  # stops the cluster")


app.command("describe", epilog=health.DESCRIBE_EXAMPLE)(health.describe)
app.command("health", epilog=health.HEALTH_EXAMPLE)(health.health)
