"""What a node knows of its cluster, as far as each of Kafka's clients may know it.

Requests of Kafka's protocol name topics, and what they come to here asks for ids. Whoever looks one up for a client
looks here: a topic that the client may not describe is not there, so no request of it goes another way than one about
a topic that nobody has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import Topic
from quorumlog.server.step.request_context import Listener

#: Where there are as many nodes.
_REPLICAS = 3


class NodeWithImage(Protocol):
    """A node, as far as its metadata go."""

    @property
    def image(self) -> MetadataImage | None:
        """The newest image; None while the node belongs to no cluster."""

    def sees_topic(self, principal: str, name: str) -> bool:
        """Whether a principal may know of a topic of this name, if there is one."""


class AskingClient(Protocol):
    """A client, as far as rules are about it."""

    @property
    def principal(self) -> str:
        """Who it is at this moment."""


class ImageView:
    """A node's image.

    Arguments:
        node_id: of that node.
    """

    def __init__(self, node: NodeWithImage, node_id: int) -> None:
        self.node_id = node_id
        self._node = node

    def seen_by(self, client: AskingClient) -> SeenImage:
        """The same as far as a client may know it."""
        return SeenImage(self, client)

    @property
    def image(self) -> MetadataImage | None:
        """The newest image; None while the node belongs to no cluster."""
        return self._node.image

    def is_seen(self, topic: Topic, client: AskingClient) -> bool:
        """Whether a client may know of a topic."""
        return self._node.sees_topic(client.principal, topic.name)

    @property
    def is_formed(self) -> bool:
        """Whether the node knows of any broker."""
        image = self.image
        return image is not None and bool(image.brokers)

    def reaches(self, level: int) -> bool:
        """Whether the cluster has reached a feature level: no node is in it that does not support that."""
        image = self.image
        return image is not None and image.feature_level >= level


class SeenImage:
    """A node's image, for those who name topics on behalf of a client."""

    def __init__(self, view: ImageView, client: AskingClient) -> None:
        self._view = view
        self._client = client

    @property
    def node_id(self) -> int:
        """Of the node that is asked."""
        return self._view.node_id

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic, if there is one of that name."""
        topic = self._named(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, if there is one of that id."""
        topic = self._with_id(topic_id)
        return None if topic is None else topic.name

    @property
    def default_replicas(self) -> int:
        """Of a topic, where its creator does not say how many."""
        image = self._view.image
        nodes = 0 if image is None else sum(not each.witness_only for each in image.brokers.values())
        return _REPLICAS if nodes >= _REPLICAS else 1

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        """What is set of a topic's configuration; None where there is no such topic."""
        topic = self._named(name)
        return None if topic is None else topic.configs

    def topic_names(self) -> Iterable[str]:
        """Of all topics that the client may know of."""
        image = self._view.image
        return () if image is None else (name for name, topic in image.topics.items() if self._seen(topic) is not None)

    def partition_count(self, name: str) -> int:
        """Partitions of a topic; 0 where there is none of that name."""
        topic = self._named(name)
        return 0 if topic is None else len(topic.partitions)

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        """Host and port at which Kafka's clients reach a node, if they do."""
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
        """A topic as far as the client may know of it. Whether one is there must not be told from how long that takes,
        either: to look up a rule takes less than a message on its way."""
        return topic if topic is not None and self._view.is_seen(topic, self._client) else None
