"""Confirmation of commands that cannot be undone."""

from __future__ import annotations

import sys

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError


def confirm(question: str, *, yes: bool) -> None:
    """Returns only if the user at the terminal agrees, or has given ``--yes``.

    Without a terminal there is no user to ask, and standard input is not read for an answer: it may be the list from
    which a shell loop reads its names, so that a command that is safe to try by hand would destroy data in a script.

    Arguments:
        yes: agreed in advance.

    Raises:
        CommandError: the user refused, or there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Standard input is not a terminal: confirm with --yes", WRONG_USAGE)
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was deleted")
