"""Topics hidden from a Kafka client add no cost: the node is asked for as many names as without them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.codec.topic_partition_requests import DescribeTopicPartitionsRequest
from quorumlog.server.kafka.handlers.handler import KafkaCall, Questions
from quorumlog.server.kafka.handlers.topic_pages import TOPICS_AT_ONCE, describe_topic_partitions
from quorumlog.server.metadata.records import Topic
from quorumlog.v1 import data_plane_pb2

MINE = ["a-mine", "x-mine"]


class HidingNode:
    """A node with topics that a client may see, and hidden ones."""

    def __init__(self, hidden: int) -> None:
        names = [*MINE, *(f"hidden-{number}" for number in range(hidden))]
        topics = {name: Topic(name, name.encode().ljust(16), {}) for name in names}
        self.image: Any = SimpleNamespace(topics=topics, brokers={})

    def sees_topic(self, principal: str, name: str) -> bool:
        return name in MINE


def names_asked_for(hidden: int) -> list[list[str]]:
    """Returns the names in each metadata request to the node when a client requests all topics.

    Arguments:
        hidden: number of topics that the client may not see.
    """
    view = ImageView(HidingNode(hidden), 1).seen_by(cast(Any, SimpleNamespace(principal="User:alice")))
    steps = describe_topic_partitions(KafkaCall(DescribeTopicPartitionsRequest([], 2_000, None), 0, view))
    requests: list[list[str]] = []
    step = next(steps)
    while True:
        assert isinstance(step, Questions)
        (question,) = step.messages
        assert isinstance(question, data_plane_pb2.MetadataRequest)
        requests.append(list(question.topics))
        reply = data_plane_pb2.MetadataResponse(
            topics=[data_plane_pb2.TopicMetadata(name=name) for name in question.topics]
        )
        try:
            step = steps.send([reply])
        except StopIteration:
            return requests


@pytest.mark.parametrize("hidden", [0, 1, TOPICS_AT_ONCE + 100])
def test_topics_that_a_client_may_not_know_of_are_not_asked_for(hidden: int) -> None:
    assert names_asked_for(hidden) == [MINE]
