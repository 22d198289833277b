"""``quorumlog console``: serves the web console of a cluster until Ctrl-C."""

from __future__ import annotations

import dataclasses
import re
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    NodeSettings,
    Output,
    OutputFormat,
    client_options,
    node_settings,
)
from quorumlog.cli.rendering import print_json

EXAMPLE = "Example: quorumlog console --open"
DEFAULT_LISTEN = "127.0.0.1:19080"
NEEDED = ("starlette", "uvicorn")
#: Nodes of a playground: enough to tolerate the loss of one.
DEFAULT_NODES = 3

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_ADDRESS = re.compile(rf"({_HOST.pattern}):([0-9]{{1,5}})")


def console(
    *,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Address to serve the page on; port 0 chooses a free one."),
    ] = DEFAULT_LISTEN,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="HOST[:PORT]", help="Another name by which browsers reach it, such as a proxy's."
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Serve other machines unencrypted: the token is readable on the network."),
    ] = False,
    playground: Annotated[
        bool,
        typer.Option(
            "--playground",
            help="Start a demo cluster with live traffic; kill its nodes from the page. It is deleted"
            " when the console ends.",
        ),
    ] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, max=9, show_default="3", help="Number of nodes of the playground.")
    ] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Serve Kafka clients too, on the playground's nodes.")] = False,
    settings: NodeSettings = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Allow sending records, and changes to topics, settings, groups, ACLs and users, as permitted.",
        ),
    ] = False,
    hide_values: Annotated[
        bool, typer.Option("--hide-values", help="Hide values and headers; filter by key only.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Serves a page that shows the cluster live, and prints its address. The console is read-only without
    --allow-changes.

    The address contains a token that grants access. Ctrl-C stops the console.
    """
    if missing := [module for module in NEEDED if find_spec(module) is None]:
        raise CommandError(f"{missing[0]} is not installed: pip install 'quorumlog[console]'")
    import asyncio

    from quorumlog.console.process import CannotListenError, ConsoleOptions, is_loopback, serve
    from quorumlog.sdk.runtime.security import SecurityOptions

    chosen = node_settings(settings)
    if not playground and (kafka or nodes is not None or chosen):
        option = "--kafka" if kafka else "--set" if chosen else "--nodes"
        raise CommandError(f"{option} applies to a playground only: add --playground", WRONG_USAGE)
    host, port = _parsed(listen)
    if not is_loopback(host) and not insecure:
        raise CommandError(
            f"--listen {listen} is reachable from other machines, and the page is not encrypted: add --insecure, or"
            " listen on 127.0.0.1 and use a tunnel",
            WRONG_USAGE,
        )
    for each in name or ():
        if not _HOST.fullmatch(each) and not _ADDRESS.fullmatch(each):
            raise CommandError(f"--name '{each}' is not a host name, such as console.example.com", WRONG_USAGE)

    def announce(url: str, kafka_servers: str = "") -> None:
        if output is OutputFormat.JSON:
            print_json({"url": url, **({"kafka_bootstrap_servers": kafka_servers} if kafka_servers else {})})
        else:
            fate = "stop it and the cluster" if playground else "stop it; the cluster keeps running"
            served = f"\nKafka clients: bootstrap.servers={kafka_servers}" if kafka_servers else ""
            print(f"The console is at {url}{served}\nPress Ctrl-C to {fate}.")
        sys.stdout.flush()
        if open_browser:
            import webbrowser

            webbrowser.open(url)

    options = ConsoleOptions(
        bootstrap_servers,
        host,
        port,
        tuple(name or ()),
        hide_values,
        allow_changes or playground,
        SecurityOptions() if playground else client_options(),
    )
    try:
        if playground:
            from quorumlog.cli.playground import playground_nodes

            with playground_nodes(nodes or DEFAULT_NODES, kafka=kafka, settings=chosen) as controls:
                own = dataclasses.replace(options, bootstrap_servers=controls.bootstrap_servers)
                asyncio.run(serve(own, lambda url: announce(url, controls.kafka_bootstrap_servers), controls))
        else:
            asyncio.run(serve(options, announce))
    except CannotListenError as error:
        raise CommandError(
            f"cannot listen on {listen}: {error}; give another address with --listen, or port 0 for any free one"
        ) from None


def _parsed(listen: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(listen)
    if match is None or int(match[2]) > 65_535:
        raise CommandError(f"--listen '{listen}' is not HOST:PORT, such as {DEFAULT_LISTEN}", WRONG_USAGE)
    return match[1], int(match[2])
