"""Command line of ``quorumlog``: its global options, and the command tree (``tree.py``) below them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from quorumlog.cli import boundary
from quorumlog.cli.options import file_path, read_command_config
from quorumlog.cli.tree import CommandTree
from quorumlog.pure import version_line

app = typer.Typer(
    name="quorumlog",
    cls=CommandTree,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nStart here: quorumlog cluster up --nodes 3 --data-dir /tmp/quorumlog --detach",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_line())
        raise typer.Exit


@app.callback()
def quorumlog(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="QUORUMLOG_COMMAND_CONFIG",
            metavar="FILE",
            parser=file_path,
            help="Client settings: lines such as security.protocol=SSL, ssl.ca.location=node-ca.crt.",
        ),
    ] = None,
) -> None:
    """A Raft-replicated log store with Kafka's model: no ZooKeeper, no JVM."""
    read_command_config(command_config)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits the process with its status."""
    boundary.say_what_clients_warn_of()
    command = typer.main.get_command(app)
    sys.exit(boundary.run(lambda: command.main(arguments, prog_name="quorumlog", standalone_mode=False)))


if __name__ == "__main__":
    main()
