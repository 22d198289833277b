"""A consumer group with asyncio: three members on one event loop; then one leaves, and another one joins.

``AsyncConsumer`` has what ``Consumer`` has; its methods are coroutines, and so may be those of a listener.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

import tutorial

from quorumlog.sdk import ConsumerRebalanceListener, TopicPartition
from quorumlog.sdk.aio import AsyncConsumer, AsyncProducer

PARTITIONS = 4
RECORDS = 200

#: The member that processed a record, and the record's number.
Done = asyncio.Queue[tuple[str, int]]


class Arrival(ConsumerRebalanceListener):
    """Signals that a member has been assigned partitions."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.event.set()


async def member(servers: str, topic: str, name: str, done: Done, arrival: Arrival) -> None:
    """Reads until it is canceled; leaving the block commits and leaves the group."""
    async with AsyncConsumer(bootstrap_servers=servers, group_id="async-workers") as consumer:
        await consumer.subscribe([topic], listener=arrival)
        async for record in consumer:
            done.put_nowait((name, int(record.value)))


async def send(servers: str, topic: str, numbers: range) -> None:
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in numbers:
            await producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


async def shift(servers: str, topic: str) -> None:
    done: Done = asyncio.Queue()
    members: dict[str, asyncio.Task[None]] = {}

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:

        async def hire(*names: str) -> None:
            arrivals = [Arrival() for _ in names]
            for name, arrival in zip(names, arrivals, strict=True):
                members[name] = tasks.create_task(member(servers, topic, name, done, arrival))
            for arrival in arrivals:
                await arrival.event.wait()

        await hire("anna", "bert", "carla")
        await send(servers, topic, range(RECORDS // 2))
        first = [await done.get() for _ in range(RECORDS // 2)]
        members["anna"].cancel()
        await hire("dmitri")
        await send(servers, topic, range(RECORDS // 2, RECORDS))
        second = [await done.get() for _ in range(RECORDS // 2)]
        for task in members.values():
            task.cancel()
    for title, part in (("before the change of shift", first), ("after it", second)):
        print(f"{title}: {dict(sorted(Counter(name for name, _ in part).items()))}")
    assert sorted(number for _, number in first + second) == list(range(RECORDS))
    print(f"{RECORDS} records, each once")


def story(servers: str) -> None:
    with tutorial.topic(servers, "shift-work", partitions=PARTITIONS) as topic:
        asyncio.run(shift(servers, topic))


if __name__ == "__main__":
    tutorial.run(story, __doc__)
