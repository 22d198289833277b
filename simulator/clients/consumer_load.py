"""Consumers of the SDK in virtual time that read whole topics, and the check of each record that they are given."""

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
    """How one consumer works.

    Arguments:
        options: the SDK's, without addresses.
        seeks, pauses, closes: how often, per poll.
    """

    options: dict[str, Any]
    topics: list[str]
    seeks: float = 0.0
    pauses: float = 0.0
    closes: float = 0.0


@dataclass(slots=True)
class _Reading:
    """Where a consumer is in a partition: in which topic's log, and what comes next."""

    group: int
    next_offset: int


class ConsumerLoad:
    """A process that reads until it is told to stop, through one consumer after the other."""

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
        #: It has asked to be taken to the end of these, wherever that is.
        self._anywhere: set[TopicPartition] = set()
        #: Or here, in whichever topic has the name by now.
        self._sought: dict[TopicPartition, int] = {}
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._instances += 1
        host = self._make_host(f"{self.name}/{self._instances}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """SIGKILL."""
        self.host.kill()

    def restart(self) -> None:
        """A new process reads all from the beginning."""
        self.host = self._begin()

    def settle(self) -> None:
        """No more seeks and pauses: from now on it only reads."""
        self._settling = True

    def stop(self) -> None:
        """Reads no more."""
        self._stopping = True

    def missing(self, partitions: list[PartitionName]) -> str:
        """What it has not read yet of what there is; empty when it is at the end of all."""
        for name in partitions:
            group = self._values.current_group(name)
            if group is None or name.topic not in self.habits.topics:
                continue
            log = self._values.log(group)
            reading = self._reading.get(TopicPartition(*name))
            if log.log_start >= log.next_offset or TopicPartition(*name) in self._anywhere:
                continue
            if self._sought.get(TopicPartition(*name)) == log.next_offset:
                continue  # It has gone to the end itself, perhaps of a topic of which it was never given anything.
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
                    # Noted as the records were taken out; nothing has run since.
                    topic_id = consumer._core.assignment.states[partition].given_topic_id
                    for record in records:
                        self._check(partition, record, topic_id)
                if not self._settling:
                    await self._wander(consumer)
                elif consumer.paused():
                    consumer.resume(*sorted(consumer.paused()))
            except Violation as finding:
                self.host.loop.fail(finding)  # Now, and not once it has closed, which commits.
                raise
            except QuorumlogError as error:
                if not error.retriable and not self._settling:
                    return  # Whatever it is, a new consumer may ask again.
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
        """A record is what the log has there, and the one that comes next, or the first one that is left.

        Arguments:
            topic_id: of the topic that the SDK has fetched it from. It decides where two topics of the name hold the
                same value at the same place: what the former one did not acknowledge is sent to the next one, too.
        """
        assert record.value is not None and topic_id is not None
        self.read += 1
        reading = self._reading.get(partition)
        fetched_from = self._values.group_of(topic_id, partition.partition)
        group = self._values.find(record.value.decode(), *partition, record.offset, fetched_from)
        log = self._values.log(group)
        if reading is not None and group < reading.group and partition not in self._sought:
            raise Violation(f"{self.name} is given {record.value!r} of a topic before the one that it had come to")
        expected: int | None = 0
        if reading is not None and reading.group == group:
            expected = reading.next_offset
        if partition in self._sought:
            sought = self._sought.pop(partition)
            # It may have gone to that place of a topic that has the name since; one that came later begins anew.
            if record.offset == sought or reading is None or reading.group == group:
                expected = sought
        if partition in self._anywhere:
            self._anywhere.discard(partition)
            expected = None
        # What comes between was removed: by retention, by command, with the batch that it was in.
        if expected is not None and record.offset != expected and not expected < record.offset <= log.log_start:
            raise Violation(
                f"{self.name} is given offset {record.offset} of {partition} (group {group}, from {log.log_start} on),"
                f" where {expected} comes next"
            )
        self._reading[partition] = _Reading(group, record.offset + 1)
