"""Consumers of the SDK in virtual time that read whole topics, and the check of each received record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quorumlog.sdk.consumer.async_consumer import AsyncConsumer
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import ConsumerRecord, TopicPartition
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import PartitionName

POLL_MS = 300


@dataclass(slots=True)
class ConsumerHabits:
    """Workload of one consumer.

    Arguments:
        options: the SDK's, without addresses.
        seeks, pauses, closes: probabilities per poll.
    """

    options: dict[str, Any]
    topics: list[str]
    seeks: float = 0.0
    pauses: float = 0.0
    closes: float = 0.0


@dataclass(slots=True)
class _Reading:
    """The position of a consumer in a partition: the log of a topic, and the next offset."""

    group: int
    next_offset: int


class ConsumerLoad:
    """A process that reads until it is stopped, with one consumer after the other."""

    def __init__(
        self,
        name: str,
        habits: ConsumerHabits,
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
        values: CommittedValues,
    ) -> None:
        self.name = name
        self.habits = habits
        self.read = 0
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._values = values
        self._stopping = False
        self._settling = False
        self._instances = 0
        self._reading: dict[TopicPartition, _Reading] = {}
        #: Partitions for which it has requested a seek to the end.
        self._anywhere: set[TopicPartition] = set()
        #: Partitions with a seek to an offset, in any topic that has the name by then.
        self._sought: dict[TopicPartition, int] = {}
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._instances += 1
        host = self._make_host(f"{self.name}/{self._instances}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL."""
        self.host.kill()

    def restart(self) -> None:
        """Starts a new process, which reads everything from the start."""
        self.host = self._begin()

    def settle(self) -> None:
        """Disables seeks and pauses: from now on it only reads."""
        self._settling = True

    def stop(self) -> None:
        """Stops reading."""
        self._stopping = True

    def missing(self, partitions: list[PartitionName]) -> str:
        """Returns what it has not read yet; empty if it has reached all ends."""
        for name in partitions:
            group = self._values.current_group(name)
            if group is None or name.topic not in self.habits.topics:
                continue
            log = self._values.log(group)
            reading = self._reading.get(TopicPartition(*name))
            if log.log_start >= log.next_offset or TopicPartition(*name) in self._anywhere:
                continue
            if self._sought.get(TopicPartition(*name)) == log.next_offset:
                continue  # It has sought the end itself, perhaps of a topic of which it never received a record.
            if reading is None or reading.group != group or reading.next_offset != log.next_offset:
                return (
                    f"consumer {self.name} is at {reading} of {name}, which goes to {log.next_offset} (group {group})"
                )
        return ""

    # -- the process ----------------------------------------------------------------------------------------------

    async def _work(self, host: ClientHost) -> None:
        while not self._stopping:
            self._reading.clear()
            self._anywhere.clear()
            self._sought.clear()
            consumer = AsyncConsumer(
                *self.habits.topics,
                runtime=host.runtime,
                bootstrap_servers=self._bootstrap_servers(),
                auto_offset_reset="earliest",
                **self.habits.options,
            )
            try:
                await self._one_consumer(consumer)
            finally:
                if host.alive:
                    await consumer.close()

    async def _one_consumer(self, consumer: AsyncConsumer) -> None:
        while not self._stopping:
            try:
                polled = await consumer.poll(POLL_MS, max_records=self._rng.choice((1, 7, 500)))
                for partition, records in polled.items():
                    # Set when the records were taken out; no other code has run since.
                    topic_id = consumer._core.assignment.states[partition].given_topic_id
                    for record in records:
                        self._check(partition, record, topic_id)
                if not self._settling:
                    await self._wander(consumer)
                elif consumer.paused():
                    consumer.resume(*sorted(consumer.paused()))
            except Violation as finding:
                self.host.loop.fail(finding)  # Immediately, and not once it has closed, which commits.
                raise
            except QuorumlogError as error:
                if not error.retriable and not self._settling:
                    return  # For any error, a new consumer may try again.
                await asyncio.sleep(0.05)
            if not self._settling and self._rng.random() < self.habits.closes:
                return

    async def _wander(self, consumer: AsyncConsumer) -> None:
        assigned = sorted(consumer.assignment())
        if not assigned:
            return
        partition = self._rng.choice(assigned)
        if self._rng.random() < self.habits.seeks:
            reading = self._reading.get(partition)
            match self._rng.randrange(3):
                case 0:
                    await consumer.seek_to_beginning(partition)
                    self._reading.pop(partition, None)
                    self._anywhere.discard(partition)
                    self._sought.pop(partition, None)
                case 1:
                    await consumer.seek_to_end(partition)
                    self._anywhere.add(partition)
                    self._sought.pop(partition, None)
                case 2 if reading is not None and reading.next_offset:
                    self._anywhere.discard(partition)
                    offset = self._rng.randint(0, reading.next_offset)
                    await consumer.seek(partition, offset)
                    self._sought[partition] = offset
        if self._rng.random() < self.habits.pauses:
            if partition in consumer.paused():
                consumer.resume(partition)
            else:
                consumer.pause(partition)

    def _check(self, partition: TopicPartition, record: ConsumerRecord, topic_id: bytes | None) -> None:
        """Checks that a record equals the log's, and is the next one, or the first that is left.

        Arguments:
            topic_id: id of the topic from which the SDK has fetched it. It decides if two topics of the name have the
                same value at the same position: records that the former one did not acknowledge are sent to the next
                one, too.
        """
        assert record.value is not None and topic_id is not None
        self.read += 1
        reading = self._reading.get(partition)
        fetched_from = self._values.group_of(topic_id, partition.partition)
        group = self._values.find(record.value.decode(), *partition, record.offset, fetched_from)
        log = self._values.log(group)
        if reading is not None and group < reading.group and partition not in self._sought:
            raise Violation(f"{self.name} received {record.value!r} of a topic older than the one that it had reached")
        expected: int | None = 0
        if reading is not None and reading.group == group:
            expected = reading.next_offset
        if partition in self._sought:
            sought = self._sought.pop(partition)
            # It may have sought this offset in a topic that has taken the name since; a topic created later starts from
            # scratch.
            if record.offset == sought or reading is None or reading.group == group:
                expected = sought
        if partition in self._anywhere:
            self._anywhere.discard(partition)
            expected = None
        # Records in between were removed: by retention, by command, with the batch that contained them.
        if expected is not None and record.offset != expected and not expected < record.offset <= log.log_start:
            raise Violation(
                f"{self.name} received offset {record.offset} of {partition} (group {group}, from {log.log_start} on),"
                f" instead of {expected}"
            )
        self._reading[partition] = _Reading(group, record.offset + 1)
