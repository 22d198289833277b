"""Producers and consumer groups at a configurable rate, and a ledger of every acknowledged record."""

from __future__ import annotations

import asyncio
import json
import random
from collections import OrderedDict, deque
from dataclasses import dataclass

from quorumlog.console.shared_state import Thing
from quorumlog.sdk import NewTopic, QuorumlogError, RecordFuture, TopicAlreadyExistsError, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

#: Topic -> its partitions, and its share of the records.
TOPICS = {"orders": (6, 0.6), "payments": (4, 0.3), "clicks": (3, 0.1)}
#: Group -> its topics, its number of members, and the records that each processes per second.
GROUPS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "billing": (("orders",), 2, 2_000),
    "fraud": (("orders", "payments"), 1, 250),
}
DEFAULT_PER_SECOND, MOST_PER_SECOND = 150, 2_000
#: Maximum number of acknowledged records that are kept for the comparison, for each partition.
MOST_KEPT = 20_000
#: Interval at which records are created, and time limit of the comparison (s).
TICK_S, CHECK_WITHIN_S = 0.05, 20.0
#: Delay before a client restarts after an error (s).
AGAIN_AFTER_S = 1.0

_NAMES = ("anna", "ben", "clara", "dina", "emil", "farah", "goran", "hanna")
_FRUIT = ("apples", "pears", "plums", "cherries", "quinces")


@dataclass(slots=True, frozen=True)
class ReadBack:
    """Result of reading everything back.

    Arguments:
        compared: acknowledged records that were looked for.
        missing: records that were not found at their acknowledged offset.
        removed: records that retention has removed.
    """

    compared: int
    missing: int
    removed: int


class Life:
    """Sends and reads until it is cancelled.

    Arguments:
        bootstrap_servers: addresses of the cluster.
        per_second: records per second, for all topics together.
    """

    def __init__(self, bootstrap_servers: str, per_second: int = DEFAULT_PER_SECOND) -> None:
        self._servers = bootstrap_servers
        self.per_second = per_second
        self.sent = self.acknowledged = self.failed = 0
        self._ledger: dict[TopicPartition, OrderedDict[int, bytes]] = {}
        self._under_way: deque[tuple[RecordFuture, bytes]] = deque()
        self._chance = random.Random(7)

    async def run(self) -> None:
        """Creates the topics, and runs producers and consumers."""
        await self._create_topics()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            for group, (topics, members, pace) in GROUPS.items():
                for member in range(members):
                    tasks.create_task(self._consume(group, topics, f"{group}-{member + 1}", pace))

    def look(self) -> Thing:
        """Returns the counters, for the page."""
        return {
            "per_second": self.per_second,
            "sent": str(self.sent),
            "acknowledged": str(self.acknowledged),
            "failed": str(self.failed),
        }

    async def _create_topics(self) -> None:
        async with AsyncAdmin(bootstrap_servers=self._servers) as admin:
            missing = list(TOPICS)
            while missing:
                try:
                    await admin.create_topics([NewTopic(missing[0], TOPICS[missing[0]][0])])
                except TopicAlreadyExistsError:
                    pass
                except QuorumlogError:  # The user may have stopped nodes already.
                    await asyncio.sleep(AGAIN_AFTER_S)
                    continue
                missing.pop(0)

    # -- producing ------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        async with AsyncProducer(bootstrap_servers=self._servers, acks="all", linger_ms=5) as producer:
            owed = 0.0
            while True:
                await asyncio.sleep(TICK_S)
                owed += self.per_second * TICK_S
                try:
                    for _ in range(int(owed)):
                        await self._send_one(producer)
                except QuorumlogError:  # The producer's memory is full: no majority has been up for long.
                    self.failed += 1
                owed -= int(owed)
                self._settle()

    async def _send_one(self, producer: AsyncProducer) -> None:
        (topic,) = self._chance.choices(list(TOPICS), [share for _, share in TOPICS.values()])
        customer = self._chance.choice(_NAMES)
        value = json.dumps(
            {
                "number": self.sent,
                "customer": customer,
                "fruit": self._chance.choice(_FRUIT),
                "pounds": self._chance.randrange(1, 9),
                "trace": self._chance.randrange(1 << 60, 1 << 63),
            }
        ).encode()
        future = await producer.send(topic, value=value, key=f"{customer}-{self._chance.randrange(40)}".encode())
        self.sent += 1
        self._under_way.append((future, value))

    def _settle(self) -> None:
        for _ in range(len(self._under_way)):
            future, value = self._under_way.popleft()
            if not future.done():
                self._under_way.append((future, value))
            elif future.failed():
                self.failed += 1
            else:
                place = future.result(0)
                self.acknowledged += 1
                kept = self._ledger.setdefault(TopicPartition(place.topic, place.partition), OrderedDict())
                kept[place.offset] = value
                if len(kept) > MOST_KEPT:
                    kept.popitem(last=False)

    # -- reading --------------------------------------------------------------------------------------------------

    async def _consume(self, group: str, topics: tuple[str, ...], client_id: str, pace: int) -> None:
        while True:
            try:
                await self._consume_until_error(group, topics, client_id, pace)
            except QuorumlogError:
                await asyncio.sleep(AGAIN_AFTER_S)  # The group has removed this member.

    async def _consume_until_error(self, group: str, topics: tuple[str, ...], client_id: str, pace: int) -> None:
        async with AsyncConsumer(
            *topics, bootstrap_servers=self._servers, group_id=group, client_id=client_id, auto_commit_interval_ms=1_000
        ) as consumer:
            while True:
                found = await consumer.poll(timeout_ms=500, max_records=max(1, pace // 5))
                await asyncio.sleep(sum(map(len, found.values())) / pace)

    # -- verification ----------------------------------------------------------------------------------------

    async def read_back(self) -> ReadBack:
        """Looks for every acknowledged record of the ledger at its acknowledged offset.

        Raises:
            QuorumlogError: a record cannot be read now.
        """
        promised = {tp: dict(kept) for tp, kept in self._ledger.items() if kept}
        compared = sum(map(len, promised.values()))
        async with AsyncConsumer(bootstrap_servers=self._servers) as consumer:
            await consumer.assign(promised)
            starts = await consumer.beginning_offsets(promised)
            for tp, kept in promised.items():
                await consumer.seek(tp, max(min(kept), starts[tp]))
            last = {tp: max(kept) for tp, kept in promised.items() if max(kept) >= starts[tp]}
            async with asyncio.timeout(CHECK_WITHIN_S):
                while last:
                    for tp, records in (await consumer.poll(timeout_ms=200, max_records=5_000)).items():
                        for record in records:
                            if promised[tp].get(record.offset) == record.value:
                                del promised[tp][record.offset]
                        if tp in last and records[-1].offset >= last[tp]:
                            del last[tp]
            # Retention may have removed records during the check.
            starts = await consumer.beginning_offsets(promised)
        removed = sum(offset < starts[tp] for tp, kept in promised.items() for offset in kept)
        return ReadBack(compared - removed, sum(map(len, promised.values())) - removed, removed)
