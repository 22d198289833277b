"""Fate of records that were accepted when the block of a producer is left, however it is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted_cluster import Produced, ScriptedCluster

from quorumlog.sdk import Producer
from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.records.record_batch import decode
from quorumlog.v1 import errors_pb2

COUNT = 50
SLOW = {"linger_ms": 60_000, "batch_size": 1_000}


@pytest.fixture(autouse=True)
def nodes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is closed waits for a second until nodes have read what they do not acknowledge. A machine may take
    that long to run anything at all."""
    monkeypatch.setattr("quorumlog.sdk.cluster.connection.CLOSE_TIMEOUT_S", 30.0)


class Mishap(Exception):
    """The application's."""


def written(cluster: ScriptedCluster) -> list[int]:
    return [int(value) for entry in cluster.logs[0].entries for value in decode(entry).columns.column(1).to_pylist()]


@pytest.mark.parametrize("options", [{}, {"acks": 0}, {"acks": 1}, {"producer_name": "n"}], ids=str)
@pytest.mark.parametrize("raises", [False, True])
async def test_what_an_async_producer_has_accepted_is_sent_when_its_block_is_left(
    cluster: ScriptedCluster, options: dict[str, Any], raises: bool
) -> None:
    try:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **SLOW, **options) as producer:
            handles = [await producer.send("t", b"%d" % number) for number in range(COUNT)]
            if raises:
                raise Mishap
    except Mishap:
        assert raises
    assert written(cluster) == list(range(COUNT))
    assert all(handle.exception(0) is None for handle in handles)


@pytest.mark.parametrize("options", [{}, {"acks": 0}], ids=str)
async def test_what_a_producer_has_accepted_is_sent_when_its_block_is_left_by_an_exception(
    cluster: ScriptedCluster, options: dict[str, Any]
) -> None:
    def application() -> None:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, **SLOW, **options) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number)
            raise Mishap

    with pytest.raises(Mishap):
        await asyncio.to_thread(application)
    assert written(cluster) == list(range(COUNT))


async def test_a_close_in_the_midst_of_a_burst_without_acknowledgements_drops_nothing(
    cluster: ScriptedCluster,
) -> None:
    """A stream that is cancelled loses what the node has not read yet, without any error."""

    async def slowly(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await asyncio.sleep(0.002)
        return None

    cluster.on_produce = slowly
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0, linger_ms=0, batch_size=1)
    for number in range(COUNT):
        await producer.send("t", b"%d" % number)
    await producer.close()
    assert written(cluster) == list(range(COUNT))


async def test_an_epoch_that_is_left_by_an_exception_sends_no_batch_that_a_replay_would_not_cut_so(
    cluster: ScriptedCluster,
) -> None:
    options = {"producer_name": "n", "producer_epoch": 3, "batch_size": 100_000}
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    with pytest.raises(Mishap):
        await leave_by_mishap(producer)
    assert written(cluster) == []


async def leave_by_mishap(producer: AsyncProducer) -> None:
    async with producer:
        await producer.send("t", b"1", partition=0, timestamp_ms=1)
        raise Mishap
