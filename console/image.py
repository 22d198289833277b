"""The nodes, topics and partitions of a cluster. Every node answers from an image of its own: older news never replaces
newer news, so that on the page no leader changes back and no topic blinks.

A topic is gone only when the cluster says so: a node has applied its deletion, or it is missing from a linearizable
list that was requested after the topic was known. Silence, however long, and lists of unknown age remove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorumlog.sdk import BrokerDescription, ClusterDescription, PartitionDescription, TopicDescription, TopicPartition
from quorumlog.sdk.admin.descriptions import newer_of

#: An answer that may be older than one before it is passed over, but not for longer: then it is all there is.
PASSED_OVER_S = 2.0
#: Deleted topics that are remembered, so that a node which has not applied a deletion yet does not bring one back.
MAX_DELETED = 10_000


@dataclass(slots=True)
class _KnownTopic:
    """The newest description of each partition, and when the topic was first reported."""

    description: TopicDescription
    partitions: dict[int, PartitionDescription]
    since_s: float


class ClusterImage:
    """The newest that any node has said. Times are seconds of one monotonic clock."""

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
        """Takes in the nodes as one of them described them; False if that may be older than what is known.

        Arguments:
            asked_s: when it was asked for.
        """
        if self.cluster is not None and heard.brokers and heard.cluster_id != self.cluster.cluster_id:
            # Another cluster has formed behind the addresses: its epochs compare with none that are known.
            self.cluster = None
            self._brokers, self._topics, self._deleted = {}, {}, {}
        # A node that knows of no bound has lost the controller: it may be of any age.
        as_of_s = asked_s - heard.image_age_ms / 1000 if heard.image_age_ms is not None else -1.0
        is_older = self.cluster is not None and as_of_s < self._as_of_s
        if is_older and now_s - self._taken_s < PASSED_OVER_S:
            return False
        self.cluster, self._as_of_s, self._taken_s = heard, as_of_s, now_s
        listed = {broker.node_id: broker for broker in heard.brokers}
        if is_older:
            # A node that is missing from an older list may have registered since.
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
        """Adds topics, or what is newer of them, as one node described them. Removes none."""
        for topic in heard:
            if _identity(topic) not in self._deleted:
                self._take_topic(topic, now_s)

    def doubts(self, listed: Iterable[TopicDescription]) -> bool:
        """True if a node's list of all topics lacks a known topic, or has one that is known to be deleted."""
        identities = {_identity(topic) for topic in listed}
        known = {_identity(each.description) for each in self._topics.values()}
        return not known <= identities or not identities.isdisjoint(self._deleted)

    def take_confirmed_list(self, listed: Iterable[TopicDescription], asked_s: float, now_s: float) -> None:
        """Replaces the topics by a linearizable list: what it lacks is deleted.

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
        """Removes a topic that the cluster has deleted. Another topic that has its name by now stays."""
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
                self.delete_topic(topic)  # An earlier topic of this name, which is gone, or the name were not free.
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
        """The id of a topic; None if there is none of that name."""
        known = self._topics.get(name)
        return None if known is None else known.description.topic_id

    def leader(self, tp: TopicPartition) -> int | None:
        """Who leads a partition; None without one, or if there is no such partition."""
        known = self._topics.get(tp.topic)
        partition = None if known is None else known.partitions.get(tp.partition)
        return None if partition is None else partition.leader


def _identity(topic: TopicDescription) -> str:
    """What tells topics of one name apart. A topic that is restored from a backup keeps its id, but not its groups."""
    return f"{topic.topic_id}/{_lowest_group(topic)}"


def _lowest_group(topic: TopicDescription) -> int:
    """The lowest Raft group of a topic. Of two topics of one name the later one has the higher groups."""
    return min((each.group_id for each in topic.partitions), default=0)
