"""Fixtures for the clients' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from scripted_cluster import ScriptedCluster


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """One scripted node that leads the one partition of topic ``t``."""
    made = ScriptedCluster()
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def three_nodes() -> AsyncIterator[ScriptedCluster]:
    """Three scripted nodes; node 1 leads the one partition of topic ``t``."""
    made = ScriptedCluster(nodes=3)
    await made.start()
    yield made
    await made.stop()
