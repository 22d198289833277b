"""The node's view of the cluster, limited to what each Kafka client is authorized to see.

Kafka requests name topics; the node's requests use topic ids. Every lookup on behalf of a client goes through this
module: a topic that the client may not describe does not exist here, so a request for it takes the same path as a
request for a topic that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import Topic
from quorumlog.server.step.request_context import Listener

#: Default replication factor, in a cluster with at least as many nodes.
_REPLICAS = 3


class NodeWithImage(Protocol):
    """A node that has cluster metadata."""

    @property
    def image(self) -> MetadataImage | None:
        """The newest image; None while the node belongs to no cluster."""

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may learn whether a topic of this name exists."""


class AskingClient(Protocol):
    """A client, as the subject of ACLs."""

    @property
    def principal(self) -> str:
        """The principal as which the client is authenticated now."""


class ImageView:
    """The unrestricted image of a node.

    Arguments:
        node_id: id of that node.
    """

    def __init__(self, node: NodeWithImage, node_id: int) -> None:
        self.node_id = node_id
        self._node = node

    def seen_by(self, client: AskingClient) -> SeenImage:
        """Returns the image restricted to what a client may see."""
        return SeenImage(self, client)

    @property
    def image(self) -> MetadataImage | None:
        """The newest image; None while the node belongs to no cluster."""
        return self._node.image

    def is_seen(self, topic: Topic, client: AskingClient) -> bool:
        """True if a client may see a topic."""
        return self._node.sees_topic(client.principal, topic.name)

    @property
    def is_formed(self) -> bool:
        """True if the node has at least one broker."""
        image = self.image
        return image is not None and bool(image.brokers)

    @property
    def feature_level(self) -> int:
        """The feature level of the cluster, which every node in it supports; 0 while the node belongs to no cluster."""
        image = self.image
        return 0 if image is None else image.feature_level

    def reaches(self, level: int) -> bool:
        """True if the cluster has reached a feature level."""
        return self.feature_level >= level


class SeenImage:
    """A node's image, for code that resolves topics on behalf of a client."""

    def __init__(self, view: ImageView, client: AskingClient) -> None:
        self._view = view
        self._client = client

    @property
    def node_id(self) -> int:
        """Id of the node that serves the client."""
        return self._view.node_id

    def topic_id(self, name: str) -> bytes | None:
        """Returns the id of a topic, or None if no topic has that name."""
        topic = self._named(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic, or None if no topic has that id."""
        topic = self._with_id(topic_id)
        return None if topic is None else topic.name

    @property
    def default_replicas(self) -> int:
        """Replication factor of a topic whose creator does not specify one."""
        image = self._view.image
        nodes = 0 if image is None else sum(not each.witness_only for each in image.brokers.values())
        return _REPLICAS if nodes >= _REPLICAS else 1

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        """Returns the overrides in a topic's configuration; None if the topic does not exist."""
        topic = self._named(name)
        return None if topic is None else topic.configs

    def topic_names(self) -> Iterable[str]:
        """Returns the names of all topics that the client may see."""
        image = self._view.image
        return () if image is None else (name for name, topic in image.topics.items() if self._seen(topic) is not None)

    def partition_count(self, name: str) -> int:
        """Returns the number of partitions of a topic; 0 if no topic has that name."""
        topic = self._named(name)
        return 0 if topic is None else len(topic.partitions)

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        """Returns host and port of a node's Kafka listener, or None if it has none."""
        image = self._view.image
        broker = None if image is None else image.brokers.get(node_id)
        if broker is None:
            return None
        host, port = broker.endpoint(Listener.KAFKA)
        return (host, port) if host else None

    def _named(self, name: str) -> Topic | None:
        image = self._view.image
        return None if image is None else self._seen(image.topics.get(name))

    def _with_id(self, topic_id: bytes) -> Topic | None:
        image = self._view.image
        return None if image is None else self._seen(image.topics_by_id.get(topic_id))

    def _seen(self, topic: Topic | None) -> Topic | None:
        """Returns the topic if the client may see it.

        Response times must not reveal that a topic exists, either: an ACL lookup takes less time than a message in
        transit.
        """
        return topic if topic is not None and self._view.is_seen(topic, self._client) else None
