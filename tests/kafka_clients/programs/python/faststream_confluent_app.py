"""Passes numbers on with FastStream over confluent-kafka, at least once: ``faststream_confluent_app.py SERVERS``."""

from __future__ import annotations

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(sys.argv[1], acks="all")


@broker.subscriber("numbers", group_id="faststream", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
@broker.publisher("results")
async def pass_on(number: int) -> int:
    return number


if __name__ == "__main__":
    asyncio.run(FastStream(broker).run())
