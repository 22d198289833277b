"""Printing of results."""

from __future__ import annotations

from rich.console import Console

#: Characters in a line that no table of ours reaches.
_WIDE = 250


def result_console() -> Console:
    """A console on standard output. Without a terminal its lines are as long as they need to be, so that a file or a
    pipe never gets a table with its cells broken up."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
