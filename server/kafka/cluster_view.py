"""What a node knows of its cluster, as far as Kafka's clients are told it by names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from quorumlog.server.client_origin import Listener
from quorumlog.server.metadata.image import MetadataImage

_CLEANUP_POLICY = "cleanup.policy"
_COMPACT = "compact"
#: Where there are as many nodes.
_REPLICAS = 3


class NodeWithImage(Protocol):
    """A node, as far as its metadata go."""

    @property
    def image(self) -> MetadataImage | None:
        """The newest image; None while the node belongs to no cluster."""


class ImageView:
    """A node's image, for those who name topics.

    Arguments:
        node_id: of that node.
    """

    def __init__(self, node: NodeWithImage, node_id: int) -> None:
        self._node = node
        self._node_id = node_id

    @property
    def node_id(self) -> int:
        """Of the node that is asked."""
        return self._node_id

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic, if there is one of that name."""
        image = self._node.image
        topic = None if image is None else image.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, if there is one of that id."""
        image = self._node.image
        topic = None if image is None else image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    @property
    def default_replicas(self) -> int:
        """Of a topic, where its creator does not say how many."""
        image = self._node.image
        nodes = 0 if image is None else sum(not each.witness_only for each in image.brokers.values())
        return _REPLICAS if nodes >= _REPLICAS else 1

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        """What is set of a topic's configuration; None where there is no such topic."""
        image = self._node.image
        topic = None if image is None else image.topics.get(name)
        return None if topic is None else topic.configs

    def topic_names(self) -> Iterable[str]:
        """Of all topics: which of them a client may know of is the node's to say."""
        image = self._node.image
        return () if image is None else image.topics

    def partition_count(self, name: str) -> int:
        """Partitions of a topic; 0 where there is none of that name."""
        image = self._node.image
        topic = None if image is None else image.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def compacts(self, topic_id: bytes) -> bool:
        """Whether the newest record of each key is kept of a topic."""
        image = self._node.image
        topic = None if image is None else image.topics_by_id.get(topic_id)
        return topic is not None and _COMPACT in topic.configs.get(_CLEANUP_POLICY, "")

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        """Host and port at which Kafka's clients reach a node, if they do."""
        image = self._node.image
        broker = None if image is None else image.brokers.get(node_id)
        if broker is None:
            return None
        host, port = broker.endpoint(Listener.KAFKA)
        return (host, port) if host else None

    @property
    def is_formed(self) -> bool:
        """Whether the node knows of any broker."""
        image = self._node.image
        return image is not None and bool(image.brokers)

    def reaches(self, level: int) -> bool:
        """Whether the cluster has reached a feature level: no node is in it that does not support that."""
        image = self._node.image
        return image is not None and image.feature_level >= level
