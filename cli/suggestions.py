"""Suggestions for mistyped names: the existing topic, group, user or producer name that is closest."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, client_options

if TYPE_CHECKING:
    from typer._click.core import Command  # Typer's own copy of click.

    from quorumlog.sdk import Admin

#: The lookup of existing names may take this long; after that the error is printed without a suggestion.
_LOOKUP_TIMEOUT_MS = 2_000


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most like the given one, ignoring case; None if none is close."""
    by_lower_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns the question that ends an error about an unknown name, or ``otherwise`` if no known name is close."""
    close = closest(name, known)
    return otherwise if close is None else f"did you mean '{close}'?"


def add_suggestions(command: Command) -> None:
    """Adds a suggestion to the error of every command below this one if a name in its arguments is unknown to the
    cluster. For that the existing names are listed once.
    """
    for below in getattr(command, "commands", {}).values():
        add_suggestions(below)
    if command.callback is not None and not hasattr(command, "commands"):
        command.callback = _with_suggestions(command.callback)


def _with_suggestions(callback: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(callback)
    def call(**arguments: Any) -> object:
        try:
            return callback(**arguments)
        except Exception as error:
            if (better := _suggestion(error, arguments)) is not None:
                raise CommandError(better) from error
            raise

    return call


def _suggestion(error: Exception, arguments: dict[str, Any]) -> str | None:
    """Returns the whole line for an error that says that a name does not exist; None for any other error."""
    from quorumlog.sdk.errors import GroupIdNotFoundError, QuorumlogError, UnknownTopicOrPartitionError

    listings: tuple[tuple[type[QuorumlogError], str, Callable[[Admin], list[str]]], ...] = (
        (UnknownTopicOrPartitionError, "topic", lambda admin: admin.list_topics(include_internal=True)),
        (GroupIdNotFoundError, "group", lambda admin: [group.group_id for group in admin.list_groups()]),
    )
    for kind, noun, names in listings:
        typed = [name for name in _names(arguments) if name in str(error)]
        if not isinstance(error, kind) or not typed:
            continue
        from quorumlog.sdk import Admin

        servers = arguments.get("bootstrap_servers") or DEFAULT_BOOTSTRAP_SERVERS
        try:
            with Admin(
                bootstrap_servers=servers,
                bootstrap_timeout_ms=_LOOKUP_TIMEOUT_MS,
                request_timeout_ms=_LOOKUP_TIMEOUT_MS,
                **client_options(),
            ) as admin:
                known = names(admin)
        except QuorumlogError:
            return None
        for name in typed:
            if name not in known and (close := closest(name, known)) is not None:
                return f"{noun} '{name}' does not exist: did you mean '{close}'?"
    return None


def _names(arguments: dict[str, Any]) -> Iterator[str]:
    """Yields the texts that were typed, and NAME of ``NAME:PARTITIONS``; longer ones first, as they contain others."""
    texts = [text for value in arguments.values() for text in (value if isinstance(value, list) else [value])]
    names = {part for text in texts if isinstance(text, str) and text for part in (text, text.partition(":")[0])}
    yield from sorted(names, key=len, reverse=True)
