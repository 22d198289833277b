"""The topics of a cluster and their partitions: a part of the metadata image, pure and the same on every node.

What two requests could contend for is decided here, when their commands are applied: a name belongs to the topic that
came first, and every other command names its topic by id, so that it never hits another one that was created under
the same name meanwhile. The numbers of Raft groups are given out in order and never twice: of two topics
of one name the later one has the higher groups, and a group below ``next_group`` that is not in the table belonged to a
topic that is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.records import FIRST_PARTITION_GROUP, ApplyResult, PartitionRecord, Topic
from quorumlog.server.metadata.replica_index import ReplicaIndex
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import collision_key

#: As in Kafka: the name becomes a file name in many tools.
MAX_NAME_CHARACTERS = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicTable:
    """Topics and partitions.

    Arguments:
        is_fenced: whether a node counts as gone: it begins out of the in-sync sets of new partitions.
        refuse_replicas: why there can be no replicas on some nodes, or None.

    Attributes:
        index: where the partitions are.
    """

    def __init__(
        self,
        is_fenced: Callable[[int], bool],
        refuse_replicas: Callable[[Iterable[int]], errors_pb2.Error | None],
    ) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.partitions: dict[int, PartitionRecord] = {}
        self.index = ReplicaIndex()
        self.next_group = FIRST_PARTITION_GROUP
        self._is_fenced = is_fenced
        self._refuse_replicas = refuse_replicas
        self._names: dict[str, str] = {}

    def named(self, name: str, topic_id: bytes) -> Topic | None:
        """The topic of a name, if it is the one that is meant: a change that comes late, or comes again because its
        answer was lost, must not hit the next topic of that name.

        Arguments:
            topic_id: of the topic that is meant; empty: whichever has the name.
        """
        topic = self.by_name.get(name)
        return None if topic is None or topic_id not in (b"", topic.topic_id) else topic

    def colliding(self, name: str) -> str | None:
        """An existing topic whose name is the same but for '.' and '_'; metric names cannot tell the two apart."""
        other = self._names.get(collision_key(name))
        return None if other == name else other

    def was_deleted(self, group: int) -> bool:
        """Whether a partition's group belonged to a topic that is deleted. False of one that is not known yet: the
        table may be behind."""
        return FIRST_PARTITION_GROUP <= group < self.next_group and group not in self.partitions

    # -- what is created ----------------------------------------------------------------------------------------------

    def check_new(self, name: str) -> errors_pb2.Error | None:
        """Why no topic of this name can be created, or None."""
        if name in self.by_name:
            return error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        other = self.colliding(name)
        if other is not None:
            return error(
                ErrorCode.INVALID_TOPIC,
                f"topic {name} differs from the existing topic {other} only in '.' and '_', which metrics cannot tell"
                " apart: choose another name",
            )
        return None

    def create(self, command: metadata_log_pb2.CreateTopic) -> ApplyResult:
        """A topic is created."""
        refused = self.check_new(command.name) or self._check_nodes(command.partitions)
        if refused is None and command.topic_id in self.by_id:
            taken = f"topic {self.by_id[command.topic_id].name} has the id that topic {command.name} is to have"
            refused = error(ErrorCode.TOPIC_ALREADY_EXISTS, taken)
        if refused is not None:
            return ApplyResult(_created(admin_pb2.CreateTopicResult(name=command.name, error=refused)))
        topic = Topic(command.name, command.topic_id, dict(command.configs))
        self._grow(topic, command.partitions)
        self.add(topic)
        outcome = admin_pb2.CreateTopicResult(name=topic.name, topic_id=topic.topic_id)
        return ApplyResult(_created(outcome), changed_groups={p.group for p in topic.partitions}, created=(topic,))

    def add(self, topic: Topic) -> None:
        """Takes in a topic whose partitions have their groups."""
        assert topic.topic_id not in self.by_id, f"topic id of {topic.name} is taken"
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self._names[collision_key(topic.name)] = topic.name
        self._enter(topic.partitions)

    def _enter(self, partitions: Sequence[PartitionRecord]) -> None:
        for partition in partitions:
            self.partitions[partition.group] = partition
            self.index.enter(partition)

    def add_partitions(self, command: metadata_log_pb2.AddPartitions) -> ApplyResult:
        """A topic gains partitions, if it has as many as the command is based on."""
        topic = self.by_id.get(command.topic_id)
        if topic is None:
            return ApplyResult(_partitions_added("", _gone()))
        present = len(topic.partitions)
        if present != command.first_number:
            outdated = f"topic {topic.name} has {present} partitions by now: look again"
            return ApplyResult(_partitions_added(topic.name, error(ErrorCode.INVALID_PARTITIONS, outdated)))
        problem = self._check_nodes(command.partitions)
        if problem is not None:
            return ApplyResult(_partitions_added(topic.name, problem))
        self._grow(topic, command.partitions)
        new = topic.partitions[present:]
        self._enter(new)
        return ApplyResult(_partitions_added(topic.name, None), changed_groups={partition.group for partition in new})

    def _check_nodes(self, replica_sets: Sequence[metadata_log_pb2.ReplicaSet]) -> errors_pb2.Error | None:
        """A request may name its nodes, and one of them may have been struck off before it came into the log."""
        return self._refuse_replicas({node for each in replica_sets for node in each.replicas})

    def _grow(self, topic: Topic, replica_sets: Sequence[metadata_log_pb2.ReplicaSet]) -> None:
        for replica_set in replica_sets:
            replicas = tuple(replica_set.replicas)
            present = tuple(node for node in replicas if not self._is_fenced(node))
            number = len(topic.partitions)
            witness = replica_set.witness if replica_set.HasField("witness") else NO_NODE
            topic.partitions.append(
                PartitionRecord(topic, number, self.next_group, replicas, present or replicas[:1], witness=witness)
            )
            self.next_group += 1

    # -- what changes and ends ----------------------------------------------------------------------------------------

    def change_config(self, command: metadata_log_pb2.ChangeTopicConfig) -> ApplyResult:
        """Sets and clears keys. Their values were checked before the command went into the log: nodes of two versions
        may judge them differently, and must not differ in what they hold."""
        topic = self.by_id.get(command.topic_id)
        if topic is None:
            return ApplyResult(_configs_altered("", _gone()))
        configs = topic.configs | dict(command.set)
        topic.configs = {key: value for key, value in configs.items() if key not in command.clear}
        return ApplyResult(
            _configs_altered(topic.name, None), changed_groups={partition.group for partition in topic.partitions}
        )

    def delete(self, command: metadata_log_pb2.DeleteTopic) -> ApplyResult:
        """A topic is deleted, with its partitions. Its name is free at once."""
        topic = self.by_id.pop(command.topic_id, None)
        if topic is None:
            return ApplyResult(_deleted("", _gone()))
        del self.by_name[topic.name]
        del self._names[collision_key(topic.name)]
        for partition in topic.partitions:
            del self.partitions[partition.group]
            self.index.leave(partition)
        return ApplyResult(_deleted(topic.name, None), deleted=(topic,))


def refuse_spelling(name: str) -> errors_pb2.Error | None:
    """Why no topic can ever have this name; None where one can."""
    shown = ascii(name[:80])
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        problem = f"topic name {shown} has {len(name)} characters: 1 to {MAX_NAME_CHARACTERS} are allowed"
    elif name in (".", ".."):
        problem = f"topic name {shown} is not allowed: '.' and '..' are not names"
    elif not _NAME.match(name):
        problem = f"topic name {shown} is not allowed: use only letters a-z A-Z, digits, '.', '_' and '-'"
    else:
        return None
    return error(ErrorCode.INVALID_TOPIC, problem)


def no_such_topic(name: str) -> errors_pb2.Error:
    """What is said of a name that no topic has, and of a topic that must not be known of."""
    shown = name if name.isprintable() and len(name) <= 80 else ascii(name[:80])
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {shown} does not exist: check its name")


def _gone() -> errors_pb2.Error:
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has just been deleted")


def _created(result: admin_pb2.CreateTopicResult) -> peer_pb2.ControllerResponse:
    return peer_pb2.ControllerResponse(create_topics=admin_pb2.CreateTopicsResponse(results=[result]))


def _partitions_added(name: str, problem: errors_pb2.Error | None) -> peer_pb2.ControllerResponse:
    result = admin_pb2.TopicResult(name=name, error=problem)
    return peer_pb2.ControllerResponse(create_partitions=admin_pb2.CreatePartitionsResponse(results=[result]))


def _configs_altered(name: str, problem: errors_pb2.Error | None) -> peer_pb2.ControllerResponse:
    result = admin_pb2.TopicResult(name=name, error=problem)
    return peer_pb2.ControllerResponse(alter_configs=admin_pb2.AlterConfigsResponse(results=[result]))


def _deleted(name: str, problem: errors_pb2.Error | None) -> peer_pb2.ControllerResponse:
    result = admin_pb2.TopicResult(name=name, error=problem)
    return peer_pb2.ControllerResponse(delete_topics=admin_pb2.DeleteTopicsResponse(results=[result]))
