"""An administrator in virtual time: the SDK's admin client, which creates, changes and deletes topics during a run.

Its deletions are checked: each removes one topic, and never one that was created after the deletion had returned.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from quorumlog.sdk.admin.async_admin import AsyncAdmin
from quorumlog.sdk.errors import QuorumlogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from quorumlog.sdk.types import NewTopic, TopicPartition
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.cluster import SimCluster


@dataclass(slots=True)
class AdminHabits:
    """Workload of one administrator.

    Arguments:
        options: the SDK's, without addresses.
        interval_s: minimum and maximum pause between two actions.
        recreated: topics that it deletes and creates again, with their initial number of partitions.
        trimmed: topics whose records it deletes, and whose retention it changes.
        most_partitions: maximum number of partitions to which topics are extended.
    """

    options: dict[str, Any]
    interval_s: tuple[float, float] = (0.05, 0.5)
    recreated: dict[str, int] = field(default_factory=dict)
    trimmed: list[str] = field(default_factory=list)
    most_partitions: int = 3


@dataclass(slots=True)
class Deletion:
    """A requested deletion. ``returned_us`` is None while it is under way."""

    topic: str
    invoked_us: int
    returned_us: int | None = None


class AdminLoad:
    """A process that administers until it is stopped; then it ensures that all topics exist."""

    def __init__(
        self,
        name: str,
        habits: AdminHabits,
        new_topic: Callable[[str, int], NewTopic],
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
        deletions: list[Deletion],
    ) -> None:
        self.name = name
        self.habits = habits
        self.done = 0
        self.settled = False
        self._new_topic = new_topic
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._deletions = deletions
        self._stopping = self._ended = False
        self._lives = 0
        self._under_way: Deletion | None = None
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        host = self._make_host(f"{self.name}/{self._lives}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL. A request under way may still take effect."""
        self.host.kill()
        if self._under_way is not None:
            self._under_way.returned_us = self.host.scheduler.now

    def restart(self) -> None:
        """Starts a new process."""
        self.host = self._begin()

    def stop(self) -> None:
        """From now on only missing topics are created."""
        self._stopping = True

    def end(self) -> None:
        """Stops the process for good."""
        self._ended = True

    async def _work(self, host: ClientHost) -> None:
        admin = AsyncAdmin(runtime=host.runtime, bootstrap_servers=self._bootstrap_servers(), **self.habits.options)
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(*self.habits.interval_s))
            try:
                await self._one_deed(admin, host)
                self.done += 1
            except QuorumlogError:
                continue  # Its errors are not checked here, but the resulting topics are.
        # A deletion without an answer may yet take effect: an existing topic may still be removed.
        while not self._ended:
            for topic, partitions in sorted(self.habits.recreated.items()):
                await self._until_there(admin, topic, partitions)
            self.settled = True
            await asyncio.sleep(1.0)
        await admin.close()

    async def _until_there(self, admin: AsyncAdmin, topic: str, partitions: int) -> None:
        while True:
            try:
                await admin.create_topics([self._new_topic(topic, partitions)])
                return
            except TopicAlreadyExistsError:
                return
            except QuorumlogError:
                await asyncio.sleep(0.1)

    async def _one_deed(self, admin: AsyncAdmin, host: ClientHost) -> None:
        deeds = [self._describe]
        if self.habits.recreated:
            deeds += [self._recreate, self._recreate, self._widen]
        if self.habits.trimmed:
            deeds += [self._trim, self._retain]
        await self._rng.choice(deeds)(admin, host)

    async def _recreate(self, admin: AsyncAdmin, host: ClientHost) -> None:
        topic = self._rng.choice(sorted(self.habits.recreated))
        deletion = self._under_way = Deletion(topic, host.scheduler.now)
        self._deletions.append(deletion)
        try:
            with suppress(UnknownTopicOrPartitionError):  # Another client has deleted it.
                await admin.delete_topics([topic])
        finally:
            if host.alive:
                deletion.returned_us = host.scheduler.now
                self._under_way = None
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        await admin.create_topics([self._new_topic(topic, self.habits.recreated[topic])])

    async def _widen(self, admin: AsyncAdmin, host: ClientHost) -> None:
        topic = self._rng.choice(sorted(self.habits.recreated))
        described = (await admin.describe_topics([topic]))[0]
        if len(described.partitions) < self.habits.most_partitions:
            await admin.create_partitions({topic: len(described.partitions) + 1})

    async def _trim(self, admin: AsyncAdmin, host: ClientHost) -> None:
        await admin.delete_records({TopicPartition(self._rng.choice(self.habits.trimmed), 0): -1})

    async def _retain(self, admin: AsyncAdmin, host: ClientHost) -> None:
        value = self._rng.choice((None, 0, 500, 5_000))
        await admin.alter_configs({self._rng.choice(self.habits.trimmed): {"retention.bytes": value}})

    async def _describe(self, admin: AsyncAdmin, host: ClientHost) -> None:
        match self._rng.randrange(3):
            case 0:
                await admin.describe_topics(linearizable=True)
            case 1:
                await admin.describe_cluster()
            case 2:
                await admin.list_groups()


def check_deletions(cluster: SimCluster, deletions: list[Deletion]) -> None:
    """Checks that each removed topic was deleted by a request of its own, which had not returned before the topic was
    created.

    Raises:
        Violation: a deletion removed two topics, or one that was created after it.
    """
    unused = sorted(deletions, key=lambda each: each.returned_us if each.returned_us is not None else 1 << 62)
    for topic_id, gone_us in sorted(cluster.topics_gone.items(), key=lambda each: each[1]):
        name, seen_us = cluster.topics_seen[topic_id]
        fitting = [
            each
            for each in unused
            if each.topic == name
            and each.invoked_us <= gone_us
            and (each.returned_us is None or each.returned_us >= seen_us)
        ]
        if not fitting:
            requests = [(each.invoked_us, each.returned_us) for each in deletions if each.topic == name]
            raise Violation(
                f"topic {name!r} ({topic_id.hex()[:8]}), created at {seen_us} µs, is deleted at {gone_us} µs without a"
                f" request; deletions of the name, each of one topic: {requests}"
            )
        unused.remove(fitting[0])
