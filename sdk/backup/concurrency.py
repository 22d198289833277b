"""Works on several partitions at once, in order. A failure leaves no work running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from quorumlog.sdk.errors import ClientClosedError, QuorumlogError

Result = TypeVar("Result")

#: Limit of partitions in progress.
CONCURRENT_PARTITIONS = 4


async def for_each_partition(works: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Runs all works, and returns their results in order.

    Raises:
        Exception: the exception of one work; the others have ended then. Of several, a permanent failure is preferred.
        ClientClosedError: a work was cancelled, but not by the caller: a connection was closed during its calls.
    """
    results: dict[int, Result] = {}
    waiting = iter(enumerate(works))

    async def in_turn() -> None:
        task = asyncio.current_task()
        assert task is not None
        for place, work in waiting:
            try:
                results[place] = await work()
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                raise ClientClosedError("a call was cancelled: the client is closed") from None

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(in_turn()) for _ in works[:CONCURRENT_PARTITIONS]]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        # In order, not in the order of a set, so that a simulation is reproducible.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if failures:
        raise next((error for error in failures if _is_final(error)), failures[0])
    return [results[place] for place in range(len(works))]


def _is_final(error: BaseException) -> bool:
    return not isinstance(error, QuorumlogError) or not error.retriable
