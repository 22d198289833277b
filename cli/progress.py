"""Progress of long operations: a bar on a terminal, and otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from quorumlog.cli.boundary import say
from quorumlog.cli.rendering import size

#: Interval of the progress lines without a terminal (s).
LINE_EVERY_S = 5.0


class CopyTeller(Protocol):
    """A function that displays the progress of copies."""

    def __call__(self, replicas: int, left_bytes: int, of_bytes: int = 0, /) -> None:
        """Shows how many replicas, and how many of ``of_bytes`` bytes, are left; 0: the total given initially."""


@contextmanager
def progress(description: str, total: float | None, unit: str = "") -> Iterator[Callable[[float], None]]:
    """Shows a bar on stderr while the block runs, on a terminal only.

    Arguments:
        description: the operation.
        total: the value at which it is done; None if the end is not known.
        unit: unit printed after the numbers.

    Yields:
        A function to call with the value reached so far.
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


class CountTeller(Protocol):
    """A function that displays a count."""

    def __call__(self, count: int, share: float | None = None, /) -> None:
        """Shows a count, and its share of the total, from 0 to 1, if that is known."""


@contextmanager
def counting(description: str, unit: str, *, plain_lines: bool = True) -> Iterator[CountTeller]:
    """Shows on stderr a count, its rate, and the time left if the end is known.

    Arguments:
        description: the operation.
        unit: what is counted.
        plain_lines: without a terminal, print a line every ``LINE_EVERY_S``; otherwise nothing is shown there.
    """
    if not sys.stderr.isatty():
        yield _lines(description, unit) if plain_lines else lambda _count, _share=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        began_s = time.monotonic()
        task = bar.add_task(description, total=None, told="")

        def tell(count: int, share: float | None = None) -> None:
            text = _told(count, unit, share, time.monotonic() - began_s)
            bar.update(task, total=None if share is None else 1.0, completed=share or 0.0, told=text)

        yield tell


def _lines(description: str, unit: str) -> CountTeller:
    began_s = next_s = time.monotonic()
    next_s += LINE_EVERY_S

    def tell(count: int, share: float | None = None) -> None:
        nonlocal next_s
        now = time.monotonic()
        if now >= next_s:
            next_s = now + LINE_EVERY_S
            say(f"{description}: {_told(count, unit, share, now - began_s)}")

    return tell


def _told(count: int, unit: str, share: float | None, elapsed_s: float) -> str:
    """Returns a text such as ``120,000 records, 24,000/s, 31 %, 0:00:11 left``."""
    parts = [f"{count:,} {unit}", f"{count / max(elapsed_s, 0.001):,.0f}/s"]
    if share is not None:
        parts.append(f"{min(share, 1.0):.0%}".replace("%", " %"))
        if share > 0:
            parts.append(f"{timedelta(seconds=round(elapsed_s / share * (1 - min(share, 1.0))))} left")
    return ", ".join(parts)


@contextmanager
def copying(description: str, total: int, total_bytes: int) -> Iterator[CopyTeller]:
    """Shows a bar on stderr while replicas are copied, by bytes if those are known; on a terminal only.

    Arguments:
        total: number of replicas.
        total_bytes: estimated bytes of all of them; 0 if that is not known yet.

    Yields:
        A function to call with the number of replicas and bytes left, and the total of bytes once it is known. The time
        left is estimated from the speed so far.
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
