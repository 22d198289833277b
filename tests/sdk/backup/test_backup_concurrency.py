"""The pieces of work of a backup, one for each partition."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from quorumlog.sdk.backup.concurrency import CONCURRENT_PARTITIONS, for_each_partition
from quorumlog.sdk.errors import ClientClosedError, IllegalStateError, LeaderNotAvailableError, QuorumlogError


def test_a_few_are_worked_on_at_once_and_results_come_in_order() -> None:
    running: list[int] = []
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        for _ in range(20 - number):
            await asyncio.sleep(0)
        running.remove(number)
        return number

    works = [partial(work, number) for number in range(20)]
    assert asyncio.run(for_each_partition(works)) == list(range(20))
    assert most == CONCURRENT_PARTITIONS


def test_no_partitions_are_no_work() -> None:
    assert asyncio.run(for_each_partition([])) == []


def test_the_first_failure_ends_the_others() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 2:
            raise LeaderNotAvailableError("try again")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(LeaderNotAvailableError):
        asyncio.run(for_each_partition([partial(work, number) for number in range(10)]))
    assert ended == [0, 1, 3], "in their order, and the others have never started"


def test_of_failures_at_once_the_final_one_is_told() -> None:
    async def work(error: QuorumlogError) -> None:
        raise error

    errors = [LeaderNotAvailableError("try again"), IllegalStateError("damaged"), LeaderNotAvailableError("again")]
    with pytest.raises(IllegalStateError):
        asyncio.run(for_each_partition([partial(work, error) for error in errors]))


def test_a_call_that_is_cancelled_under_one_of_them_ends_the_others_and_says_why() -> None:
    """As a connection that is closed does: no result is missing without an error, and none goes to another caller."""
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 2:
            raise asyncio.CancelledError
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def within_bounds() -> None:
        async with asyncio.timeout(30):
            await for_each_partition([partial(work, number) for number in range(10)])

    with pytest.raises(ClientClosedError):
        asyncio.run(within_bounds())
    assert ended == [0, 1, 3]


def test_who_cancels_all_of_it_is_told_of_nothing_else() -> None:
    async def cancelled() -> None:
        works = [partial(asyncio.Event().wait) for _ in range(10)]
        task = asyncio.get_running_loop().create_task(for_each_partition(works))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
