"""Ids, epochs, names and leaders that a client learns from answers, and that make requests nearly valid."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from quorumlog.v1 import data_plane_pb2, groups_pb2

#: Number of values kept of each field; the newest replace the oldest.
KEPT_VALUES = 48
#: Longer values are records, not names.
MAX_VALUE_LENGTH = 64
#: Items of one list that are evaluated.
MAX_ITEMS = 20
#: The topics of the cluster at the start; created again when a client deletes them. The second one is compacted.
STAGE = ("stage-plain", "stage-compacted", "stage-single", "stage-stamped")
GROUPS = tuple(f"group-{number}" for number in range(6))
PRODUCER_NAMES = tuple(f"producer-{number}" for number in range(8))
#: Names of topics that clients may create: few, so that the number of topics stays bounded.
NEW_TOPICS = tuple(f"made-{number}" for number in range(8))


@dataclass(slots=True, frozen=True)
class LearntPartition:
    """A partition as described by the metadata."""

    number: int
    leader: int
    leader_epoch: int


@dataclass(slots=True, frozen=True)
class KnownTopic:
    """A topic as described by the metadata."""

    name: str
    topic_id: bytes
    partitions: tuple[LearntPartition, ...]


@dataclass(slots=True)
class KnownMember:
    """A member of a consumer group, as of its own last answer."""

    group_id: str
    member_id: str
    member_epoch: int


@dataclass(slots=True)
class KnownProducer:
    """A producer: its identity, and its sequence numbers.

    Arguments:
        sequences: the next sequence number, by topic id and partition.
    """

    producer_id: int
    epoch: int
    name: str
    sequences: dict[tuple[bytes, int], int] = field(default_factory=dict)


class Vocabulary:
    """The values that one client has.

    Arguments:
        nodes: ids of the nodes.
    """

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.topics: dict[str, KnownTopic] = {}
        self.coordinators: dict[str, int] = {}
        self.members: deque[KnownMember] = deque(maxlen=KEPT_VALUES)
        self.producers: deque[KnownProducer] = deque(maxlen=KEPT_VALUES)
        self._pools: dict[str, deque[object]] = {}

    def learn(self, message: Message) -> None:
        """Stores the values of an answer."""
        if isinstance(message, data_plane_pb2.MetadataResponse):
            self._learn_topics(message)
        elif isinstance(message, groups_pb2.FindCoordinatorsResponse):
            for found in message.coordinators:
                if found.node_id in self.nodes:
                    self.coordinators[found.group_id] = found.node_id
        self._gather(message, 0)

    def _learn_topics(self, response: data_plane_pb2.MetadataResponse) -> None:
        for topic in response.topics:
            if topic.HasField("error") or not topic.partitions:
                self.topics.pop(topic.name, None)
                continue
            partitions = tuple(
                LearntPartition(one.partition, one.leader, one.leader_epoch) for one in topic.partitions[:MAX_ITEMS]
            )
            self.topics[topic.name] = KnownTopic(topic.name, topic.topic_id, partitions)

    def _gather(self, message: Message, depth: int) -> None:
        for each, value in message.ListFields():
            if each.message_type is not None:
                if depth < 3 and not each.message_type.GetOptions().map_entry:
                    for item in value[:MAX_ITEMS] if each.is_repeated else (value,):
                        self._gather(item, depth + 1)
            elif each.cpp_type != FieldDescriptor.CPPTYPE_BOOL:
                for item in value[:MAX_ITEMS] if each.is_repeated else (value,):
                    if not isinstance(item, str | bytes) or len(item) <= MAX_VALUE_LENGTH:
                        self.keep(each.name, item)

    def keep(self, name: str, value: object) -> None:
        """Remembers a value of a field."""
        pool = self._pools.setdefault(name, deque(maxlen=KEPT_VALUES))
        if value not in pool:
            pool.append(value)

    def known(self, name: str, chance: random.Random) -> object | None:
        """Returns a value that a field of this name has had; None without any."""
        pool = self._pools.get(name)
        return chance.choice(pool) if pool else None

    def topic(self, chance: random.Random) -> KnownTopic | None:
        """Returns one of the topics, usually a prepared one."""
        stage = [self.topics[name] for name in STAGE if name in self.topics]
        if stage and chance.random() < 0.8:
            return chance.choice(stage)
        return chance.choice(list(self.topics.values())) if self.topics else None

    def node(self, chance: random.Random) -> int:
        """Returns any node."""
        return chance.choice(self.nodes)
