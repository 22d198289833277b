"""Watches of nodes, which report changes of the cluster while a page is open. A node of an older version is polled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from quorumlog.sdk import (
    BrokerDescription,
    ClusterChange,
    ClusterDescription,
    LogDescription,
    QuorumlogError,
    TopicDescription,
    TopicPartition,
)

#: Delay before an ended watch is started again (s).
AGAIN_AFTER_S = 1.0


class WatchCalls(Protocol):
    """The methods of an admin client that watches use; implemented by :class:`quorumlog.sdk.aio.AsyncAdmin`."""

    def watch_cluster(self, address: str) -> AsyncIterator[ClusterChange]: ...


@dataclass(slots=True)
class ClusterAsTold:
    """The cluster as reported by one node; complete once it has reported anything.

    Attributes:
        cluster_s: when it reported the nodes.
    """

    cluster: ClusterDescription
    cluster_s: float
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    logs: dict[TopicPartition, LogDescription] = field(default_factory=dict)

    def take(self, change: ClusterChange, now_s: float) -> list[TopicDescription]:
        """Applies a change, and returns the topics whose deletion the node has applied."""
        deleted = [self.topics[name] for name in change.gone_topics if name in self.topics]
        if change.is_whole:
            self.topics.clear()
            self.logs.clear()
        if change.cluster is not None:
            self.cluster, self.cluster_s = change.cluster, now_s
        for name in change.gone_topics:
            self.topics.pop(name, None)
        self.topics.update((topic.name, topic) for topic in change.topics)
        self.logs.update(change.logs)
        return deleted


class NodeWatches:
    """Watches every node.

    Arguments:
        admin: the client that watches.
        told: called with the address of a node, its report, and the topics whose deletion it has applied.
        silent: called with the address of a node whose watch has ended.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        admin: WatchCalls,
        told: Callable[[str, ClusterChange, list[TopicDescription]], None],
        silent: Callable[[str], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._admin = admin
        self._told = told
        self._silent = silent
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._views: dict[str, ClusterAsTold] = {}

    def follow(self, brokers: Iterable[BrokerDescription]) -> None:
        """Watches exactly these nodes."""
        for task in self._tasks.values():
            if task.done():
                task.result()  # It ends without cancellation only because of a defect, which must not be hidden.
        addresses = {address_of(broker) for broker in brokers}
        for address in self._tasks.keys() - addresses:
            self._tasks.pop(address).cancel()
            self._views.pop(address, None)
        for address in addresses - self._tasks.keys():
            self._tasks[address] = asyncio.get_running_loop().create_task(self._watch(address))

    async def close(self) -> None:
        """Ends all watches."""
        tasks = list(self._tasks.values())
        self.follow(())
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_watching(self) -> bool:
        """True if any node is watched."""
        return bool(self._tasks)

    def views(self, addresses: Iterable[str]) -> list[ClusterAsTold]:
        """Returns the reports of those of these nodes that are being watched successfully."""
        return [self._views[address] for address in addresses if address in self._views]

    async def _watch(self, address: str) -> None:
        while True:
            with contextlib.suppress(QuorumlogError):
                async for change in self._admin.watch_cluster(address):
                    self._take(address, change)
            # It does not answer, or does not support watches: its report may be outdated, and it is polled like the
            # others.
            self._views.pop(address, None)
            await self._silent(address)
            await asyncio.sleep(AGAIN_AFTER_S)

    def _take(self, address: str, change: ClusterChange) -> None:
        view = self._views.get(address)
        if view is None:
            if change.cluster is None or not change.is_whole:
                return
            view = self._views[address] = ClusterAsTold(change.cluster, self._clock())
        deleted = view.take(change, self._clock())
        self._told(address, change, deleted)


def address_of(broker: BrokerDescription) -> str:
    """Returns the address of a node: host:port."""
    host = f"[{broker.host}]" if ":" in broker.host and not broker.host.startswith("[") else broker.host
    return f"{host}:{broker.port}"


def newest_logs(views: Iterable[ClusterAsTold]) -> Iterator[tuple[TopicPartition, LogDescription]]:
    """Returns for each log the report of its newest leader."""
    newest: dict[TopicPartition, LogDescription] = {}
    for view in views:
        for tp, log in view.logs.items():
            known = newest.get(tp)
            if known is None or known.leader_epoch < log.leader_epoch:
                newest[tp] = log
    return iter(newest.items())
