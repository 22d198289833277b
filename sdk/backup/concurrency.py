"""Does a piece of work for each of many partitions: a few at once, in order. A failure leaves none of it running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from quorumlog.sdk.errors import QuorumlogError

Result = TypeVar("Result")

#: Partitions that are worked on at once.
CONCURRENT_PARTITIONS = 4


async def for_each_partition(works: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Does all of it, and returns the results in the order of ``works``.

    Raises:
        Exception: what one piece of work has raised; the others have ended then. Of several, a final failure comes
            before one that may pass.
    """
    results: dict[int, Result] = {}
    waiting = iter(enumerate(works))

    async def in_turn() -> None:
        for place, work in waiting:
            results[place] = await work()

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(in_turn()) for _ in works[:CONCURRENT_PARTITIONS]]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        # In their order, and not as a set has them, so that a simulation sees the same again.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if failures:
        raise next((error for error in failures if _is_final(error)), failures[0])
    return [results[place] for place in range(len(works))]


def _is_final(error: BaseException) -> bool:
    return not isinstance(error, QuorumlogError) or not error.retriable
