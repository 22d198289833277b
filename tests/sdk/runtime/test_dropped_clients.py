"""Clients that are dropped without being closed: they say so, and keep neither tasks nor connections."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from scripted_reading import fill

from quorumlog.sdk import Admin, Consumer, Producer
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

LIMIT_S = 60.0


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """One node that leads the one partition of ``t``, and coordinates groups."""
    made = ScriptedCluster()
    ScriptedMembers(made)
    await made.start()
    fill(made, 3)
    yield made
    await made.stop()


async def use_producer(servers: str) -> None:
    producer = AsyncProducer(bootstrap_servers=servers)
    await producer.send_and_wait("t", b"1")


async def use_consumer(servers: str) -> None:
    consumer = AsyncConsumer("t", bootstrap_servers=servers)
    await consumer.poll(10_000)


async def use_member(servers: str) -> None:
    consumer = AsyncConsumer("t", bootstrap_servers=servers, group_id="g")
    await consumer.poll(10_000)


async def use_admin(servers: str) -> None:
    admin = AsyncAdmin(bootstrap_servers=servers)
    await admin.list_topics()


def use_sync_producer(servers: str) -> None:
    producer = Producer(bootstrap_servers=servers)
    producer.send("t", b"1").result(LIMIT_S)


def use_sync_consumer(servers: str) -> None:
    consumer = Consumer("t", bootstrap_servers=servers)
    consumer.poll(10_000)


def use_sync_admin(servers: str) -> None:
    admin = Admin(bootstrap_servers=servers)
    admin.list_topics()


def tasks_of_clients() -> int:
    """The tasks of clients on this loop."""
    return sum("/sdk/" in repr(task) and "tests" not in repr(task) for task in asyncio.all_tasks())


async def collected(use: Awaitable[None]) -> None:
    """Uses a client, and collects it."""
    await use
    gc.collect()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("use", [use_producer, use_consumer, use_member, use_admin], ids=lambda use: use.__name__)
async def test_dropped_async_clients_are_closed(cluster: ScriptedCluster, use: Callable[[str], Any]) -> None:
    gc.collect()
    with pytest.warns(ResourceWarning, match="unclosed client <Async.* of 127.0.0.1:.*>: call close"):
        await collected(use(cluster.bootstrap_servers))
    await until(lambda: tasks_of_clients() == 0)


@pytest.mark.parametrize("use", [use_sync_producer, use_sync_consumer, use_sync_admin], ids=lambda use: use.__name__)
async def test_dropped_sync_clients_are_closed(cluster: ScriptedCluster, use: Callable[[str], None]) -> None:
    gc.collect()
    with warnings.catch_warnings(record=True, action="always") as caught:
        await asyncio.to_thread(use, cluster.bootstrap_servers)
        gc.collect()
    (only,) = [str(each.message) for each in caught if each.category is ResourceWarning]
    assert "unclosed client <" in only


async def test_closed_and_unused_clients_are_silent(cluster: ScriptedCluster) -> None:
    servers = cluster.bootstrap_servers
    gc.collect()
    with warnings.catch_warnings(action="error"):
        for make in (AsyncProducer, AsyncConsumer, AsyncAdmin):
            client = make(bootstrap_servers=servers)
            del client  # It has never connected.
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"1")
        del producer
        admin = Admin(bootstrap_servers=servers)
        await asyncio.to_thread(admin.list_topics)
        await asyncio.to_thread(admin.close)
        del admin
        gc.collect()


async def test_records_of_dropped_producers_are_sent(cluster: ScriptedCluster) -> None:
    async def drop() -> None:
        producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
        await producer.send("t", b"late")

    before = cluster.logs[0].next_offset
    with pytest.warns(ResourceWarning):
        await collected(drop())
    await until(lambda: cluster.logs[0].next_offset == before + 1)


ENDS = """
import asyncio, sys
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
PLACE
async def main():
    PLACE
    producer = AsyncProducer(bootstrap_servers=sys.argv[1])
    await producer.send_and_wait("t", b"x")
    consumer = AsyncConsumer("t", bootstrap_servers=sys.argv[1], group_id="left-open")
    await consumer.poll(3000)
asyncio.run(main())
"""


@pytest.mark.parametrize("place", ["", "global producer, consumer"], ids=["local", "global"])
async def test_programs_that_end_are_told(cluster: ScriptedCluster, place: str) -> None:
    """One warning for each client, and no traceback: also when the loop has been closed before."""
    script = ENDS.replace("\nPLACE\n", "\n").replace("PLACE", place)
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "always::ResourceWarning", "-c", script, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    reported = [line for line in ended.stderr.splitlines() if "unclosed client" in line]
    assert [("AsyncProducer" in line, "AsyncConsumer" in line) for line in sorted(reported, reverse=True)] == [
        (True, False),
        (False, True),
    ], ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
