"""A client's metadata of the cluster: immutable views, merged so that older state never replaces newer state.

Nodes answer from images of different ages, and a node that was down or is cut off answers too. So the order of the
metadata log decides what is newer, not the order of responses: of two topics of one name the one with the higher Raft
groups was created later; of two responses the one from the image of the higher index is newer; of two addresses of one
node the one of the higher registration; of two leaders of a partition the one of the higher epoch, which may be known
before any image shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from quorumlog.sdk.errors import QuorumlogError, UnknownTopicOrPartitionError, error_from_proto
from quorumlog.v1 import data_plane_pb2

#: Default if a topic does not report it.
DEFAULT_MAX_MESSAGE_BYTES = 1 << 20
#: Limit of remembered names without a topic; beyond it the oldest are forgotten.
MAX_ABSENT = 10_000


@dataclass(slots=True, frozen=True)
class PartitionView:
    """One partition. ``leader`` is -1 while none is known."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class TopicView:
    """One topic.

    Arguments:
        partitions: by number.
        compacted: it keeps the last record of each key, so every record needs a key.
        max_message_bytes: limit of a batch.
        first_group: the Raft group of its first partition: higher than that of any topic that was created before.
        described_at: the index of the newest image that has described it; 0 if not reported.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionView, ...]
    compacted: bool = False
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    first_group: int = 0
    described_at: int = field(default=0, compare=False)


@dataclass(slots=True)
class MetadataCache:
    """Addresses of brokers and leaders of topics, from responses of any nodes.

    A deleted topic stays in ``topics`` until it is forgotten: nodes reject further use of it by its id.
    """

    addresses: dict[int, str]
    topics: dict[str, TopicView]
    #: Id of the cluster; empty until a node of a cluster has answered.
    cluster_id: str = ""
    #: The registration of each address.
    _registrations: dict[int, int] = field(default_factory=dict)
    #: Names without a topic, each with the index of the newest image that reported so.
    _absent: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> MetadataCache:
        """Returns a cache without any metadata."""
        return cls({}, {})

    def merge(self, response: data_plane_pb2.MetadataResponse) -> dict[str, QuorumlogError]:
        """Applies a response.

        Returns:
            The error of each topic that could not be described, or that a response from a newer image has shown to be
            deleted.
        """
        self._enter(response.cluster_id)
        for broker in response.brokers:
            self.learn_address(broker.node_id, broker.host, broker.port, broker.broker_epoch)
        errors: dict[str, QuorumlogError] = {}
        for topic in response.topics:
            if topic.HasField("error"):
                errors[topic.name] = error_from_proto(topic.error)
                if isinstance(errors[topic.name], UnknownTopicOrPartitionError):
                    self._note_absent(topic.name, response.applied_index)
            elif 0 < response.applied_index < self._absent.get(topic.name, 0):
                errors[topic.name] = UnknownTopicOrPartitionError(f"topic {topic.name!r} was deleted")
            else:
                self._absent.pop(topic.name, None)
                self._describe(topic, response.applied_index)
        return errors

    def _enter(self, cluster_id: str) -> None:
        """Switches to another cluster that has formed behind the addresses.

        Its log has its own order, so known state cannot be compared with it, and is replaced by whatever it reports.
        """
        if cluster_id in ("", self.cluster_id):
            return
        self.cluster_id = cluster_id
        self._registrations.clear()
        self._absent.clear()
        for name, view in self.topics.items():
            self.topics[name] = replace(view, first_group=0, described_at=0)

    def _note_absent(self, name: str, index: int) -> None:
        index = max(index, self._absent.pop(name, 0))
        if len(self._absent) >= MAX_ABSENT:
            del self._absent[next(iter(self._absent))]
        self._absent[name] = index

    def forget(self, name: str) -> None:
        """Forgets a topic. Its next request is not answered from an older image than the last one that showed it."""
        view = self.topics.pop(name, None)
        if view is not None and view.described_at:
            self._note_absent(name, view.described_at)

    def _describe(self, topic: data_plane_pb2.TopicMetadata, index: int) -> None:
        heard = _topic_view(topic, index)
        known = self.topics.get(topic.name)
        # A topic restored from a backup has its former id, but other groups. Its leader epochs restart.
        has_other_groups = known is not None and heard.first_group not in (0, known.first_group)
        if known is not None and (has_other_groups or known.topic_id != heard.topic_id):
            if heard.first_group < known.first_group:
                return  # The topic was recreated since: the response is older.
            known = None
        self.topics[topic.name] = heard if known is None else _merged(known, heard)

    def learn_address(self, node_id: int, host: str, port: int, broker_epoch: int) -> None:
        """Applies a node's address, unless a later registration is known.

        Arguments:
            broker_epoch: of the registration; 0 if not reported.
        """
        if broker_epoch >= self._registrations.get(node_id, 0):
            self._registrations[node_id] = broker_epoch
            self.addresses[node_id] = f"{host}:{port}"

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        """Returns the view of a partition, if it is known."""
        view = self.topics.get(topic)
        if view is None or partition >= len(view.partitions):
            return None
        return view.partitions[partition]

    def learn_leader(self, topic: str, topic_id: bytes, partition: int, leader: int, leader_epoch: int) -> bool:
        """Applies a hint from a node that does not lead; returns True if it was new.

        Arguments:
            topic_id: of the topic in the hint. Leader epochs of another topic of the same name cannot be compared.
        """
        view = self.topics.get(topic)
        if view is None or view.topic_id != topic_id or partition >= len(view.partitions) or leader < 0:
            return False
        known = view.partitions[partition]
        if leader_epoch < known.leader_epoch or (leader_epoch == known.leader_epoch and known.leader == leader):
            return False
        updated = list(view.partitions)
        updated[partition] = replace(known, leader=leader, leader_epoch=leader_epoch)
        self.topics[topic] = replace(view, partitions=tuple(updated))
        return True


def new_leaders(before: TopicView | None, now: TopicView | None) -> list[PartitionView]:
    """Returns the partitions of a topic whose leader has changed."""
    if before is None or now is None or before.topic_id != now.topic_id or before.partitions == now.partitions:
        return []
    return [
        led for was, led in zip(before.partitions, now.partitions, strict=False) if 0 <= was.leader != led.leader >= 0
    ]


def _topic_view(topic: data_plane_pb2.TopicMetadata, index: int) -> TopicView:
    described = sorted(topic.partitions, key=lambda p: p.partition)
    return TopicView(
        topic.name,
        topic.topic_id,
        tuple(PartitionView(p.partition, p.leader, p.leader_epoch, tuple(p.replicas)) for p in described),
        "compact" in topic.configs.get("cleanup.policy", ""),
        int(topic.configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
        described[0].group_id if described else 0,
        index,
    )


def _merged(known: TopicView, heard: TopicView) -> TopicView:
    """Merges two descriptions of a topic. One without an index counts as the newest."""
    newer, older = (known, heard) if 0 < heard.described_at < known.described_at else (heard, known)
    partitions = [_newer(*both) for both in zip(newer.partitions, older.partitions, strict=False)]
    # Topics never shrink: the description with more partitions is newer.
    partitions += newer.partitions[len(partitions) :] or older.partitions[len(partitions) :]
    return replace(
        newer, partitions=tuple(partitions), described_at=max(known.described_at, heard.described_at),
    )  # fmt: skip


def _newer(newer: PartitionView, older: PartitionView) -> PartitionView:
    """Merges two views of a partition: metadata from the newer image, the leader from the higher epoch."""
    if newer.leader_epoch > older.leader_epoch:
        return newer
    # One epoch has one leader; an image may show the epoch before its leader.
    same = newer.leader_epoch == older.leader_epoch
    return newer if same and newer.leader >= 0 else replace(older, replicas=newer.replicas)
