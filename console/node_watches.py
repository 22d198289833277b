"""What nodes tell of the cluster by themselves, for as long as somebody looks. A node of an older version is asked."""

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

#: How long after a watch has ended the next one is begun.
AGAIN_AFTER_S = 1.0


class WatchCalls(Protocol):
    """What is asked of an admin client; :class:`quorumlog.sdk.aio.AsyncAdmin` has it."""

    def watch_cluster(self, address: str) -> AsyncIterator[ClusterChange]: ...


@dataclass(slots=True)
class ClusterAsTold:
    """The cluster as one node has told it; whole once it has told anything.

    Attributes:
        cluster_s: when it told of the nodes.
    """

    cluster: ClusterDescription
    cluster_s: float
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    logs: dict[TopicPartition, LogDescription] = field(default_factory=dict)

    def take(self, change: ClusterChange, now_s: float) -> list[TopicDescription]:
        """Takes in what has changed, and returns the topics whose deletion the node has applied."""
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
        told: is called with the address of a node, what it has told, and the topics whose deletion it has applied.
        silent: is called with the address of a node that tells nothing any more.
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
        """Watches these nodes, and no others."""
        for task in self._tasks.values():
            if task.done():
                task.result()  # It ends by itself only of a defect, which is not to be hidden.
        addresses = {address_of(broker) for broker in brokers}
        for address in self._tasks.keys() - addresses:
            self._tasks.pop(address).cancel()
            self._views.pop(address, None)
        for address in addresses - self._tasks.keys():
            self._tasks[address] = asyncio.get_running_loop().create_task(self._watch(address))

    async def close(self) -> None:
        """Watches nobody any more."""
        tasks = list(self._tasks.values())
        self.follow(())
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_watching(self) -> bool:
        """Whether any node is watched."""
        return bool(self._tasks)

    def views(self, addresses: Iterable[str]) -> list[ClusterAsTold]:
        """What those of these nodes have told that tell anything now."""
        return [self._views[address] for address in addresses if address in self._views]

    async def _watch(self, address: str) -> None:
        while True:
            with contextlib.suppress(QuorumlogError):
                async for change in self._admin.watch_cluster(address):
                    self._take(address, change)
            # It does not answer, or does not know how: what it has told may be over, and it is asked with the others.
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
    """Where a node is reached: host:port."""
    host = f"[{broker.host}]" if ":" in broker.host and not broker.host.startswith("[") else broker.host
    return f"{host}:{broker.port}"


def newest_logs(views: Iterable[ClusterAsTold]) -> Iterator[tuple[TopicPartition, LogDescription]]:
    """Of each log what its newest leader has told."""
    newest: dict[TopicPartition, LogDescription] = {}
    for view in views:
        for tp, log in view.logs.items():
            known = newest.get(tp)
            if known is None or known.leader_epoch < log.leader_epoch:
                newest[tp] = log
    return iter(newest.items())
