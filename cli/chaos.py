"""``quorumlog chaos``: real faults on real processes, and a verdict."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True)
