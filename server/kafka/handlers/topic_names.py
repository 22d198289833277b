"""Topic names and ids of Kafka's requests, resolved to the ids that the node's messages use."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaClusterView, Steps, ask
from quorumlog.v1 import data_plane_pb2

#: The largest leader epoch that Kafka's field can hold.
_MOST_LEADER_EPOCH = (1 << 31) - 1
_NO_LEADER_EPOCH = -1


def find_topics(cluster: KafkaClusterView, names: Iterable[str]) -> Steps[dict[str, bytes | KafkaError]]:
    """Returns the ids of topics, or the error for each that cannot be resolved.

    A name that is not visible here is looked up at the node, which decides what its client may learn of it.
    """
    resolved: dict[str, bytes | KafkaError] = {}
    unknown = []
    for name in dict.fromkeys(names):
        topic_id = cluster.topic_id(name)
        if topic_id is None:
            unknown.append(name)
        else:
            resolved[name] = topic_id
    if unknown:
        reply = yield from ask(data_plane_pb2.MetadataRequest(topics=unknown), data_plane_pb2.MetadataResponse)
        for topic in reply.topics:
            resolved[topic.name] = kafka_code(topic.error) if topic.HasField("error") else topic.topic_id
        for name in unknown:
            # A node that belongs to no cluster yet reports no topics.
            resolved.setdefault(name, KafkaError.LEADER_NOT_AVAILABLE)
    return resolved


def by_id(code: KafkaError, cluster: KafkaClusterView, topic_id: bytes) -> KafkaError:
    """Returns an error's code for a request by topic id, which has its own code for a missing topic."""
    is_gone = code is KafkaError.UNKNOWN_TOPIC_OR_PARTITION and cluster.topic_name(topic_id) is None
    return KafkaError.UNKNOWN_TOPIC_ID if is_gone else code


def kafka_epoch(leader_epoch: int) -> int:
    """Converts a leader epoch to Kafka's range; -1 if it does not fit."""
    return leader_epoch if 0 <= leader_epoch <= _MOST_LEADER_EPOCH else _NO_LEADER_EPOCH
