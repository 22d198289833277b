"""The topics of a cluster and their partitions: a part of the metadata image, pure and identical on every node.

Conflicts between requests are resolved here, when their commands are applied: a name belongs to the topic that was
created first, and every other command names its topic by id, so that it never affects another topic created under the
same name. Raft group numbers are assigned in ascending order and never twice: of two topics with the same name the
later one has the higher groups, and a group below ``next_group`` that is not in the table belonged to a deleted topic.
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
        is_fenced: True if a node counts as gone: it starts outside the in-sync sets of new partitions.
        refuse_replicas: returns the error if some nodes cannot have replicas, or None.

    Attributes:
        index: of the partitions on each node.
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
        """Returns the topic with a name, if it also has the expected id.

        A change that is late, or repeated because its answer was lost, must not affect a later topic with the same
        name.

        Arguments:
            topic_id: the expected id; empty: any.
        """
        topic = self.by_name.get(name)
        return None if topic is None or topic_id not in (b"", topic.topic_id) else topic

    def colliding(self, name: str) -> str | None:
        """Returns an existing topic whose name differs only in '.' and '_', which metric names cannot distinguish;
        None if no topic collides."""
        other = self._names.get(collision_key(name))
        return None if other == name else other

    def was_deleted(self, group: int) -> bool:
        """True if a partition's group belonged to a deleted topic. False for an unknown one: the table may be
        behind."""
        return FIRST_PARTITION_GROUP <= group < self.next_group and group not in self.partitions

    # -- what is created ----------------------------------------------------------------------------------------------

    def check_new(self, name: str) -> errors_pb2.Error | None:
        """Returns the error if no topic with this name can be created, or None."""
        if name in self.by_name:
            return error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        other = self.colliding(name)
        if other is not None:
            return error(
                ErrorCode.INVALID_TOPIC,
                f"topic {name} differs from the existing topic {other} only in '.' and '_', which metrics cannot"
                " distinguish: choose another name",
            )
        return None

    def create(self, command: metadata_log_pb2.CreateTopic) -> ApplyResult:
        """Creates a topic."""
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
        """Adds a topic whose partitions already have their groups."""
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
        """Adds partitions to a topic if it still has the number of partitions that the command expects."""
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
        """Returns the error if a requested node was removed before the command was applied, or None."""
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
        """Sets and clears keys.

        Their values were checked before the command was appended: nodes of two versions may validate them differently,
        but must have the same state.
        """
        topic = self.by_id.get(command.topic_id)
        if topic is None:
            return ApplyResult(_configs_altered("", _gone()))
        configs = topic.configs | dict(command.set)
        topic.configs = {key: value for key, value in configs.items() if key not in command.clear}
        return ApplyResult(
            _configs_altered(topic.name, None), changed_groups={partition.group for partition in topic.partitions}
        )

    def delete(self, command: metadata_log_pb2.DeleteTopic) -> ApplyResult:
        """Deletes a topic with its partitions. Its name can be used again at once."""
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
    """Returns the error for a name that no topic can have, or None."""
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
    """Returns the error for a topic that does not exist, or whose existence must be hidden."""
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
