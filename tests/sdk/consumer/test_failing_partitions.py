"""A partition that cannot be read does not keep those that can be."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from scripted_cluster import ScriptedCluster
from test_consumer_habits import several
from test_sdk_consumer import TP, consumer_on, fill, read

from quorumlog.sdk.consumer.assignment import Assignment
from quorumlog.sdk.errors import QuorumlogError, UnknownTopicOrPartitionError
from quorumlog.sdk.records.fetched import FetchedRows
from quorumlog.sdk.types import TopicPartition

GONE = TopicPartition("t", 1)


async def fetched_rows(cluster: ScriptedCluster) -> FetchedRows:
    fill(cluster, 4)
    return FetchedRows.of_entry(TP, cluster.logs[0].entries[0])


async def test_one_that_fails_in_every_poll_lets_the_others_have_theirs_in_between() -> None:
    async with several(2) as cluster:
        rows = await fetched_rows(cluster)
    assignment = Assignment(1 << 20, lambda: 0.0)
    assignment.add([GONE, TP], "earliest")
    bad, good = assignment.states[GONE], assignment.states[TP]
    good.position = rows.offset
    good.queued.append(rows)
    handed_out = said = 0
    for _ in range(8):
        bad.error = UnknownTopicOrPartitionError("it does not exist")
        try:
            taken, _ = assignment.take_fetched(1)
        except UnknownTopicOrPartitionError:
            said += 1
        else:
            handed_out += len(taken)
    assert handed_out == rows.columns.num_rows == 4
    assert said == 4


async def test_partitions_that_a_topic_made_anew_does_not_have_are_read_no_more() -> None:
    async with several(2) as cluster, consumer_on(cluster, "t", metadata_max_age_ms=20) as consumer:
        fill(cluster, 3)
        await read(consumer, 3)
        assert consumer.assignment() == {TP, GONE}
        cluster.topic_id = b"the next topic t"
        cluster.logs[:] = cluster.logs[:1]
        async with asyncio.timeout(30):
            while GONE in consumer.assignment():
                with suppress(QuorumlogError):
                    await consumer.poll(timeout_ms=20)
