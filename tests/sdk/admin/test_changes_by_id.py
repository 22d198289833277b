"""A change that is asked for again carries the ids that its names had at first: what was made since is not touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from scripted_cluster import Code, ScriptedCluster, error

from quorumlog.sdk.aio import AsyncAdmin
from quorumlog.sdk.cluster.topic_ids import NO_TOPIC_ID
from quorumlog.sdk.errors import ProducerNameNotFoundError, QuorumlogError, UnknownTopicOrPartitionError
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2, errors_pb2

FORMER, NEXT = b"f" * 16, b"n" * 16
LOST = error(Code.REQUEST_TIMED_OUT, retriable=True, definite=False)
GONE = error(Code.UNKNOWN_TOPIC_OR_PARTITION, retriable=False)


class Nodes:
    """Nodes that have one topic, identified by its id. The first change of it is carried out and its answer lost;
    before the second one the topic has been deleted, and another one has its name."""

    def __init__(self, cluster: ScriptedCluster, admin: AsyncAdmin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.asked: list[bytes] = []
        self.refresh: asyncio.Task[object] | None = None
        cluster.topic_id = FORMER
        cluster.on_delete_topics = self.delete
        cluster.on_alter_configs = self.alter
        cluster.on_create_partitions = self.grow
        cluster.on_reassign = self.reassign
        cluster.on_delete_records = self.delete_records

    def outcome(self, topic_id: bytes) -> errors_pb2.Error:
        self.asked.append(topic_id)
        if len(self.asked) == 1:
            self.cluster.topic_id = NEXT
            self.cluster.first_group += 1
            # The client receives that topic in the meantime.
            self.refresh = asyncio.create_task(self.admin._cluster.ask_metadata(["t"]))
            return LOST
        return GONE

    def delete(self, request: admin_pb2.DeleteTopicsRequest) -> admin_pb2.DeleteTopicsResponse:
        ((name, topic_id),) = zip(request.names, request.topic_ids, strict=True)
        result = admin_pb2.TopicResult(name=name, error=self.outcome(topic_id))
        return admin_pb2.DeleteTopicsResponse(results=[result])

    def alter(self, request: admin_pb2.AlterConfigsRequest) -> admin_pb2.AlterConfigsResponse:
        result = admin_pb2.TopicResult(name="t", error=self.outcome(request.topics[0].topic_id))
        return admin_pb2.AlterConfigsResponse(results=[result])

    def grow(self, request: admin_pb2.CreatePartitionsRequest) -> admin_pb2.CreatePartitionsResponse:
        result = admin_pb2.TopicResult(name="t", error=self.outcome(request.topics[0].topic_id))
        return admin_pb2.CreatePartitionsResponse(results=[result])

    def reassign(self, request: admin_pb2.ReassignPartitionsRequest) -> admin_pb2.ReassignPartitionsResponse:
        result = admin_pb2.ReassignmentResult(topic="t", error=self.outcome(request.reassignments[0].topic_id))
        return admin_pb2.ReassignPartitionsResponse(results=[result])

    def delete_records(self, request: admin_pb2.DeleteRecordsRequest) -> admin_pb2.DeleteRecordsResponse:
        part = request.partitions[0]
        result = admin_pb2.DeleteRecordsResult(
            topic_id=part.topic_id, partition=0, error=self.outcome(part.topic_id), log_start_offset=-1
        )
        return admin_pb2.DeleteRecordsResponse(results=[result])


@pytest_asyncio.fixture
async def admin(cluster: ScriptedCluster) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


async def test_a_deletion_that_is_asked_for_again_means_the_same_topic(
    cluster: ScriptedCluster, admin: AsyncAdmin
) -> None:
    nodes = Nodes(cluster, admin)
    await admin.delete_topics(["t"])  # The topic to delete is gone: done.
    assert nodes.asked == [FORMER, FORMER]


CHANGES: dict[str, Callable[[AsyncAdmin], Awaitable[object]]] = {
    "alter_configs": lambda admin: admin.alter_configs({"t": {"retention.ms": 1}}),
    "create_partitions": lambda admin: admin.create_partitions({"t": 3}),
    "reassign_partitions": lambda admin: admin.reassign_partitions({TopicPartition("t", 0): [1]}),
    "delete_records": lambda admin: admin.delete_records({TopicPartition("t", 0): 3}),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_is_asked_for_again_means_the_same_topic(
    cluster: ScriptedCluster, admin: AsyncAdmin, change: str
) -> None:
    nodes = Nodes(cluster, admin)
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        await CHANGES[change](admin)
    assert nodes.asked == [FORMER, FORMER]
    assert not caught.value.definite, "the first attempt may have been carried out"


async def test_a_topic_that_is_not_there_is_no_later_one(cluster: ScriptedCluster, admin: AsyncAdmin) -> None:
    requests: list[bytes] = []

    def delete(request: admin_pb2.DeleteTopicsRequest) -> admin_pb2.DeleteTopicsResponse:
        requests.extend(request.topic_ids)
        return admin_pb2.DeleteTopicsResponse(results=[admin_pb2.TopicResult(name="other", error=GONE)])

    cluster.on_delete_topics = delete
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.delete_topics(["other"])
    assert requests == [NO_TOPIC_ID]


async def test_an_election_is_asked_for_by_id(cluster: ScriptedCluster, admin: AsyncAdmin) -> None:
    requests: list[bytes] = []

    def elect(request: admin_pb2.ElectLeadersRequest) -> admin_pb2.ElectLeadersResponse:
        requests.extend(named.topic_id for named in request.partitions)
        return admin_pb2.ElectLeadersResponse(results=[admin_pb2.ElectLeadersResult(topic="t", partition=0)])

    cluster.on_elect = elect
    assert await admin.elect_leaders([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
    assert requests == [cluster.topic_id]


# -- producer names ---------------------------------------------------------------------------------------------------


class Names:
    """Nodes that have producer names. The first deletion is carried out and its answer lost; before the second one the
    name has been claimed again."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.claim = (1 << 62, 5)
        self.asked: list[tuple[int, int]] = []
        self.listed: list[list[str]] = []
        cluster.on_list_producers = self.list
        cluster.on_delete_producers = self.delete

    def list(self, request: admin_pb2.ListProducersRequest) -> admin_pb2.ListProducersResponse:
        self.listed.append([*request.names])
        response = admin_pb2.ListProducersResponse()
        # As a node of a version that cannot look up single names, others with the same prefix are reported too.
        for name in ("etl", "etl-other"):
            if name.startswith(request.prefix):
                response.producers.add(name=name, producer_id=self.claim[0], producer_epoch=self.claim[1])
        return response

    def delete(self, request: admin_pb2.DeleteProducersRequest) -> admin_pb2.DeleteProducersResponse:
        self.asked += [(claim.producer_id, claim.producer_epoch) for claim in request.claims]
        again = len(self.asked) > 1
        self.claim = ((1 << 62) + 1, 0)
        refusal = error(Code.PRODUCER_NAME_NOT_FOUND, retriable=False) if again else LOST
        result = admin_pb2.DeleteProducerResult(name=request.names[0], error=refusal)
        return admin_pb2.DeleteProducersResponse(results=[result])


async def test_a_deletion_that_is_asked_for_again_means_the_same_claim(
    cluster: ScriptedCluster, admin: AsyncAdmin
) -> None:
    names = Names(cluster)
    await admin.delete_producers(["etl"])
    assert names.asked == [(1 << 62, 5)] * 2
    assert names.listed == [["etl"]]


async def test_a_name_that_nobody_has_is_none_that_is_claimed_later(
    cluster: ScriptedCluster, admin: AsyncAdmin
) -> None:
    names = Names(cluster)
    names.asked.append((0, 0))
    with pytest.raises(ProducerNameNotFoundError):
        await admin.delete_producers(["nobody"])
    assert names.asked[1:] == [(-1, -1)]


async def test_nothing_is_changed_where_nobody_can_tell_what_is_meant(
    cluster: ScriptedCluster, admin: AsyncAdmin
) -> None:
    """An answer that could not be made as new as the question names no topics; they are not missing."""
    truth = cluster.metadata
    refusals = [error(Code.REQUEST_TIMED_OUT, retriable=True)]

    def answer(request: object) -> object:
        if getattr(request, "linearizable", False) and refusals:
            response = truth(request)  # type: ignore[arg-type]
            del response.topics[:]
            response.error.CopyFrom(refusals.pop())
            return response
        return truth(request)  # type: ignore[arg-type]

    cluster.metadata = answer  # type: ignore[method-assign, assignment]
    nodes = Nodes(cluster, admin)
    await admin.delete_topics(["t"])
    assert nodes.asked == [FORMER, FORMER]
    refusals.append(error(Code.INVALID_REQUEST, retriable=False))
    with pytest.raises(QuorumlogError):
        await admin.delete_topics(["t"])
    assert len(nodes.asked) == 2
