"""Writes and reads records with aiokafka: ``write SERVERS TOPIC CODEC``, ``read SERVERS TOPIC GROUP COUNT``."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from exchange import Line, print_lines, read_lines


async def write(servers: str, topic: str, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        max_request_size=2 << 20,
    )
    async with producer:
        sent = [
            await producer.send(topic, line.value, line.key, line.partition, line.timestamp, line.headers)
            for line in read_lines()
        ]
        await asyncio.gather(*sent)


async def read(servers: str, topic: str, group: str, count: str) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
    )
    left = int(count)
    async with consumer:
        while left:
            for records in (await consumer.getmany(timeout_ms=200, max_records=left)).values():
                print_lines(
                    Line(each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
                    for each in records
                )
                left -= len(records)
        await consumer.commit()


if __name__ == "__main__":
    done = {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
    asyncio.run(asyncio.wait_for(done, 60))
