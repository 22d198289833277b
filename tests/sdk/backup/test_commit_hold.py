"""A backup's hold on commits: when it starts, and whether it has lasted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from quorumlog.sdk.backup import commit_hold
from quorumlog.sdk.backup.commit_hold import BackupHold
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import ClusterAuthorizationFailedError, QuorumlogError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.v1.transaction_admin_pb2 import HoldingCoordinator

Coordinators = dict[int, HoldingCoordinator]


def coordinator(number: int, *, term: int = 3, holds: bool = True, settled: bool = True) -> HoldingCoordinator:
    return HoldingCoordinator(number=number, term=term, holds=holds, settled=settled)


def both(first: HoldingCoordinator | None = None) -> Coordinators:
    """Two coordinators."""
    return {0: first or coordinator(0), 1: coordinator(1)}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(
        ["nowhere:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.002, 0.002), client_id="test"
    )
    yield made
    await made.close()


def hold_of(cluster: Cluster, *answers: Coordinators | QuorumlogError) -> tuple[BackupHold, list[int]]:
    """Returns a hold whose requests have these answers, and how long each request wants commits to be held."""
    made, asked, left = BackupHold(cluster), list[int](), list(answers)

    async def ask(hold_ms: int) -> Coordinators:
        asked.append(hold_ms)
        answer = left.pop(0)
        if isinstance(answer, QuorumlogError):
            raise answer
        return answer

    made._ask = ask  # type: ignore[method-assign]
    return made, asked


async def test_holds_begin_when_all_are_settled(cluster: Cluster) -> None:
    hold, asked = hold_of(
        cluster, both(coordinator(0, settled=False)), both(coordinator(0, holds=False)), both(), both()
    )
    await hold.begin()
    assert asked[0] == commit_hold.HOLD_MS
    assert await hold.end()
    assert asked[3:] == [0]


async def test_holds_of_later_leaders_are_shorter(cluster: Cluster) -> None:
    """Commits wait for five seconds altogether, although a coordinator that moves starts its hold late."""
    hold, asked = hold_of(cluster, *[both(coordinator(0, settled=False))] * 20, both())
    await hold.begin()
    assert commit_hold.HOLD_MS == asked[0] > asked[10] > asked[20] > 0


async def test_backups_that_are_cancelled_end_their_hold(cluster: Cluster) -> None:
    hold, asked = hold_of(cluster, *[both(coordinator(0, settled=False))] * 1_000)
    beginning = asyncio.ensure_future(hold.begin())
    await asyncio.sleep(0.02)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert asked[-1] == 0


async def test_holds_of_another_term_do_not_count(cluster: Cluster) -> None:
    hold, _ = hold_of(cluster, both(), both(coordinator(0, term=4)))
    await hold.begin()
    assert not await hold.end()


async def test_holds_that_are_over_do_not_count(cluster: Cluster) -> None:
    hold, _ = hold_of(cluster, both(), both(coordinator(0, holds=False)))
    await hold.begin()
    assert not await hold.end()


async def test_silent_coordinators_do_not_count(cluster: Cluster) -> None:
    hold, _ = hold_of(cluster, both(), QuorumlogError("gone"))
    await hold.begin()
    assert not await hold.end()


async def test_waits_for_commits_have_a_limit(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_hold, "SETTLE_S", 0.05)
    hold, asked = hold_of(cluster, *[both(coordinator(0, settled=False))] * 1_000)
    with pytest.raises(QuorumlogError, match="__transactions-0 has commits"):
        await hold.begin()
    assert asked[-1] == 0 < asked[-2], "commits continue at once"
    hold, _ = hold_of(cluster, *[both(coordinator(0, holds=False))] * 1_000)
    with pytest.raises(
        QuorumlogError, match="__transactions-0 holds commits for another backup, or has until just now"
    ):
        await hold.begin()
    hold, asked = hold_of(cluster, *[ClusterAuthorizationFailedError("not allowed")] * 2)
    with pytest.raises(ClusterAuthorizationFailedError):
        await hold.begin()
    assert asked[-1] == 0
    hold, _ = hold_of(cluster, both())
    assert not await hold.end(), "it never started"
