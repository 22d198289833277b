"""Table of the top-level commands, and the group that imports the module of a command when the command is used.

Importing all commands takes longer than most of them run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperGroup

from quorumlog.cli.boundary import WRONG_USAGE
from quorumlog.cli.suggestions import add_suggestions

if TYPE_CHECKING:
    from typer._click.core import Command, Context  # Typer's own copy of click.
    from typer._click.formatting import HelpFormatter


class Listed(NamedTuple):
    """One top-level command.

    Arguments:
        section: heading of the help under which it is listed.
        name: what is typed.
        place: module below ``quorumlog.cli``, and its ``Typer`` or function.
        summary: its line in the list of commands; for a ``Typer``, also the first line of its own help.
    """

    section: str
    name: str
    place: str
    summary: str


_TABLE = (
    Listed("Data", "produce", "records.produce:produce", "Send lines as records."),
    Listed("Data", "consume", "records.consume:consume", "Print records, from the beginning, an offset or a group."),
    Listed("Data", "explain", "records.explain:explain", "Send one record and show what happened to it, step by step."),
    Listed("Data", "mirror", "mirror:mirror", "Copy topics, records and groups of a Kafka cluster into this one."),
    Listed("Topics", "topics", "topics:app", "Create, list, describe, alter and delete topics."),
    Listed("Topics", "partitions", "partitions:app", "Reassign and rebalance the replicas of partitions."),
    Listed("Topics", "leaders", "leaders:app", "Balance the leaders of partitions over the nodes."),
    Listed("Groups", "groups", "groups:app", "List and describe consumer groups, reset or delete their offsets."),
    Listed("Groups", "producers", "producers:app", "List and delete producer names."),
    Listed("Groups", "transactions", "transactions:app", "List, describe and abort transactions."),
    Listed("Cluster", "cluster", "cluster:app", "Start and stop a local cluster; describe and check any cluster."),
    Listed("Cluster", "node", "node:app", "Start a node of a deployment."),
    Listed("Cluster", "nodes", "nodes:app", "List, drain, replace, remove and configure nodes."),
    Listed("Cluster", "quorum", "quorum:app", "Describe and change the metadata quorum."),
    Listed("Cluster", "features", "health:features", "Describe and upgrade the feature level of the cluster."),
    Listed("Cluster", "backup", "backup.commands:app", "Create, verify and restore backups."),
    Listed("Cluster", "log", "log:app", "Dump and verify the data of a stopped node."),
    Listed(
        "Cluster", "recover", "recovery.commands:app", "Recover after the permanent loss of a majority of replicas."
    ),
    Listed("Security", "users", "users.commands:app", "Create, list and delete users who authenticate by password."),
    Listed("Security", "acls", "acls.commands:app", "Create, list, delete and check access control lists (ACLs)."),
    Listed("Security", "quotas", "users.quotas:app", "Set, list and delete the rate limits of users."),
    Listed("Security", "certs", "certs.commands:app", "Create, show, check and revoke certificates for TLS."),
    Listed("Tools", "console", "console:console", "Show the cluster live in a browser."),
    Listed("Tools", "chaos", "chaos:app", "Inject faults under load, and check every acknowledged record."),
    Listed("Tools", "version", "version:version", "Print the version."),
)
#: The table, by what is typed.
COMMANDS = {entry.name: entry for entry in _TABLE}


#: Length at which a summary is not cut.
_WHOLE = 1_000


class _Group(TyperGroup):
    """A group that prints its help where its command is missing. The help wraps summaries instead of cutting them."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parses what is typed after the name of the group."""
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit(WRONG_USAGE)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Writes the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in self.commands.items()])


class CommandTree(_Group):
    """The top-level group. Its help is made from the table, so that it needs none of the commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _CommandsOnDemand()

    def list_commands(self, ctx: Context) -> list[str]:
        """Returns the names of the commands in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Writes the list of commands, by section."""
        for section in dict.fromkeys(entry.section for entry in _TABLE):
            with formatter.section(section):
                rows = [(entry.name, entry.summary) for entry in _TABLE if entry.section == section]
                formatter.write_dl(rows, col_max=max(map(len, COMMANDS)))


class _CommandsOnDemand(MutableMapping[str, "Command"]):
    """The commands by name. The first look-up of a command imports its module."""

    def __init__(self) -> None:
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = _load(COMMANDS[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("a command cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _load(entry: Listed) -> Command:
    """Imports a command and returns it as it is run: with plain help, strict numbers and suggestions."""
    module_name, attribute = entry.place.split(":")
    module = import_module(f"quorumlog.cli.{module_name}")
    found = getattr(module, attribute)
    parent = typer.Typer(rich_markup_mode=None)
    parent.callback()(_group_only)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, cls=_Group, name=entry.name, help=entry.summary)
    else:
        parent.command(entry.name, epilog=module.EXAMPLE)(found)
    group: Any = typer.main.get_group(parent)
    command: Command = group.commands[entry.name]
    _require_plain_numbers(command)
    _keep_examples_whole(command)
    add_suggestions(command)
    return command


def _group_only() -> None:
    """Makes Typer build a group although it has a single command."""


#: Annotations of numeric options and arguments.
_NUMBERS = (int, float, list[int], list[float])


def _require_plain_numbers(command: Any) -> None:
    """Makes the options and arguments of a command tree reject text that only Python parses as a number, such as
    ``1_000``. Those with a parser of their own, such as ``--throttle 50MB/s``, are not affected.
    """
    for parameter in command.params:
        kind = getattr(parameter, "type_descriptor", None)
        if kind is not None and kind.annotation in _NUMBERS and kind.parameter_info.parser is None:
            is_whole = kind.annotation in (int, list[int])
            parameter.process_value = partial(_in_plain_digits, parameter, parameter.process_value, is_whole)
    for each in getattr(command, "commands", {}).values():
        _require_plain_numbers(each)


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


def _keep_examples_whole(command: Any) -> None:
    """Makes the help print the examples of a command tree in one line each, however narrow the terminal is: a line
    broken by the help could not be copied into a shell.
    """
    if command.epilog:
        command.epilog = f"\b\n{command.epilog}"
    for each in getattr(command, "commands", {}).values():
        _keep_examples_whole(each)
