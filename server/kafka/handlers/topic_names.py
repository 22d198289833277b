"""Topics by the names and ids that Kafka's requests say, and as messages to the node name them: by id."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaClusterView, Steps, ask
from quorumlog.v1 import data_plane_pb2

#: A larger leader epoch does not fit into what Kafka has for it.
_MOST_LEADER_EPOCH = (1 << 31) - 1
_NO_LEADER_EPOCH = -1


def find_topics(cluster: KafkaClusterView, names: Iterable[str]) -> Steps[dict[str, bytes | KafkaError]]:
    """The ids of topics, or why there are none.

    A name that is not known here is asked for: what its client may be told of it is the node's to say.
    """
    found: dict[str, bytes | KafkaError] = {}
    unknown = []
    for name in dict.fromkeys(names):
        topic_id = cluster.topic_id(name)
        if topic_id is None:
            unknown.append(name)
        else:
            found[name] = topic_id
    if unknown:
        reply = yield from ask(data_plane_pb2.MetadataRequest(topics=unknown), data_plane_pb2.MetadataResponse)
        for topic in reply.topics:
            found[topic.name] = kafka_code(topic.error) if topic.HasField("error") else topic.topic_id
        for name in unknown:
            # A node that belongs to no cluster yet says nothing of topics.
            found.setdefault(name, KafkaError.LEADER_NOT_AVAILABLE)
    return found


def by_id(code: KafkaError, cluster: KafkaClusterView, topic_id: bytes) -> KafkaError:
    """The code of an error for who asked by a topic's id: that there is no such topic is called otherwise there."""
    is_gone = code is KafkaError.UNKNOWN_TOPIC_OR_PARTITION and cluster.topic_name(topic_id) is None
    return KafkaError.UNKNOWN_TOPIC_ID if is_gone else code


def kafka_epoch(leader_epoch: int) -> int:
    """A leader epoch as Kafka has it."""
    return leader_epoch if 0 <= leader_epoch <= _MOST_LEADER_EPOCH else _NO_LEADER_EPOCH
