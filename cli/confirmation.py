"""Asking before something that cannot be undone."""

from __future__ import annotations

import sys

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError


def confirm(question: str, *, yes: bool) -> None:
    """Goes on only if the user at the terminal agrees, or has said ``--yes``.

    Without a terminal nobody can be asked. What stands in standard input is no answer: it may be the list from which a
    loop of the shell reads its names. Otherwise a command that is safe to try by hand would destroy in a script.

    Arguments:
        yes: agreed in advance.

    Raises:
        CommandError: refused, or nobody is there to be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Standard input is no terminal, so nobody can be asked: say --yes", WRONG_USAGE)
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was deleted")
