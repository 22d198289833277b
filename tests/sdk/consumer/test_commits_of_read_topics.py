"""Offsets belong to the topic that was read: a consumer with assigned partitions commits none of them for the next
topic of the name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

import pytest
import pytest_asyncio
from scripted_cluster import ScriptedCluster
from scripted_groups import ScriptedCoordinators
from test_sdk_consumer import TP, fill, read, values

from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.consumer import commits as commits_module
from quorumlog.sdk.consumer.group_consumer import GroupConsumer
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.sdk.errors import UnknownTopicOrPartitionError
from quorumlog.sdk.types import OffsetAndMetadata

NEXT = b"n" * 16


@dataclass
class Reader:
    """A consumer of a group that has read 8 records of a topic by assignment."""

    cluster: ScriptedCluster
    script: ScriptedCoordinators
    consumer: AsyncConsumer

    async def make_anew(self) -> bytes:
        """Deletes the topic and creates it again, with 20 records; the client is notified. Returns the former's id."""
        former = self.cluster.topic_id
        self.cluster.topic_id, self.cluster.first_group = NEXT, 2000
        fill(self.cluster, 12)
        await self.consumer._core.cluster.ask_metadata(["t"])
        return former

    @property
    def group(self) -> GroupConsumer:
        found = self.consumer._core.group
        assert found is not None
        return found

    def committed(self) -> dict[int, tuple[bytes, int]]:
        group = self.script.groups.get("g")
        return {} if group is None else {p: (o.topic_id, o.offset) for p, o in group.offsets.items()}


@pytest_asyncio.fixture
async def reader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reader]:
    monkeypatch.setattr(commits_module, "_UNKNOWN_TOPIC_S", 0.05)
    cluster = ScriptedCluster()
    script = ScriptedCoordinators(cluster)
    script.leaders = [(1, 1)] * len(script.leaders)
    await cluster.start()
    fill(cluster, 8)
    async with AsyncConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    ) as consumer:
        await consumer.assign([TP])
        assert values(await read(consumer, 8)) == list(range(8))
        yield Reader(cluster, script, consumer)
    await cluster.stop()


async def test_what_was_read_of_a_deleted_topic_is_not_committed_for_the_next_one(reader: Reader) -> None:
    reader.consumer.pause(TP)  # A paused partition is not checked for what the topic is by now.
    await reader.make_anew()
    with pytest.raises(UnknownTopicOrPartitionError):
        await reader.consumer.commit()
    assert reader.committed() == {}


async def test_an_offset_that_the_application_names_is_of_what_it_was_given_last(reader: Reader) -> None:
    await reader.make_anew()
    state = reader.consumer._core.assignment.states[TP]
    assert state.topic_id == NEXT, "the consumer continues there"
    with pytest.raises(UnknownTopicOrPartitionError):
        await reader.consumer.commit({TP: OffsetAndMetadata(8)})
    assert reader.committed() == {}
    await read(reader.consumer, 20)
    await reader.consumer.commit({TP: OffsetAndMetadata(3)})
    assert reader.committed() == {0: (NEXT, 3)}


async def test_a_seek_means_the_topic_that_there_is(reader: Reader) -> None:
    await reader.make_anew()
    await reader.consumer.seek(TP, 2)
    await reader.consumer.commit({TP: OffsetAndMetadata(2)})
    assert reader.committed() == {0: (NEXT, 2)}


async def test_what_was_done_before_the_consumer_went_on_is_of_the_former_topic(reader: Reader) -> None:
    """An automatic commit is made in the background: between it and the poll that started it, the topic may change."""
    done = reader.consumer._core.consumed()
    assert done == {TP: OffsetAndMetadata(8, "", 1)}
    await reader.make_anew()
    await reader.group._commit_quietly(done)
    assert reader.committed() == {}
    assert reader.consumer._core.assignment.states[TP].committed == -1, "of the next one nothing is"


async def test_the_same_offset_of_the_next_topic_is_news(reader: Reader) -> None:
    await reader.consumer.commit()
    assert reader.consumer._core.assignment.states[TP].committed == 8
    await reader.make_anew()
    await read(reader.consumer, 8)
    state = reader.consumer._core.assignment.states[TP]
    state.position = 8
    await reader.group._commit_quietly(reader.consumer._core.consumed())
    assert reader.committed() == {0: (NEXT, 8)}


async def test_committed_offsets_are_begun_at_only_in_the_topic_that_they_are_of(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = reader.cluster.topic_id

    async def fetch(partitions: Collection[GroupPartition]) -> dict[GroupPartition, OffsetAndMetadata]:
        await reader.make_anew()  # Between the question and the answer.
        return dict.fromkeys(partitions, OffsetAndMetadata(5))

    await reader.consumer.assign([])
    monkeypatch.setattr(reader.group.commits, "fetch", fetch)
    starts = await reader.consumer._core._committed_starts([TP])
    assert [(state.topic_id, state.position) for state in starts.values()] == [(former, 5)]
