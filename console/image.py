"""What is known of a cluster's nodes, topics and partitions. Any node answers, from an image of its own: older news
never replaces newer news, so that on the page no leader changes back and no topic blinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorumlog.sdk import BrokerDescription, ClusterDescription, PartitionDescription, TopicDescription, TopicPartition
from quorumlog.sdk.admin.descriptions import newer_of

#: An answer that may be older than one before it is passed over, but not for longer: then it is all there is.
PASSED_OVER_S = 2.0
#: A topic that no answer has shown for so long is gone. One node may not have heard of it yet.
GONE_AFTER_S = 1.0
#: What is gone is not believed to be back for so long: one node may not have heard that it was deleted.
NOT_BACK_WITHIN_S = 5.0


@dataclass(slots=True)
class _KnownTopic:
    """The newest of each partition, and when an answer showed the topic last."""

    description: TopicDescription
    partitions: dict[int, PartitionDescription]
    shown_s: float


class ClusterImage:
    """The newest that any node has said. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.cluster: ClusterDescription | None = None
        self._as_of_s = 0.0
        self._taken_s = 0.0
        self._brokers: dict[int, BrokerDescription] = {}
        self._topics: dict[str, _KnownTopic] = {}
        #: Identities of topics that are gone, and since when.
        self._gone: dict[str, float] = {}

    # -- nodes ----------------------------------------------------------------------------------------------------

    def take_cluster(self, heard: ClusterDescription, asked_s: float, now_s: float) -> bool:
        """Takes in the nodes as one of them described them; False if that may be older than what is known.

        Arguments:
            asked_s: when it was asked for.
        """
        if self.cluster is not None and heard.brokers and heard.cluster_id != self.cluster.cluster_id:
            # Another cluster has formed behind the addresses: its epochs compare with none that are known.
            self.cluster = None
            self._brokers, self._topics, self._gone = {}, {}, {}
        # A node that knows of no bound has lost the controller: it may be of any age.
        as_of_s = asked_s - heard.image_age_ms / 1000 if heard.image_age_ms is not None else -1.0
        if self.cluster is not None and as_of_s < self._as_of_s and now_s - self._taken_s < PASSED_OVER_S:
            return False
        self.cluster, self._as_of_s, self._taken_s = heard, as_of_s, now_s
        listed = {broker.node_id: broker for broker in heard.brokers}
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
        """Takes in all topics as one node described them."""
        for topic in heard:
            if now_s - self._gone.get(_identity(topic), -NOT_BACK_WITHIN_S) >= NOT_BACK_WITHIN_S:
                self._take_topic(topic, now_s)
        for name, known in list(self._topics.items()):
            if now_s - known.shown_s >= GONE_AFTER_S:
                self._forget(name, now_s)
        self._gone = {one: gone_s for one, gone_s in self._gone.items() if now_s - gone_s < NOT_BACK_WITHIN_S}

    def confirm_topics(self, names: Iterable[str], now_s: float) -> None:
        """These are as they were, and all others are not shown any more."""
        for name in names:
            known = self._topics.get(name)
            if known is not None:
                known.shown_s = now_s
        self.take_topics((), now_s)

    def _take_topic(self, topic: TopicDescription, now_s: float) -> None:
        known = self._topics.get(topic.name)
        if known is not None and _identity(known.description) != _identity(topic):
            self._forget(topic.name, now_s)
            known = None
        if known is None:
            partitions = {each.partition: each for each in topic.partitions}
            self._topics[topic.name] = _KnownTopic(topic, partitions, now_s)
            return
        known.shown_s = now_s
        known.description = topic
        for heard in topic.partitions:
            before = known.partitions.get(heard.partition)
            known.partitions[heard.partition] = heard if before is None else newer_of(before, heard)

    def _forget(self, name: str, now_s: float) -> None:
        self._gone[_identity(self._topics.pop(name).description)] = now_s

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
    """A topic that is deleted and created anew has another id; one restored from a backup has its id again, but other
    Raft groups."""
    return f"{topic.topic_id}/{min((each.group_id for each in topic.partitions), default=0)}"
