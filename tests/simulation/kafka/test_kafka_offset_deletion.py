"""Committed offsets that Kafka's clients delete: each result belongs to the partition that it names."""

from __future__ import annotations

import struct

import pytest

from quorumlog.server.kafka.codec import topic_requests
from quorumlog.server.kafka.codec.groups import commit_requests, membership_requests
from quorumlog.server.kafka.codec.groups.commit_responses import OffsetDeleteResponse
from quorumlog.server.kafka.codec.groups.membership_responses import JoinGroupResponse
from quorumlog.server.kafka.codec.topic_responses import CreateTopicsResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from tests.simulation.kafka.test_kafka_mapping import GROUP, Rig, coordinator, creation

READ, OTHER = "alpha", "beta"


def subscription(*topics: str) -> bytes:
    """Returns the subscription of a member in the format of Kafka's consumers."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@pytest.fixture
def rig() -> Rig:
    """With two topics, and a member that reads one of them."""
    made = Rig()
    topics = [topic_requests.CreatableTopic(name, 2, 3) for name in (READ, OTHER)]
    created = made.ask(creation(*topics), 7, CreateTopicsResponse)
    assert [each.error_code for each in created.topics] == [0, 0]
    protocols = [membership_requests.JoinGroupRequestProtocol("range", subscription(READ))]
    join = membership_requests.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", protocols)
    assert made.ask(join, 3, JoinGroupResponse, coordinator(made)).error_code == 0
    return made


def deleted(rig: Rig, *places: tuple[str, list[int]]) -> list[tuple[str, int, int]]:
    """Deletes offsets; returns the topic, partition and error code of each result, in the order of the answer."""
    topics = [
        commit_requests.OffsetDeleteRequestTopic(
            topic, [commit_requests.OffsetDeleteRequestPartition(number) for number in numbers]
        )
        for topic, numbers in places
    ]
    request = commit_requests.OffsetDeleteRequest(GROUP, topics)
    answer = rig.ask(request, 0, OffsetDeleteResponse, coordinator(rig))
    assert answer.error_code == 0
    return [(topic.name, each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize("order", [(READ, OTHER), (OTHER, READ)])
def test_an_outcome_belongs_to_its_partition_in_whatever_order_they_are_named(rig: Rig, order: tuple[str, str]) -> None:
    expected = {READ: KafkaError.GROUP_SUBSCRIBED_TO_TOPIC, OTHER: KafkaError.NONE}
    assert deleted(rig, *((topic, [1, 0]) for topic in order)) == [
        (topic, number, expected[topic]) for topic in order for number in (1, 0)
    ]


def test_a_partition_that_is_named_twice_is_answered_twice(rig: Rig) -> None:
    assert deleted(rig, (OTHER, [0, 0]), (OTHER, [0])) == [(OTHER, 0, KafkaError.NONE)] * 3
