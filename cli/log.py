"""``quorumlog log``: what is on a node's disk, read while the node is down."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True)
