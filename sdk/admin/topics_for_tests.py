"""The pytest fixture ``quorumlog_topic``: topics for single tests, on a cluster that many tests share.

Installed with the package (entry point ``pytest11``), beside ``quorumlog_cluster``, which may exist for the whole
session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol
from uuid import uuid4

import pytest


class _TestedCluster(Protocol):
    """Interface of ``quorumlog_cluster``."""

    bootstrap_servers: str


class TopicMaker:
    """Creates topics for one test.

    Arguments:
        bootstrap_servers: of the cluster.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._made: list[str] = []

    def __call__(
        self,
        name: str = "test",
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a topic with a unique name that starts with ``name``, and returns the name. It is deleted after the
        test.

        Arguments:
            replication_factor: -1: as many as the cluster supports, 3 at most.
            configs: such as ``{"cleanup.policy": "compact"}``.
        """
        from quorumlog.sdk.admin.admin import Admin
        from quorumlog.sdk.types import NewTopic

        topic = f"{name}-{uuid4().hex[:12]}"
        with Admin(bootstrap_servers=self._bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, partitions, replication_factor, configs or {})])
        self._made.append(topic)
        return topic

    def delete_all(self) -> None:
        """Deletes the topics that it created and that still exist."""
        if not self._made:
            return
        from quorumlog.sdk.admin.admin import Admin

        with Admin(bootstrap_servers=self._bootstrap_servers) as admin:
            known = set(admin.list_topics())
            admin.delete_topics([topic for topic in self._made if topic in known])


@pytest.fixture
def quorumlog_topic(quorumlog_cluster: _TestedCluster) -> Iterator[TopicMaker]:
    """Creates topics for this test only: ``quorumlog_topic("orders")`` returns the name of a new one."""
    maker = TopicMaker(quorumlog_cluster.bootstrap_servers)
    yield maker
    maker.delete_all()
