"""``quorumlog node``: runs one node of a cluster in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorumlog.cli.options import directory_path, file_path

app = typer.Typer()


@app.callback()
def node() -> None:
    """A single node of a cluster."""


@app.command(
    "start",
    epilog="Example: quorumlog node start --node-id 1 --listen 127.0.0.1:19092 --data-dir /var/lib/quorumlog"
    " --controllers 1@127.0.0.1:19092",
)
def start(
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", parser=file_path, help="TOML file with settings; flags override it."),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", help="Id of the node, unique in the cluster; required.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Address for clients and, without TLS, peers; required."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", parser=directory_path, help="Data directory, created if missing; required."
        ),
    ] = None,
    controllers: Annotated[
        str | None,
        typer.Option(
            "--controllers", metavar="ID@HOST:PORT[,…]", help="Nodes that form the cluster and vote; required."
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST:PORT", help="Address that others connect to; by default --listen."),
    ] = None,
    rack: Annotated[
        str | None, typer.Option("--rack", help="Rack of the node; replicas are spread over racks.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="N", help="Nodes that share this machine, or auto; by default 1."),
    ] = None,
    witness_only: Annotated[
        bool, typer.Option("--witness-only", help="Only vote for partitions with two or four copies, and hold none.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without TLS and authentication.")
    ] = False,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            "--metrics-listen",
            metavar="HOST:PORT",
            help="Address of the Prometheus metrics; on loopback, unless --insecure.",
        ),
    ] = None,
) -> None:
    """Runs a node until SIGTERM or Ctrl-C, then hands its leaderships over and stops. No formatting is needed.

    Every flag is also an environment variable (QUORUMLOG_NODE_ID, …) and a key of the file (node_id = …). Flags
    override the environment, which overrides the file. docs/operate/operations.md lists all settings.
    """
    from quorumlog.server.config.settings import SettingsError, load
    from quorumlog.server.process.start_log import StartLog, chosen_format
    from quorumlog.server.process.workers import run_machine

    flags: dict[str, object] = {
        "node_id": node_id,
        "listen": listen,
        "data_dir": data_dir,
        "controllers": controllers,
        "advertise": advertise,
        "rack": rack,
        "workers": workers,
        "witness_only": witness_only or None,
        "insecure": insecure or None,
        "metrics_listen": metrics_listen,
    }
    try:
        settings = load(flags, config)
    except SettingsError as error:
        if chosen_format(flags, config) == "console":
            raise  # Reported as by every other command.
        StartLog("json").error(str(error))
        raise typer.Exit(1) from None
    raise typer.Exit(run_machine(settings))
