"""``quorumlog cluster``: a local cluster of real processes (up, down, status); describe and health are in health.py."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="A local cluster; describe and health of any cluster.")
