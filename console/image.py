"""Image of a cluster's nodes, topics and partitions. Every node answers from an image of its own: older news never
replaces newer news, so that on the page no leader changes back and no topic flickers.

A topic is deleted only when the cluster reports it: a node has applied its deletion, or it is missing from a
linearizable list that was requested after the topic was known. Silence, however long, and lists of unknown age remove
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorumlog.sdk import BrokerDescription, ClusterDescription, PartitionDescription, TopicDescription, TopicPartition
from quorumlog.sdk.admin.descriptions import newer_of

#: An answer that may be older than a previous one is ignored, but not for longer than this (s): then it is accepted.
PASSED_OVER_S = 2.0
#: Maximum number of deleted topics that are remembered, so that a node that has not applied a deletion yet does not
#: restore a topic.
MAX_DELETED = 10_000


@dataclass(slots=True)
class _KnownTopic:
    """The newest description of each partition, and when the topic was first reported."""

    description: TopicDescription
    partitions: dict[int, PartitionDescription]
    since_s: float


class ClusterImage:
    """The newest state that any node has reported. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.cluster: ClusterDescription | None = None
        self._as_of_s = 0.0
        self._taken_s = 0.0
        self._brokers: dict[int, BrokerDescription] = {}
        self._topics: dict[str, _KnownTopic] = {}
        #: Identities of deleted topics, the oldest first.
        self._deleted: dict[str, None] = {}

    # -- nodes ----------------------------------------------------------------------------------------------------

    def take_cluster(self, heard: ClusterDescription, asked_s: float, now_s: float) -> bool:
        """Stores the nodes as one of them described them; returns False if that may be older than what is known.

        Arguments:
            asked_s: when it was requested.
        """
        if self.cluster is not None and heard.brokers and heard.cluster_id != self.cluster.cluster_id:
            # Another cluster has formed behind the addresses: its epochs cannot be compared with the known ones.
            self.cluster = None
            self._brokers, self._topics, self._deleted = {}, {}, {}
        # A node without a bound has lost the controller: its image may be of any age.
        as_of_s = asked_s - heard.image_age_ms / 1000 if heard.image_age_ms is not None else -1.0
        is_older = self.cluster is not None and as_of_s < self._as_of_s
        if is_older and now_s - self._taken_s < PASSED_OVER_S:
            return False
        self.cluster, self._as_of_s, self._taken_s = heard, as_of_s, now_s
        listed = {broker.node_id: broker for broker in heard.brokers}
        if is_older:
            # A node that is missing from an older list may have registered since then.
            listed = self._brokers | listed
        for node_id, broker in listed.items():
            known = self._brokers.get(node_id)
            if known is not None and known.broker_epoch > broker.broker_epoch:
                listed[node_id] = known
        self._brokers = listed
        return True

    def brokers(self) -> list[BrokerDescription]:
        """All registered nodes, by their ids."""
        return [self._brokers[node_id] for node_id in sorted(self._brokers)]

    # -- topics ---------------------------------------------------------------------------------------------------

    def take_topics(self, heard: Iterable[TopicDescription], now_s: float) -> None:
        """Adds topics, or newer states of them, as one node described them. Removes none."""
        for topic in heard:
            if _identity(topic) not in self._deleted:
                self._take_topic(topic, now_s)

    def doubts(self, listed: Iterable[TopicDescription]) -> bool:
        """True if a node's list of all topics lacks a known topic, or has one that is known to be deleted."""
        identities = {_identity(topic) for topic in listed}
        known = {_identity(each.description) for each in self._topics.values()}
        return not known <= identities or not identities.isdisjoint(self._deleted)

    def take_confirmed_list(self, listed: Iterable[TopicDescription], asked_s: float, now_s: float) -> None:
        """Replaces the topics by a linearizable list: a topic that is not listed is deleted.

        Arguments:
            asked_s: when it was requested. A topic that was first reported later may be newer than the list.
        """
        by_name = {topic.name: topic for topic in listed}
        for name, known in list(self._topics.items()):
            listed_one = by_name.get(name)
            is_listed = listed_one is not None and _identity(listed_one) == _identity(known.description)
            if known.since_s <= asked_s and not is_listed:
                self.delete_topic(known.description)
        for topic in by_name.values():
            self._deleted.pop(_identity(topic), None)
            self._take_topic(topic, now_s)

    def delete_topic(self, topic: TopicDescription) -> None:
        """Removes a topic that the cluster has deleted. A newer topic of the same name is kept."""
        known = self._topics.get(topic.name)
        if known is not None and _identity(known.description) == _identity(topic):
            del self._topics[topic.name]
        self._deleted[_identity(topic)] = None
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def _take_topic(self, topic: TopicDescription, now_s: float) -> None:
        known = self._topics.get(topic.name)
        if known is not None and _identity(known.description) != _identity(topic):
            if _lowest_group(topic) < _lowest_group(known.description):
                # An earlier, deleted topic of this name; otherwise the name would not be free.
                self.delete_topic(topic)
                return
            self.delete_topic(known.description)
            known = None
        if known is None:
            partitions = {each.partition: each for each in topic.partitions}
            self._topics[topic.name] = _KnownTopic(topic, partitions, now_s)
            return
        known.description = topic
        for heard in topic.partitions:
            before = known.partitions.get(heard.partition)
            known.partitions[heard.partition] = heard if before is None else newer_of(before, heard)

    def topics(self) -> Iterator[tuple[TopicDescription, list[PartitionDescription]]]:
        """All topics with the newest of their partitions, by name and number."""
        for name in sorted(self._topics):
            known = self._topics[name]
            yield known.description, [known.partitions[number] for number in sorted(known.partitions)]

    def topic_id(self, name: str) -> str | None:
        """Returns the id of a topic; None if it does not exist."""
        known = self._topics.get(name)
        return None if known is None else known.description.topic_id

    def leader(self, tp: TopicPartition) -> int | None:
        """Returns the leader of a partition; None without one, or if the partition does not exist."""
        known = self._topics.get(tp.topic)
        partition = None if known is None else known.partitions.get(tp.partition)
        return None if partition is None else partition.leader


def _identity(topic: TopicDescription) -> str:
    """Returns an identity that differs between topics of one name. A topic restored from a backup keeps its id, but not
    its Raft groups.
    """
    return f"{topic.topic_id}/{_lowest_group(topic)}"


def _lowest_group(topic: TopicDescription) -> int:
    """Returns the lowest Raft group of a topic. Of two topics of one name the later one has the higher groups."""
    return min((each.group_id for each in topic.partitions), default=0)
