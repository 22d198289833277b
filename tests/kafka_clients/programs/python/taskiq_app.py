"""Passes numbers on as tasks of taskiq.

``taskiq_app.py SERVERS FOLDER`` is a worker, ``taskiq_app.py SERVERS FOLDER send FIRST END`` sends tasks.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError
from taskiq.api import run_receiver_task
from taskiq_aio_kafka import AioKafkaBroker

servers = sys.argv[1]
broker = AioKafkaBroker(servers, kafka_topic="numbers")


def any_partition(_key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    return random.choice(available or partitions)


# The defaults are those of kafka-python, which do not work in aiokafka since kafka-python 3.
broker.configure_producer(partitioner=any_partition, acks="all", enable_idempotence=True)
broker.configure_consumer(
    group_id="taskiq", auto_offset_reset="earliest", partition_assignment_strategy=(RoundRobinPartitionAssignor,)
)
results: list[AIOKafkaProducer] = []


@broker.task
async def pass_on(number: int) -> None:
    await results[0].send_and_wait("results", b"%d" % number)


async def start() -> None:
    """Starts the broker; kafka-python's admin client gives up at the first node that is down."""
    while True:
        try:
            return await broker.startup()
        except KafkaConnectionError:
            await asyncio.sleep(0.2)


async def work() -> None:
    broker.is_worker_process = True
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        results.append(producer)
        await start()
        try:
            await run_receiver_task(broker)
        finally:
            await broker.shutdown()


async def send(first: int, end: int) -> None:
    await start()
    await asyncio.gather(*(pass_on.kiq(number) for number in range(first, end)))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(send(int(sys.argv[4]), int(sys.argv[5])) if sys.argv[3:4] == ["send"] else work())
