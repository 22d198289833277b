"""Command tree of ``quorumlog``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from quorumlog.cli import (
    boundary,
    chaos,
    cluster,
    console,
    groups,
    health,
    leaders,
    log,
    mirror,
    node,
    nodes,
    partitions,
    producers,
    quorum,
    topics,
)
from quorumlog.cli.acls import commands as acls
from quorumlog.cli.backup import commands as backup
from quorumlog.cli.certs import commands as certs
from quorumlog.cli.options import file_path, read_command_config
from quorumlog.cli.records import consume, explain, produce
from quorumlog.cli.recovery import commands as recovery
from quorumlog.cli.suggestions import add_suggestions
from quorumlog.cli.users import commands as users
from quorumlog.cli.users import quotas

#: Annotations of numeric options and arguments.
_NUMBERS = (int, float, list[int], list[float])

app = typer.Typer(
    name="quorumlog",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here: quorumlog cluster up --nodes 3 --data-dir /tmp/quorumlog --detach",
)
app.add_typer(node.app, name="node")
cluster.app.command("describe", epilog=health.DESCRIBE_EXAMPLE)(health.describe)
cluster.app.command("health", epilog=health.HEALTH_EXAMPLE)(health.health)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(partitions.app, name="partitions")
app.add_typer(leaders.app, name="leaders")
app.command("produce", epilog=produce.EXAMPLE)(produce.produce)
app.command("explain", epilog=explain.EXAMPLE)(explain.explain)
app.command("consume", epilog=consume.EXAMPLE)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(producers.app, name="producers")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(quotas.app, name="quotas")
app.add_typer(log.app, name="log")
app.add_typer(nodes.app, name="nodes")
app.add_typer(quorum.app, name="quorum")
app.add_typer(backup.app, name="backup")
app.add_typer(recovery.app, name="recover")
app.add_typer(health.features, name="features")
app.add_typer(certs.app, name="certs")
app.add_typer(chaos.app, name="chaos")
app.command("mirror", epilog=mirror.EXAMPLE)(mirror.mirror)
app.command("console", epilog=console.EXAMPLE)(console.console)


@app.command("version", epilog="Example: quorumlog version")
def print_version() -> None:
    """Prints the version, like --version."""
    from importlib.metadata import version

    from quorumlog.pure import is_compiled

    print(f"quorumlog {version('quorumlog')} ({'compiled' if is_compiled() else 'pure Python'})")


def _print_version(wanted: bool) -> None:
    if wanted:
        print_version()
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


def _refuse_odd_numbers(command: Any) -> None:
    """Makes the options and arguments of a command tree reject text that only Python parses as a number, such as
    ``1_000``. Those with a parser of their own, such as ``--throttle 50MB/s``, are not affected.
    """
    for parameter in command.params:
        kind = getattr(parameter, "type_descriptor", None)
        if kind is not None and kind.annotation in _NUMBERS and kind.parameter_info.parser is None:
            is_whole = kind.annotation in (int, list[int])
            parameter.process_value = partial(_in_plain_digits, parameter, parameter.process_value, is_whole)
    for each in getattr(command, "commands", {}).values():
        _refuse_odd_numbers(each)


def _in_plain_digits(
    parameter: Any, process: Callable[[Any, Any], object], is_whole: bool, context: Any, value: Any
) -> object:
    from quorumlog.server.config.plain_numbers import parse_decimal, parse_integer

    for text in value if isinstance(value, list | tuple) else (value,):
        if isinstance(text, str):
            try:
                (parse_integer if is_whole else parse_decimal)(text)
            except ValueError as problem:
                raise typer.BadParameter(f"{text!r} is {problem}", ctx=context, param=parameter) from None
    return process(context, value)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits the process with its status."""
    boundary.say_what_clients_warn_of()
    command = typer.main.get_command(app)
    _refuse_odd_numbers(command)
    add_suggestions(command)
    sys.exit(boundary.run(lambda: command.main(arguments, prog_name="quorumlog", standalone_mode=False)))


if __name__ == "__main__":
    main()
