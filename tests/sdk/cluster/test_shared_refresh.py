"""One refresh of the metadata serves all its waiters, and none of them can end it for the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.metadata import TopicView
from quorumlog.sdk.errors import ClientClosedError, LeaderNotAvailableError
from quorumlog.sdk.runtime.backoff import Backoff


async def test_a_topic_that_was_known_before_it_was_wanted_is_in_every_refresh() -> None:
    cluster = Cluster(
        ["node:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    requests: list[list[str]] = []

    async def ask(topics: list[str], **more: Any) -> None:
        requests.append(topics)

    cluster.ask_metadata = ask  # type: ignore[assignment, method-assign]
    cluster.metadata.topics["t"] = TopicView("t", b"t" * 16, ())
    await cluster.ensure_topics(["t"], 1.0)
    cluster.request_refresh()
    async with asyncio.timeout(30):
        while not requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert requests == [["t"]]
    await cluster.close()


async def test_who_gives_up_waiting_does_not_end_the_refresh_for_the_others() -> None:
    cluster = Cluster(
        ["node:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    answered = asyncio.Event()

    async def ask(*arguments: Any, **more: Any) -> Any:
        await answered.wait()

    cluster.ask_metadata = ask  # type: ignore[method-assign]
    patient = asyncio.ensure_future(cluster.require_leader("t", 0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cluster.require_leader("t", 0)
    answered.set()
    with pytest.raises(LeaderNotAvailableError):
        await patient
    await cluster.close()


async def test_who_waits_while_another_task_closes_the_client_is_told_so() -> None:
    cluster = Cluster(
        ["node:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    asking = asyncio.Event()

    async def ask(*arguments: Any, **more: Any) -> Any:
        asking.set()
        await asyncio.get_running_loop().create_future()

    cluster.ask_metadata = ask  # type: ignore[method-assign]
    waiting = [asyncio.ensure_future(cluster.require_leader("t", 0)) for _ in range(2)]
    await asking.wait()
    waiting[1].cancel()
    await cluster.close()
    with pytest.raises(ClientClosedError):
        await waiting[0]
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    assert waiting[1].cancelled(), "this one was cancelled itself"
    with pytest.raises(ClientClosedError):
        await cluster.require_leader("t", 0)
