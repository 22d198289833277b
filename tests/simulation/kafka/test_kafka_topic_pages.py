"""Topics and their partitions page by page, as Kafka's newer administrators ask for them."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest, MetadataRequestTopic
from quorumlog.server.kafka.codec.metadata_responses import MetadataResponse
from quorumlog.server.kafka.codec.topic_partition_requests import (
    DescribedTopicRequest,
    DescribeTopicPartitionsRequest,
    PageBegin,
)
from quorumlog.server.kafka.codec.topic_partition_responses import DescribeTopicPartitionsResponse
from quorumlog.server.kafka.handlers import topic_pages
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_ALTER, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.kafka_steps import serve
from tests.support.quiet_cluster import TOPIC
from tests.support.restricted_cluster import Restricted
from tests.support.rights import rule

#: Kafka's set of all operations on a topic.
EVERYTHING = sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))


@pytest.fixture(scope="module")
def nodes() -> KafkaNodes:
    made = KafkaNodes()
    made.create_on("b-large", *([1, 2, 3] for _ in range(5)))
    made.create_on("a-small", [2, 3, 1])
    return made


def wish(*names: str, limit: int = 2_000, begin: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    cursor = None if begin is None else PageBegin(*begin)
    return DescribeTopicPartitionsRequest([DescribedTopicRequest(name) for name in names], limit, cursor)


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int, list[int]]]:
    return [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]


def pages(
    nodes: KafkaNodes, *names: str, limit: int
) -> list[tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]]:
    """All pages, each with where the next one starts."""
    found, begin = [], None
    for _ in range(20):
        answer = nodes.ask(wish(*names, limit=limit, begin=begin), DescribeTopicPartitionsResponse, node=2)
        after = answer.next_cursor
        begin = None if after is None else (after.topic_name, after.partition_index)
        found.append((shown(answer), begin))
        if begin is None:
            return found
    raise AssertionError(f"there is no end to {found}")


def test_a_topic_is_described_as_by_metadata(nodes: KafkaNodes) -> None:
    answer = nodes.ask(wish("a-small", "nowhere", "no/name"), DescribeTopicPartitionsResponse)
    by_name = {each.name: each for each in answer.topics}
    assert list(by_name) == ["a-small", "no/name", "nowhere"]
    assert by_name["nowhere"].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert by_name["no/name"].error_code == KafkaError.INVALID_TOPIC_EXCEPTION
    described, (partition,) = by_name["a-small"], by_name["a-small"].partitions
    request = MetadataRequest([MetadataRequestTopic(name="a-small")], include_topic_authorized_operations=True)
    (expected,) = nodes.ask(request, MetadataResponse).topics
    assert (described.topic_id, described.is_internal) == (expected.topic_id, expected.is_internal)
    assert described.topic_authorized_operations == expected.topic_authorized_operations == EVERYTHING
    assert [
        (partition.leader_id, partition.leader_epoch, list(partition.replica_nodes), list(partition.isr_nodes))
    ] == [
        (each.leader_id, each.leader_epoch, list(each.replica_nodes), list(each.isr_nodes))
        for each in expected.partitions
    ]
    assert (list(partition.offline_replicas), answer.next_cursor) == ([], None)


def test_pages_go_on_where_the_last_one_ended_in_the_order_of_names(nodes: KafkaNodes) -> None:
    assert pages(nodes, TOPIC, "b-large", "a-small", "b-large", limit=3) == [
        ([("a-small", 0, [0]), ("b-large", 0, [0, 1])], ("b-large", 2)),
        ([("b-large", 0, [2, 3, 4])], (TOPIC, 0)),
        ([(TOPIC, 0, [0])], None),
    ]
    assert pages(nodes, limit=6) == [
        ([("a-small", 0, [0]), ("b-large", 0, [0, 1, 2, 3, 4])], (TOPIC, 0)),
        ([(TOPIC, 0, [0])], None),
    ]


def test_a_page_has_a_partition_at_least_and_never_more_than_the_node_allows(
    nodes: KafkaNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (0, -5, 1):
        assert [len(page) for page, _ in pages(nodes, limit=limit)] == [1] * 7
    monkeypatch.setattr(topic_pages, "MOST_PARTITIONS", 2)
    assert [sum(len(each[2]) for each in page) for page, _ in pages(nodes, limit=2_000)] == [2, 2, 2, 1]


def test_what_is_unknown_takes_no_room_and_may_be_where_the_next_page_begins(nodes: KafkaNodes) -> None:
    assert pages(nodes, "a-small", "aa-nothing", "zz-nothing", limit=1) == [
        ([("a-small", 0, [0])], ("aa-nothing", 0)),
        ([("aa-nothing", 3, []), ("zz-nothing", 3, [])], None),
    ]


def test_a_page_that_begins_behind_the_last_partition_has_none_of_it(nodes: KafkaNodes) -> None:
    answer = nodes.ask(wish("b-large", begin=("b-large", 9)), DescribeTopicPartitionsResponse)
    assert shown(answer) == [("b-large", 0, [])]
    refused = nodes.ask(wish("b-large", begin=("b-large", -1)), DescribeTopicPartitionsResponse)
    assert shown(refused) == [("b-large", KafkaError.INVALID_REQUEST, [])]


def test_the_node_is_asked_for_few_topics_at_a_time(nodes: KafkaNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pages(nodes, limit=2_000)
    monkeypatch.setattr(topic_pages, "TOPICS_AT_ONCE", 1)
    assert pages(nodes, limit=2_000) == whole


def test_a_topic_that_is_hidden_is_not_even_where_a_page_begins() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    for name in ("a-mine", "b-hidden", "c-mine", "d-hidden"):
        cluster.create(name)
    everybody = "User:ANONYMOUS"
    cluster.allow(
        rule(everybody, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, "a-mine"),
        rule(everybody, ACL_OPERATION_ALTER, ACL_RESOURCE_TOPIC, "c-mine"),
    )
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)

    def ask(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        return ask_through(cluster, link, request, DescribeTopicPartitionsResponse)

    first = ask(wish(limit=1))
    assert shown(first) == [("a-mine", 0, [0])]
    assert first.next_cursor is not None
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("c-mine", 0)
    assert first.topics[0].topic_authorized_operations == 1 << ACL_OPERATION_DESCRIBE
    last = ask(wish(limit=1, begin=("c-mine", 0)))
    assert (shown(last), last.next_cursor) == ([("c-mine", 0, [0])], None)
    assert last.topics[0].topic_authorized_operations == 1 << ACL_OPERATION_ALTER | 1 << ACL_OPERATION_DESCRIBE
    hidden, unknown = ask(wish("b-hidden")), ask(wish("b-nothing"))
    hidden.topics[0].name = unknown.topics[0].name
    assert hidden == unknown
    assert hidden.topics[0].error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION


def test_a_page_of_all_topics_omits_deleted_ones() -> None:
    """A topic may be deleted after its name was read, and before the node describes it."""

    def reply(question: data_plane_pb2.MetadataRequest) -> data_plane_pb2.MetadataResponse:
        gone = Error(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics = [
            data_plane_pb2.TopicMetadata(name=each, error=gone if each == "t" else None) for each in question.topics
        ]
        return data_plane_pb2.MetadataResponse(topics=topics)

    assert shown(serve(wish(), 0, reply).answer) == [("u", 0, [])]
    assert [each[0] for each in shown(serve(wish("t", "u"), 0, reply).answer)] == ["t", "u"]
