"""Progress bars for what lasts, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from quorumlog.cli.rendering import size


class CopyTeller(Protocol):
    """Takes how far copies are."""

    def __call__(self, replicas: int, left_bytes: int, of_bytes: int = 0, /) -> None:
        """How many replicas, and how many bytes of how many, are left; 0: as was said in the beginning."""


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
def copying(description: str, total: int, total_bytes: int) -> Iterator[CopyTeller]:
    """Shows a bar on stderr while replicas are copied, by bytes where those are known; on a terminal only.

    Arguments:
        total: how many replicas.
        total_bytes: of all of them, about; 0 where that is not known yet.

    Yields:
        A function that is told how many replicas, and how many bytes, are left, and of how many bytes where that has
        become known. The time left is by the speed so far.
    """
    if not sys.stderr.isatty():
        yield lambda _replicas, _bytes, _of_bytes=0: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]:,} of " + f"{total:,} left{{task.fields[left_bytes]}},"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total_bytes or total, left=total, left_bytes="")

        def tell(replicas: int, left_bytes: int, of_bytes: int = 0) -> None:
            known = of_bytes or total_bytes
            done = known - left_bytes if known else total - replicas
            shown = f" ({size(left_bytes)} of {size(known)})" if known else ""
            bar.update(task, total=known or total, completed=max(0, done), left=replicas, left_bytes=shown)

        yield tell


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Shows a spinner on stderr while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
