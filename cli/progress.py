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
def copying(description: str, total: int, total_bytes: int) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on stderr while replicas are copied, by bytes where those are known; on a terminal only.

    Arguments:
        total: how many replicas.
        total_bytes: of all of them, about; 0 where that is not known.

    Yields:
        A function that is told how many replicas, and how many bytes, are left. The time left is by the speed so far.
    """
    if not sys.stderr.isatty():
        yield lambda _replicas, _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *((DownloadColumn(),) if total_bytes else ()),
        TextColumn("{task.fields[left]:,} of " + f"{total:,} left,"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total_bytes or total, left=total)

        def tell(replicas: int, left_bytes: int) -> None:
            done = total_bytes - left_bytes if total_bytes else total - replicas
            bar.update(task, completed=max(0, done), left=replicas)

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
