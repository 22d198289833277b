"""Progress bars for what lasts, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(description: str, total: float | None, unit: str = "") -> Iterator[Callable[[float], None]]:
    """Shows a bar on stderr while the block runs; without a terminal nothing is shown.

    Arguments:
        description: what is going on.
        total: the value at which it is done; None where the end is not known.
        unit: said behind the numbers.

    Yields:
        A function that is told the value reached so far.
    """
    if not sys.stderr.isatty():
        yield lambda _completed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if total is None:
        count = TextColumn("{task.completed:,.0f} " + unit)
    else:
        count = TextColumn("{task.completed:,.0f} / {task.total:,.0f} " + unit)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda completed: bar.update(task, completed=completed)


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Shows a spinner on stderr while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
