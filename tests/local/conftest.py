"""Local clusters as everyone starts them: each node is a program of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quorumlog.local.node_spawner import separate_nodes


@pytest.fixture(scope="module", autouse=True)
def nodes_are_programs() -> Iterator[None]:
    with separate_nodes():
        yield
