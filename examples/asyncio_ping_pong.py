"""Ping-pong with asyncio: two coroutines answer each other over two topics, on one event loop."""

from __future__ import annotations

import asyncio

import tutorial

from quorumlog.sdk.aio import AsyncConsumer, AsyncProducer

ROUNDS = 5


async def player(servers: str, name: str, reads: str, writes: str, *, serves: bool) -> None:
    """Waits for a ball in one topic and returns it into the other."""
    async with (
        AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer,
        AsyncConsumer(reads, bootstrap_servers=servers) as consumer,
    ):
        if serves:
            await producer.send_and_wait(writes, b"0")
        async for record in consumer:
            ball = int(record.value)
            print(f"{name} has ball {ball}")
            await producer.send_and_wait(writes, str(ball + 1).encode())
            if ball + 2 >= 2 * ROUNDS:
                return


async def match(servers: str, left: str, right: str) -> None:
    async with asyncio.TaskGroup() as players:
        players.create_task(player(servers, "ping", left, right, serves=True))
        players.create_task(player(servers, "pong", right, left, serves=False))


def story(servers: str) -> None:
    with tutorial.topic(servers, "to-ping") as left, tutorial.topic(servers, "to-pong") as right:
        asyncio.run(match(servers, left, right))


if __name__ == "__main__":
    tutorial.run(story, __doc__)
