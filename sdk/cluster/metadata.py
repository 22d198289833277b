"""What a client knows of the cluster: immutable views, merged so that older news never replaces newer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.v1 import data_plane_pb2

#: Where a topic does not say.
DEFAULT_MAX_MESSAGE_BYTES = 1 << 20


@dataclass(slots=True, frozen=True)
class PartitionView:
    """One partition. ``leader`` is -1 while none is known."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class TopicView:
    """One topic; ``partitions`` by number. ``compacted``: of each key it keeps the last record, so every one needs a
    key. ``max_message_bytes``: the largest batch that it takes."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionView, ...]
    compacted: bool = False
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


@dataclass(slots=True)
class MetadataCache:
    """Brokers' addresses and topics' leaders, as last heard from any node."""

    addresses: dict[int, str]
    topics: dict[str, TopicView]
    names: dict[bytes, str]

    @classmethod
    def empty(cls) -> MetadataCache:
        """Knows nothing."""
        return cls({}, {}, {})

    def merge(self, response: data_plane_pb2.MetadataResponse) -> dict[str, QuorumlogError]:
        """Takes in an answer. Returns the error of each topic that could not be described.

        Nodes answer from images of different ages. Of two answers about a partition, the one with the higher leader
        epoch is right. Otherwise a node that lags would send the client back to a leader that is gone.
        """
        for broker in response.brokers:
            self.addresses[broker.node_id] = f"{broker.host}:{broker.port}"
        errors: dict[str, QuorumlogError] = {}
        for topic in response.topics:
            if topic.HasField("error"):
                errors[topic.name] = error_from_proto(topic.error)
                continue
            known = self.topics.get(topic.name)
            if known is not None and known.topic_id != topic.topic_id:
                if topic.topic_id in self.names:
                    continue  # The topic was created anew since: the answer is older.
                known = None
            partitions = tuple(
                _newer(
                    PartitionView(p.partition, p.leader, p.leader_epoch, tuple(p.replicas)),
                    known.partitions[p.partition] if known and p.partition < len(known.partitions) else None,
                )
                for p in sorted(topic.partitions, key=lambda p: p.partition)
            )
            if known is not None and len(partitions) < len(known.partitions):
                partitions += known.partitions[len(partitions) :]  # Topics never shrink: the answer is older.
            compacted = topic.configs.get("cleanup.policy") == "compact"
            largest = int(topic.configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))
            self.topics[topic.name] = TopicView(topic.name, topic.topic_id, partitions, compacted, largest)
            self.names[topic.topic_id] = topic.name
        return errors

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        """What is known of a partition, if anything."""
        view = self.topics.get(topic)
        if view is None or partition >= len(view.partitions):
            return None
        return view.partitions[partition]

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> bool:
        """Takes in a hint from a node that does not lead; True if it was news."""
        view = self.topics.get(topic)
        if view is None or partition >= len(view.partitions) or leader < 0:
            return False
        known = view.partitions[partition]
        if leader_epoch < known.leader_epoch or (leader_epoch == known.leader_epoch and known.leader == leader):
            return False
        updated = list(view.partitions)
        updated[partition] = replace(known, leader=leader, leader_epoch=leader_epoch)
        self.topics[topic] = replace(view, partitions=tuple(updated))
        return True


def _newer(heard: PartitionView, known: PartitionView | None) -> PartitionView:
    if known is None or heard.leader_epoch > known.leader_epoch:
        return heard
    if heard.leader_epoch == known.leader_epoch:
        # One epoch has one leader; an image may show the epoch before it shows who.
        return heard if heard.leader >= 0 or known.leader < 0 else known
    return replace(known, replicas=heard.replicas)
