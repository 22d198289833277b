"""The topics that consumer groups can read: a view of the metadata image at the time of a draft."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import Topic


@dataclass(slots=True, frozen=True)
class TopicInfo:
    """A topic that consumer groups can read, with the number of its partitions."""

    topic_id: bytes
    name: str
    partitions: int


class TopicCatalog(Protocol):
    """The topics that consumer groups can read. Internal topics of the cluster are excluded."""

    @property
    def index(self) -> int:
        """Index of the metadata log up to which the catalog is complete."""

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns the topic of that name."""

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic of that id."""

    def names(self) -> Iterable[str]:
        """Returns the names of all topics, always in the same order."""

    def racks(self, topic_id: bytes) -> Sequence[frozenset[str]]:
        """Returns the racks of the replicas, by partition; empty if no rack is known."""


class ImageCatalog:
    """The catalog of a node's metadata image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def index(self) -> int:
        """The index of the last entry that the image has applied."""
        return self._image.applied_index

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns the topic of that name."""
        return _info(self._image.topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns the topic of that id."""
        return _info(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        """Returns the names of all topics, in the order of their creation."""
        return (topic.name for topic in self._image.topics.values() if not topic.is_internal)

    def racks(self, topic_id: bytes) -> Sequence[frozenset[str]]:
        """Returns the racks of the replicas, by partition; empty if no broker has one."""
        topic = self._image.topics_by_id.get(topic_id)
        brokers = {node: broker.rack for node, broker in self._image.brokers.items() if broker.rack}
        if topic is None or not brokers:
            return ()
        return [frozenset(brokers[node] for node in row.replicas if node in brokers) for row in topic.partitions]


def _info(topic: Topic | None) -> TopicInfo | None:
    if topic is None or topic.is_internal:
        return None
    return TopicInfo(topic.topic_id, topic.name, len(topic.partitions))
