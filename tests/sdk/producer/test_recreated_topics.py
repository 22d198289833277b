"""A producer whose topic's name another topic has: it continues there, never back, and takes no late word of
the former one for the new one's."""

from __future__ import annotations

import asyncio

from scripted_cluster import Produced, ScriptedCluster

from quorumlog.sdk.aio import AsyncProducer
from quorumlog.v1 import errors_pb2

NEXT = b"n" * 16


async def test_an_acknowledgement_of_a_topic_that_was_deleted_meanwhile_is_none_of_the_new_one(
    cluster: ScriptedCluster,
) -> None:
    """The batch was sent to both; what counts is what the present topic says."""
    holds = [asyncio.Event(), asyncio.Event()]
    came = [asyncio.Event(), asyncio.Event()]
    numbers = iter(range(2))

    async def hold(cluster: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        number = next(numbers)
        came[number].set()
        await holds[number].wait()
        return None

    cluster.on_produce = hold
    async with asyncio.timeout(60), AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = asyncio.ensure_future(await producer.send("t", b"x"))
        await came[0].wait()
        cluster.topic_id, cluster.first_group = NEXT, 2000
        await producer._core.cluster.ask_metadata(["t"])
        holds[0].set()
        await came[1].wait()
        done, _ = await asyncio.wait({sent}, timeout=0.5)
        assert not done, "the former topic has it, and that is gone"
        holds[1].set()
        await sent
