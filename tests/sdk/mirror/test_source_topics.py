"""Topics of a Kafka cluster that a mirror copies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from quorumlog.sdk.mirror.source import KafkaSource

pytest.importorskip("confluent_kafka")


def test_underscored_topics_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's own topics are left out, by their exact names; those of its users' tools are copied."""
    names = ("orders", "__debezium-heartbeat.shop", "__consumer_offsets", "__transaction_state", "__share_group_state")
    listed = SimpleNamespace(
        topics={name: SimpleNamespace(topic=name, partitions={0: None}, error=None) for name in names}
    )
    with KafkaSource("kafka://127.0.0.1:1") as source:
        monkeypatch.setattr(
            source,
            "_admin",
            SimpleNamespace(list_topics=lambda timeout: listed, describe_configs=lambda *_, **__: {}),
        )
        assert [topic.name for topic in source.topics()] == ["__debezium-heartbeat.shop", "orders"]
