"""Options shared by several commands, and the parsing of their values."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, os_problem

if TYPE_CHECKING:
    from quorumlog.sdk import Admin
    from quorumlog.sdk.runtime.security import SecurityOptions

DEFAULT_BASE_PORT = 19092
DEFAULT_BOOTSTRAP_SERVERS = f"127.0.0.1:{DEFAULT_BASE_PORT}"
#: Time limit for completing a name (ms): a user would not wait longer.
COMPLETED_WITHIN_MS = 500
DEFAULT_DATA_DIRECTORY = Path("quorumlog-data")


class OutputFormat(Enum):
    """Output format of a command."""

    TABLE = "table"
    JSON = "json"


def path(text: str) -> Path:
    """Returns the given path; rejects an empty one, for example from an unset variable, which would mean the current
    directory.
    """
    if not text:
        raise typer.BadParameter("it is empty; use '.' for the current directory")
    return Path(text)


def file_path(text: str) -> Path:
    """Returns the path of a file, which may be missing."""
    if os.path.isdir(text):
        raise typer.BadParameter(f"'{text}' is a directory; give a file")
    return path(text)


def directory_path(text: str) -> Path:
    """Returns the path of a directory, which may be missing."""
    if os.path.isfile(text):
        raise typer.BadParameter(f"'{text}' is a file; give a directory")
    return path(text)


BootstrapServers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="QUORUMLOG_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT[,…]",
        help="Nodes to contact first; any node of the cluster works.",
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Linearizable = Annotated[
    bool, typer.Option("--linearizable", help="Read the latest state: the node first checks with the controller.")
]
NodeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Setting of every node (see docs/operate/operations.md); repeatable.",
        show_default=False,
    ),
]


def node_settings(pairs: list[str] | None) -> dict[str, str]:
    """Returns the settings of ``--set KEY=VALUE``, by name.

    Raises:
        CommandError: one has another form, or is given twice.
    """
    settings: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise CommandError(f"--set '{pair}' is not KEY=VALUE, such as --set log_level=debug", WRONG_USAGE)
        if name in settings:
            raise CommandError(f"--set {name} is given twice: give it once", WRONG_USAGE)
        settings[name] = value
    return settings


DataDirectory = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", parser=directory_path, help="Directory of the nodes' data.")
]


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)\s*([KMG]?i?B)?(?:/s)?", re.IGNORECASE)


def bytes_per_second(text: str) -> int:
    """Parses a rate such as ``50MB/s``, ``800KiB`` or ``50000000``, in bytes per second."""
    match = _RATE.fullmatch(text.strip())
    rate = int(float(match[1]) * _UNITS[(match[2] or "").upper()]) if match is not None else 0
    if not rate:
        raise typer.BadParameter(f"'{text}' is not a rate, such as 50MB/s")
    return rate


Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        parser=bytes_per_second,
        help="Limit for each node that sends moved data, such as 50MB/s; unlimited by default.",
        show_default=False,
    ),
]


#: Connection properties: keyword arguments of clients.
_security: SecurityOptions = {}


def client_options() -> SecurityOptions:
    """Returns the connection settings of ``--command-config``: keyword arguments for every client."""
    return _security


def read_command_config(file: Path | None) -> None:
    """Reads the properties of clients from a file of lines such as ``security.protocol=SSL``.

    Raises:
        CommandError: the file cannot be read, or has an invalid line.
    """
    global _security  # noqa: PLW0603  # once, by the callback before any command
    _security = {}
    if file is None:
        return
    from quorumlog.sdk.runtime.security import PROPERTIES

    for number, key, value in read_properties(file, "--command-config"):
        name = next((option for option, wanted in PROPERTIES.items() if wanted == key), None)
        if value is None or name is None:
            known = ", ".join(PROPERTIES.values())
            raise CommandError(f"{file}, line {number}: expected KEY=VALUE, with a key of {known}", WRONG_USAGE)
        _security[name] = value  # type: ignore[literal-required]  # one of its keys


def read_properties(file: Path, option: str) -> Iterator[tuple[int, str, str | None]]:
    """Yields the lines of a properties file: number, key and value; see ``properties_of``.

    Arguments:
        option: the option that named the file, for messages.

    Raises:
        CommandError: the file cannot be read.
    """
    from quorumlog.sdk.runtime.properties_file import properties_of

    try:
        yield from properties_of(file)
    except (OSError, UnicodeDecodeError) as error:
        reason = os_problem(error) if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"{option}: cannot read {file}: {reason}") from None


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the topic names that complete a word in a shell; none if no node answers at once."""
    from quorumlog.sdk import Admin, QuorumlogError

    path = context.find_root().params.get("command_config") or os.environ.get("QUORUMLOG_COMMAND_CONFIG")
    servers = context.params.get("bootstrap_servers") or os.environ.get("QUORUMLOG_BOOTSTRAP_SERVERS")
    try:
        read_command_config(Path(path) if path else None)
        with Admin(
            bootstrap_servers=servers or DEFAULT_BOOTSTRAP_SERVERS,
            bootstrap_timeout_ms=COMPLETED_WITHIN_MS,
            request_timeout_ms=COMPLETED_WITHIN_MS,
            **client_options(),
        ) as admin:
            return [name for name in admin.list_topics() if name.startswith(incomplete)]
    except (QuorumlogError, CommandError):
        return []


def connect(bootstrap_servers: str) -> Admin:
    """Returns an administration client, for use in a ``with`` block."""
    from quorumlog.sdk import Admin

    return Admin(bootstrap_servers=bootstrap_servers, **client_options())


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Parses ``key=value`` arguments into a mapping.

    Raises:
        CommandError: one has no ``=``, or a key is given twice.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise CommandError(f"--config '{pair}' is not KEY=VALUE, such as retention.ms=86400000", WRONG_USAGE)
        if key in settings:
            raise CommandError(f"--config {key} is given twice; give it once", WRONG_USAGE)
        settings[key] = value
    return settings


def parse_replica_assignments(assignments: list[str]) -> dict[int, list[int]]:
    """Parses arguments such as ``1,2,3``, one per partition, into the nodes of partitions 0, 1, and so on.

    Raises:
        CommandError: one is not a list of node ids.
    """
    parsed: dict[int, list[int]] = {}
    for text in assignments:
        nodes = text.split(",")
        if not all(node.isdecimal() and len(node) < 10 for node in nodes):
            raise CommandError(f"--replica-assignment '{text}' is not a list of node ids, such as 1,2,3", WRONG_USAGE)
        parsed[len(parsed)] = [int(node) for node in nodes]
    return parsed


def read_json(file: Path, form: str) -> Any:
    """Returns the content of a JSON file.

    Arguments:
        form: the expected format, for the error message.

    Raises:
        CommandError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {file}: {os_problem(error)}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{file} is not JSON: {error}; expected {form}", WRONG_USAGE) from None


def unescape(text: str) -> str:
    r"""Returns a separator as typed in a shell: ``\t``, ``\n`` and ``\\`` stand for tab, newline and backslash."""
    return text.replace("\\\\", "\0").replace("\\t", "\t").replace("\\n", "\n").replace("\0", "\\")
