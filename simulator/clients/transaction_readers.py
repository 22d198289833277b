"""Consumers of the SDK in virtual time that read topics with transactions, at one isolation level each."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from quorumlog.sdk.consumer.async_consumer import AsyncConsumer
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import ConsumerRecord, TopicPartition
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import CommittedBatch, CommittedPartition, Violation
from quorumlog.simulator.models.committed_transactions import BatchFate
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.wire.entry import parse_header

_POLL_MS = 200
_OPTIONS: dict[str, Any] = {"request_timeout_ms": 1_000, "bootstrap_timeout_ms": 1_000, "metadata_max_age_ms": 1_000}


class IsolationReader:
    """A process that reads topics from their beginning, and those that replace it.

    Arguments:
        is_committed: it reads committed records; otherwise all records.
    """

    def __init__(
        self,
        topics: Sequence[str],
        is_committed: bool,
        network: SimClientNetwork,
        scheduler: Scheduler,
        values: CommittedValues,
    ) -> None:
        self.ended = False
        self.name = f"reader of {'committed' if is_committed else 'all'} records"
        self._topics = topics
        self._is_committed = is_committed
        self._network = network
        self._rng = scheduler.stream(f"sdk transactions/{self.name}")
        self._values = values
        self._stopping = False
        self._lives = 0
        self._next: dict[TopicPartition, int] = {}
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        self._next = {}
        host = self._network.host(f"{self.name}/{self._lives}", 0)
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL."""
        self.host.kill()

    def restart(self) -> None:
        """Starts a new process, which reads everything from the start."""
        self.host = self._begin()

    def stop(self) -> None:
        """Ends the process."""
        self._stopping = True

    def missing(self) -> str:
        """Returns a partition of which it has not received all records, in words; empty if none exists."""
        for group, name, _ in self._values.groups():
            if name.topic in self._topics:
                start = self._next.get(TopicPartition(*name), 0)
                left = self._first_left(self._values.log(group), start, None)
                if left is not None:
                    return f"the {self.name} is at {start} of {name}, which has a record at {left.base_offset}"
        return ""

    async def _work(self, host: ClientHost) -> None:
        consumer = AsyncConsumer(
            *self._topics,
            runtime=host.runtime,
            bootstrap_servers=self._network.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if self._is_committed else "read_uncommitted",
            **_OPTIONS,
        )
        while not self._stopping:
            try:
                polled = await consumer.poll(_POLL_MS, max_records=self._rng.choice((1, 7, 500)))
            except QuorumlogError:
                await asyncio.sleep(0.05)
                continue
            for partition, records in polled.items():
                for record in records:
                    self._check(partition, record)
        await consumer.close()
        self.ended = True

    def _check(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        """Checks that a record is the next one of its level."""
        assert record.value is not None
        start = self._next.get(partition, 0)
        where = f"the {self.name}, at {start} of {partition}, receives {record.value!r} at {record.offset}"
        if record.offset < start:
            raise Violation(f"{where}: a second time")
        log = self._values.log(self._values.find(record.value.decode(), *partition, record.offset))
        batch = log.batch_of(record.offset)
        if batch is None or not self._counts(log, batch):
            raise Violation(f"{where}: which must not be read")
        left = self._first_left(log, start, record.offset)
        if left is not None:
            raise Violation(f"{where}: without the record at {left.base_offset}")
        self._next[partition] = record.offset + 1

    def _counts(self, log: CommittedPartition, batch: CommittedBatch) -> bool:
        fate = log.transactions.fate_of(parse_header(batch.entry.data))
        if self._is_committed:
            return fate in (BatchFate.COMMITTED, BatchFate.PLAIN)
        return fate is not BatchFate.MARKER

    def _first_left(self, log: CommittedPartition, start: int, end: int | None) -> CommittedBatch | None:
        """Returns the first batch that counts at the level, with an offset from ``start`` on and before ``end``."""
        batches = log.batches_in_order
        for place in range(max(0, bisect_right(batches, start, key=attrgetter("base_offset")) - 1), len(batches)):
            batch = batches[place]
            if end is not None and batch.base_offset >= end:
                return None
            if batch.last_offset >= start and self._counts(log, batch) and (end is None or start < end):
                return batch
        return None
