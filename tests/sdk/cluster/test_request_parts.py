"""A node takes 10,000 things in one request. What a client asks for beyond that goes in several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hand_driven_cluster import TOPIC_ID, Code, HandDrivenCluster
from scripted_cluster import error as refusal

from quorumlog.sdk.admin.group_admin import GroupAdmin
from quorumlog.sdk.admin.partition_admin import PartitionAdmin
from quorumlog.sdk.admin.topic_changes import TopicChanges
from quorumlog.sdk.arguments import MAX_TEXT_BYTES, checked_commits
from quorumlog.sdk.cluster.coordinators import CoordinatorCache
from quorumlog.sdk.cluster.leader_probe import LeaderProbes
from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.cluster.offset_search import LATEST
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.consumer.assignment import PartitionState
from quorumlog.sdk.consumer.commits import Commits, Committer
from quorumlog.sdk.consumer.fetch_session import FetchSession, Wanted
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.sdk.errors import (
    InvalidRequestError,
    NetworkError,
    OffsetMetadataTooLargeError,
    QuorumlogError,
    TopicAlreadyExistsError,
)
from quorumlog.sdk.types import NewTopic, OffsetAndMetadata, TopicPartition
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.requests.resolve_ids import check_targets
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, groups_pb2
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS, MAX_CHANGED_TOPICS, MAX_ITEMS

MANY = MAX_ITEMS + 7
Answer = Callable[[Any], Any]


def test_the_parts_have_all_things_in_their_order() -> None:
    assert [len(part) for part in in_parts(range(25_000))] == [10_000, 10_000, 5_000]
    assert [each for part in in_parts(range(25_000)) for each in part] == list(range(25_000))
    assert list(in_parts([])) == []


class StrictCalls:
    """Stands for a stub: refuses what a node would refuse for its length, and answers the rest."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.sizes: list[int] = []
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, timeout: float | None = None) -> asyncio.Future[Any]:
            made = asyncio.get_running_loop().create_future()
            sizes = [len(value) for field, value in request.ListFields() if field.is_repeated]
            if sizes and max(sizes) > MAX_ITEMS:
                made.set_exception(InvalidRequestError(f"{max(sizes)} items: ask in parts"))
            else:
                if name in self._answers:
                    self.sizes += sizes[:1]
                try:
                    made.set_result(self._answers.get(name, lambda _: None)(request))
                except QuorumlogError as error:
                    made.set_exception(error)
            return made

        return call


def world(stub: str, partitions: int = MANY, **answers: Answer) -> tuple[HandDrivenCluster, StrictCalls]:
    """A cluster of which node 1 leads all of ``t``, and answers calls of one stub."""
    cluster = HandDrivenCluster()
    cluster.show(*[1] * partitions)
    calls = StrictCalls(answers)
    for node in cluster.nodes.values():
        setattr(node, stub, calls)
    return cluster, calls


WHOLE = {TopicPartition("t", number): number for number in range(MANY)}


def offsets(request: data_plane_pb2.ListOffsetsRequest) -> data_plane_pb2.ListOffsetsResponse:
    response = data_plane_pb2.ListOffsetsResponse()
    for part in request.partitions:
        response.results.add(topic_id=part.topic_id, partition=part.partition, offset=part.partition)
    return response


async def test_offsets_of_more_partitions_than_one_request_takes_are_looked_up() -> None:
    cluster, calls = world("data_plane", ListOffsets=offsets)
    found = await find_offsets(cluster, dict.fromkeys(WHOLE, LATEST), 5)
    assert {tp: place.offset for tp, place in found.items()} == WHOLE
    assert sorted(calls.sizes) == [7, MAX_ITEMS]


async def test_replicas_are_asked_about_more_leaders_than_one_request_takes() -> None:
    cluster, calls = world("data_plane", ListOffsets=offsets)
    LeaderProbes(cluster, lambda: None).ask_about(WHOLE)
    await asyncio.gather(*cluster._background)
    assert sorted(calls.sizes) == [7, 7, MAX_ITEMS, MAX_ITEMS], "two nodes do not lead"


async def test_topics_beyond_one_request_are_described() -> None:
    def describe(request: data_plane_pb2.MetadataRequest) -> data_plane_pb2.MetadataResponse:
        response = data_plane_pb2.MetadataResponse(cluster_id="c")
        response.brokers.add(node_id=1, host="node-1", port=1)
        for name in request.topics:
            described = response.topics.add(name=name, topic_id=name.encode().rjust(16, b"-"))
            described.partitions.add(partition=0, leader=1, leader_epoch=1, replicas=[1])
        return response

    cluster, calls = world("data_plane", Metadata=describe)
    heard: list[int] = []
    cluster.on_change(lambda: heard.append(len(cluster.metadata.topics)))
    names = [f"topic-{number:05}" for number in range(MANY)]
    views = await cluster.ensure_topics(names, 5)
    assert list(views) == names and heard == [MANY + 1], "a change is reported when it is complete"
    response = await cluster.ask_metadata(names)
    assert [topic.name for topic in response.topics] == names
    assert calls.sizes == [MAX_ITEMS, 7] * 2


class Coordinators(CoordinatorCache):
    """Node 1 coordinates every group."""

    async def require_each(self, group_ids: Any) -> Any:
        (node,) = [node for number, node in self._cluster.nodes.items() if number == 1]  # type: ignore[attr-defined]
        return dict.fromkeys(group_ids, node)


GROUP = {GroupPartition(TOPIC_ID, number): OffsetAndMetadata(number) for number in range(MANY)}


def commit_all(request: groups_pb2.CommitOffsetsRequest) -> groups_pb2.CommitOffsetsResponse:
    response = groups_pb2.CommitOffsetsResponse()
    for row in request.offsets:
        response.results.add(topic_id=row.topic_id, partition=row.partition)
    return response


async def test_a_commit_of_more_partitions_than_one_request_takes_is_made_in_parts() -> None:
    numbers: list[int] = []

    def commit(request: groups_pb2.CommitOffsetsRequest) -> groups_pb2.CommitOffsetsResponse:
        numbers.append(request.number)
        return commit_all(request)

    cluster, calls = world("groups", CommitOffsets=commit)
    commits = Commits(cluster, Coordinators(cluster), "g", 5)
    await commits.commit(GROUP, lambda _: Committer("m", 1))
    assert calls.sizes == [MAX_ITEMS, 7] and numbers == [1, 1], "it is one commit"


LONG = "x" * 4_096
#: So many texts of that length fit into one request.
TEXTS = MAX_TEXT_BYTES // len(LONG)


async def test_a_commit_with_more_text_than_one_request_takes_is_made_in_parts() -> None:
    cluster, calls = world("groups", CommitOffsets=commit_all)
    commits = Commits(cluster, Coordinators(cluster), "g", 5)
    places = list(GROUP)[: 2 * TEXTS + 7]
    await commits.commit({place: OffsetAndMetadata(1, LONG) for place in places}, lambda _: Committer("m", 1))
    assert calls.sizes == [TEXTS, TEXTS, 7]


def test_a_text_that_no_request_takes_is_refused_before_anything_is_sent() -> None:
    tp = TopicPartition("t", 3)
    assert checked_commits({tp: OffsetAndMetadata(1, "x" * MAX_TEXT_BYTES)})
    with pytest.raises(OffsetMetadataTooLargeError, match=r"beside offset 1 of t-3 has 4194305 bytes"):
        checked_commits({tp: OffsetAndMetadata(1, "x" * (MAX_TEXT_BYTES - 1) + "é")})


async def test_offsets_committed_to_more_topics_than_one_request_takes_are_fetched() -> None:
    wanted = [GroupPartition(number.to_bytes(16), 0) for number in range(MANY)]

    def fetch(request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
        response = groups_pb2.FetchOffsetsResponse()
        for topic in request.topics:
            response.offsets.add(topic_id=topic.topic_id, partition=0, offset=5, leader_epoch=-1)
        return response

    cluster, calls = world("groups", FetchOffsets=fetch)
    found = await Commits(cluster, Coordinators(cluster), "g", 5).fetch(wanted)
    assert found == dict.fromkeys(wanted, OffsetAndMetadata(5))
    assert calls.sizes == [MAX_ITEMS, 7]


async def test_groups_beyond_one_request_are_described_and_their_coordinators_found() -> None:
    def find(request: groups_pb2.FindCoordinatorsRequest) -> groups_pb2.FindCoordinatorsResponse:
        response = groups_pb2.FindCoordinatorsResponse()
        for group_id in request.group_ids:
            response.coordinators.add(group_id=group_id, node_id=1, host="127.0.0.1", port=1, leader_epoch=1)
        return response

    def describe(request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse:
        response = groups_pb2.DescribeGroupsResponse()
        for group_id in request.group_ids:
            response.groups.add(group_id=group_id, state=groups_pb2.GROUP_EMPTY)
        return response

    cluster, calls = world("groups", FindCoordinators=find, DescribeGroups=describe)
    names = [f"group-{number:05}" for number in range(MANY)]
    described = await GroupAdmin(cluster, 5).describe(names)
    assert [group.group_id for group in described] == names
    assert calls.sizes == [MAX_ITEMS, 7] * 2


@pytest.fixture
def known_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names mean the topic ``t`` of these tests."""

    async def ids(cluster: object, names: Any, limit_s: float) -> dict[str, bytes]:
        return dict.fromkeys(names, TOPIC_ID)

    for module in ("partition_admin.topic_ids_of", "partition_admin.require_topic_ids", "topic_changes.topic_ids_of"):
        monkeypatch.setattr(f"quorumlog.sdk.admin.{module}", ids)
    monkeypatch.setattr("quorumlog.sdk.admin.group_admin.require_topic_ids", ids)

    async def one(cluster: HandDrivenCluster) -> object:
        return cluster.nodes[1]

    monkeypatch.setattr("quorumlog.sdk.cluster.itemised_change.one_node", one)
    monkeypatch.setattr("quorumlog.sdk.admin.partition_admin.one_node", one)


@pytest.mark.usefixtures("known_ids")
async def test_records_of_more_partitions_than_one_request_takes_are_deleted() -> None:
    def delete(request: admin_pb2.DeleteRecordsRequest) -> admin_pb2.DeleteRecordsResponse:
        response = admin_pb2.DeleteRecordsResponse()
        for each in request.partitions:
            response.results.add(topic_id=each.topic_id, partition=each.partition, log_start_offset=each.before_offset)
        return response

    cluster, calls = world("admin", DeleteRecords=delete)
    assert await PartitionAdmin(cluster, 5).delete_records(WHOLE) == WHOLE
    assert sorted(calls.sizes) == [7, MAX_ITEMS]


@pytest.mark.usefixtures("known_ids")
async def test_leaders_of_more_partitions_than_one_request_takes_are_elected() -> None:
    def elect(request: admin_pb2.ElectLeadersRequest) -> admin_pb2.ElectLeadersResponse:
        response = admin_pb2.ElectLeadersResponse()
        for each in request.partitions:
            response.results.add(topic=each.topic, partition=each.partition)
        return response

    cluster, calls = world("admin", ElectLeaders=elect)
    assert await PartitionAdmin(cluster, 5).elect_leaders(list(WHOLE)) == dict.fromkeys(WHOLE)
    assert calls.sizes == [MAX_ITEMS, 7]


NEW_TOPICS = [NewTopic(f"topic-{number:03}", 1, 1, {}) for number in range(2 * MAX_CHANGED_TOPICS + 7)]


def create(
    request: admin_pb2.CreateTopicsRequest, refused: Mapping[str, errors_pb2.Error] | None = None
) -> admin_pb2.CreateTopicsResponse:
    results = [
        admin_pb2.CreateTopicResult(name=topic.name, error=(refused or {}).get(topic.name)) for topic in request.topics
    ]
    return admin_pb2.CreateTopicsResponse(results=results)


@pytest.mark.usefixtures("known_ids")
async def test_changes_of_more_topics_than_one_request_takes_are_made_in_parts() -> None:
    names: list[str] = []

    def answer(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        names.extend(topic.name for topic in request.topics)
        return create(request)

    cluster, calls = world("admin", CreateTopics=answer)
    await TopicChanges(cluster, 5).create(NEW_TOPICS, True)
    assert calls.sizes == [MAX_CHANGED_TOPICS, MAX_CHANGED_TOPICS, 7]
    assert names == [topic.name for topic in NEW_TOPICS], "in their order"


def test_the_controller_takes_as_many_topics_in_a_change_as_clients_send() -> None:
    assert TopicLimits().request_topics == MAX_CHANGED_TOPICS


@pytest.mark.usefixtures("known_ids")
async def test_replicas_of_more_partitions_than_one_request_takes_are_moved() -> None:
    def reassign(request: admin_pb2.ReassignPartitionsRequest) -> admin_pb2.ReassignPartitionsResponse:
        assert check_targets(request) is None
        response = admin_pb2.ReassignPartitionsResponse()
        for wanted in request.reassignments:
            response.results.add(topic=wanted.topic, partition=wanted.partition)
        return response

    cluster, calls = world("admin", ReassignPartitions=reassign)
    wanted = {TopicPartition("t", number): [1] for number in range(MAX_CHANGE_TARGETS + 7)}
    await PartitionAdmin(cluster, 5).reassign(wanted, 0, validate_only=False)
    assert calls.sizes == [MAX_CHANGE_TARGETS, 7]


EXISTS = refusal(Code.TOPIC_ALREADY_EXISTS, retriable=False)


@pytest.mark.usefixtures("known_ids")
async def test_a_part_that_fails_does_not_keep_the_others_from_being_tried_and_what_failed_is_named() -> None:
    requests: list[str] = []

    def answer(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        requests.append(request.topics[0].name)
        if len(requests) == 1:
            raise InvalidRequestError("no")
        return create(request, {"topic-101": EXISTS})

    cluster, _ = world("admin", CreateTopics=answer)
    with pytest.raises(InvalidRequestError) as caught:
        await TopicChanges(cluster, 5).create(NEW_TOPICS, True)
    assert requests == ["topic-000", "topic-100", "topic-200"], "each once"
    first = ", ".join(f"topic-{number:03}" for number in range(20))
    assert caught.value.message == f"no (failed: {first} and 81 more; the other 106 succeeded)"
    assert caught.value.definite


@pytest.mark.usefixtures("known_ids")
async def test_what_may_be_tried_again_is_though_another_one_has_failed_for_good() -> None:
    requests: list[list[str]] = []
    busy = {"topic-001": EXISTS, "topic-103": refusal(Code.SERVER_BUSY)}

    def answer(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        requests.append([topic.name for topic in request.topics])
        return create(request, busy if len(requests) <= 3 else {})

    cluster, _ = world("admin", CreateTopics=answer)
    with pytest.raises(TopicAlreadyExistsError) as caught:
        await TopicChanges(cluster, 5).create(NEW_TOPICS, True)
    assert requests[3:] == [["topic-103"]]
    assert caught.value.message == "topic_already_exists (failed: topic-001; the other 206 succeeded)"


@pytest.mark.usefixtures("known_ids")
@pytest.mark.parametrize("how", ["lost", "left out"])
async def test_what_nobody_has_answered_for_may_be_done(how: str) -> None:
    def answer(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        if how == "lost" and request.topics[0].name != "topic-000":
            raise NetworkError("lost")
        response = create(request, {"topic-001": EXISTS})
        if how == "left out":
            del response.results[5:]
        return response

    cluster, _ = world("admin", CreateTopics=answer)
    with pytest.raises(TopicAlreadyExistsError, match=r"failed: topic-001, topic-") as caught:
        await TopicChanges(cluster, 0.2).create(NEW_TOPICS[:101], True)
    assert not caught.value.definite


@pytest.mark.usefixtures("known_ids")
async def test_an_administrator_commits_more_offsets_than_one_request_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_range(self: object, offsets: object) -> None:
        return

    monkeypatch.setattr(GroupAdmin, "_check_ranges", in_range)
    cluster, calls = world("groups", CommitOffsets=commit_all)
    admin = GroupAdmin(cluster, 5)
    admin._coordinators = Coordinators(cluster)
    await admin.alter_offsets("g", {tp: OffsetAndMetadata(number) for tp, number in WHOLE.items()})
    assert calls.sizes == [MAX_ITEMS, 7]
    await admin.alter_offsets("g", {tp: OffsetAndMetadata(1, LONG) for tp in list(WHOLE)[: TEXTS + 7]})
    assert calls.sizes[2:] == [TEXTS, 7], "nor more text than it takes"


async def test_a_fetch_names_no_more_partitions_than_a_node_takes_and_the_next_one_the_rest() -> None:
    cluster, _ = world("data_plane", 1)
    session = FetchSession(cluster.nodes[1], 1, True)
    wanted = []
    for number in range(MANY):
        state = PartitionState(TopicPartition("t", number), "earliest")
        state.fetch_offset = 0
        wanted.append(Wanted(state, TOPIC_ID, 1))
    first = session.next_fetch(wanted, 0.0, 1 << 20, 1 << 20)
    second = session.next_fetch(wanted, 0.0, 1 << 20, 1 << 20)
    assert first is not None and second is not None
    assert [len(fetch.request.partitions) for fetch in (first, second)] == [MAX_ITEMS, 7]
    assert {p.partition for fetch in (first, second) for p in fetch.request.partitions} == set(range(MANY))
    for fetch in (first, second):
        session.answered(fetch)
    third = session.next_fetch(wanted[:3], 0.0, 1 << 20, 1 << 20)
    assert third is not None
    session.answered(third)
    fourth = session.next_fetch(wanted[:3], 0.0, 1 << 20, 1 << 20)
    assert len(third.request.forgotten) == MAX_ITEMS
    assert fourth is not None and len(fourth.request.forgotten) == 4, "those that the first has left"
    assert set(session.known) == {(TOPIC_ID, number) for number in range(3)}
