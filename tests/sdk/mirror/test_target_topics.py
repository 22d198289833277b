"""A topic is made here as far as its settings are known here."""

from __future__ import annotations

import pytest

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.mirror.source import KafkaSource, SourceTopic
from quorumlog.sdk.mirror.target_topics import chosen, settings_here


def test_settings_that_mean_the_same_are_taken_and_others_left() -> None:
    there = {"retention.ms": "60000", "segment.bytes": "1048576", "cleanup.policy": "compact,delete"}
    here = settings_here(there)
    assert here == {"retention.ms": "60000", "cleanup.policy": "compact", "max.message.bytes": "1114124"}


def test_the_largest_batch_has_room_for_what_is_around_it_and_a_limit() -> None:
    assert settings_here({"max.message.bytes": "2000000"})["max.message.bytes"] == "2065536"
    assert settings_here({"max.message.bytes": "99000000"})["max.message.bytes"] == "8388608"


def test_a_topic_that_is_not_there_is_named() -> None:
    topics = [SourceTopic("orders", 1, {}), SourceTopic("mirror-plans", 1, {})]
    assert [topic.name for topic in chosen(topics, None)] == ["orders"]
    with pytest.raises(IllegalArgumentError, match="no topic clicks"):
        chosen(topics, ["orders", "clicks"])


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "kafka://", "http://127.0.0.1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"kafka://127\.0\.0\.1:9092"):
        KafkaSource(address)
