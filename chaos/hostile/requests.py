"""Requests of any type, created from its descriptor: plausible, except for a field or two.

Values belong together: a request concerns one topic, one partition, one member. Otherwise nearly every one would be
rejected for its first field, and the code after that check would never be reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorumlog.chaos.hostile.batches import BatchMaker
from quorumlog.chaos.hostile.boundaries import TEXTS, boundary, length
from quorumlog.chaos.hostile.known_ids import (
    GROUPS,
    NEW_TOPICS,
    PRODUCER_NAMES,
    KnownMember,
    KnownTopic,
    LearntPartition,
    Vocabulary,
)

#: Nested messages beyond this depth stay empty.
MAX_DEPTH = 4
#: Maximum number of partitions of a new topic, unless the request is so large that it is rejected: each partition is a
#: Raft group on each node.
MOST_PARTITIONS = 6
_TOO_MANY_PARTITIONS = 100_000
_CONFIGS: dict[str, tuple[str, ...]] = {
    "retention.ms": ("-1", "0", "1", "60000", "9223372036854775807", "9223372036854775808"),
    "retention.bytes": ("-1", "0", "1", "100000", "9223372036854775807"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "delete.retention.ms": ("0", "1000", "9223372036854775807"),
    "min.cleanable.dirty.ratio": ("0", "1", "0.5", "nan", "-0.0", "1e-320"),
    "max.message.bytes": ("0", "1", "1024", "1048576", "2147483647"),
    "min.insync.replicas": ("1", "2", "3", "0", "4"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "no.such.key": ("", "1"),
}


@dataclass(slots=True)
class Subject:
    """The topic, partition, group and member of one request."""

    topic: KnownTopic | None
    partition: LearntPartition | None
    group_id: str
    member: KnownMember | None


class RequestValues(Protocol):
    """The source of plausible values."""

    vocabulary: Vocabulary
    chance: random.Random


_Plausible = Callable[[RequestValues, Subject], object]


def _topic_name(maker: RequestValues, about: Subject) -> object:
    return about.topic.name if about.topic is not None else maker.chance.choice(NEW_TOPICS)


def _several_topics(maker: RequestValues, about: Subject) -> object:
    known = list(maker.vocabulary.topics) or list(NEW_TOPICS)
    return maker.chance.choice(known)


def _any_replicas(maker: RequestValues, about: Subject) -> object:
    return maker.chance.choice(maker.vocabulary.nodes)


def _member_epoch(maker: RequestValues, about: Subject) -> object:
    if about.member is None:
        return maker.chance.choice((0, -1))
    return about.member.member_epoch + maker.chance.choice((0, 0, 0, 0, -1, 1))


def _pick(*values: object) -> _Plausible:
    return lambda maker, about: maker.chance.choice(values)


#: Plausible values of fields by name; "Message.field" takes precedence over "field".
_PLAUSIBLE: dict[str, _Plausible] = {
    "topic_id": lambda maker, about: about.topic.topic_id if about.topic is not None else b"\1" * 16,
    "partition": lambda maker, about: about.partition.number if about.partition is not None else 0,
    "partitions": lambda maker, about: maker.chance.randrange(4),
    "leader_epoch": lambda maker, about: (
        about.partition.leader_epoch if about.partition is not None and maker.chance.random() < 0.7 else -1
    ),
    "topic": _topic_name,
    "topics": _several_topics,
    "NewTopic.name": lambda maker, about: maker.chance.choice(NEW_TOPICS),
    "NewPartitions.name": _topic_name,
    "AlterTopicConfig.name": _topic_name,
    "DeleteTopicsRequest.names": lambda maker, about: maker.chance.choice(NEW_TOPICS),
    "DescribeConfigsRequest.names": _several_topics,
    "DeleteProducersRequest.names": lambda maker, about: maker.chance.choice(PRODUCER_NAMES),
    "InitProducerIdRequest.name": lambda maker, about: maker.chance.choice((*PRODUCER_NAMES, "")),
    "clear": lambda maker, about: maker.chance.choice(list(_CONFIGS)),
    "num_partitions": _pick(1, 2, 3, -1),
    "total_count": _pick(2, 3, 4, 5),
    "replication_factor": _pick(1, 3, 3, -1),
    "replicas": _any_replicas,
    "group_id": lambda maker, about: about.group_id,
    "group_ids": lambda maker, about: maker.chance.choice(GROUPS),
    "member_id": lambda maker, about: about.member.member_id if about.member is not None else "nobody",
    "member_epoch": _member_epoch,
    "instance_id": _pick("", "", "", "static-1", "static-2"),
    "rack": _pick("", "rack-1"),
    "machine": _pick("", "machine-1"),
    "session_timeout_ms": _pick(6_000, 10_000),
    "rebalance_timeout_ms": _pick(1_000, 10_000),
    "topic_pattern": _pick("", "", "stage.*", "made-[0-3]"),
    "assignor": _pick("", "uniform", "range"),
    "acks": _pick(-1, -1, -1, 0, 1),
    "timeout_ms": _pick(1, 100, 500, 500),
    "max_wait_ms": _pick(0, 1, 50, 200),
    "min_bytes": _pick(0, 1, 1, 10_000),
    "max_bytes": _pick(0, 1, 65_536),
    "session_epoch": _pick(0, 0, 0, 1, 2),
    "fetch_offset": _pick(0, 0, 1, 10, 1_000),
    "first_offset": _pick(0, 0, 1, 1_000),
    "timestamp_ms": _pick(-1, -2, 0, 1, 1_700_000_000_000),
    "before_offset": _pick(-1, 0, 1, 5),
    "offset": _pick(0, 1, 10),
    "validate_only": _pick(False, False, True),
    "claimed_before_ms": _pick(0, 1, 1 << 62),
    "epoch": _pick(-1, -1, 0, 1, 2),
    "known_epoch": _pick(-1, -1, 0, 1, 2),
    "note": _pick(b"", b"note"),
    "metadata": _pick("", "m"),
    "number": _pick(0, 1, 2, 3),
}


class RequestMaker:
    """Creates requests.

    Arguments:
        chance: source of all random decisions.
    """

    def __init__(self, vocabulary: Vocabulary, chance: random.Random) -> None:
        self.vocabulary = vocabulary
        self.chance = chance
        self.batches = BatchMaker(chance)

    def subject(self) -> Subject:
        """Returns a random subject of a request."""
        topic = self.vocabulary.topic(self.chance)
        partition = self.chance.choice(topic.partitions) if topic is not None else None
        member = self.chance.choice(self.vocabulary.members) if self.vocabulary.members else None
        group_id = member.group_id if member is not None else self.chance.choice(GROUPS)
        if self.chance.random() < 0.2:
            group_id = self.chance.choice(GROUPS)
        return Subject(topic, partition, group_id, member)

    def request(self, kind: type[Message], about: Subject | None = None) -> Message:
        """Returns a request; usually up to a tenth of its fields have boundary values, in some requests most of
        them.
        """
        wrong = self.chance.choice((0.0, 0.0, 0.03, 0.05, 0.1, 0.7))
        return self._message(kind.DESCRIPTOR, about or self.subject(), wrong, 0)

    def spoil(self, message: Message) -> None:
        """Sets one field of a valid message to a boundary value, or clears it."""
        fields: Any = message.DESCRIPTOR.fields
        each = self.chance.choice(fields)
        if self.chance.random() < 0.2:
            message.ClearField(each.name)
        else:
            self._put(message, each, self.subject(), 1.0, 0)

    def _message(self, kind: Any, about: Subject, wrong: float, depth: int) -> Message:
        made: Message = GetMessageClass(kind)()
        left_out = {each.name for oneof in kind.oneofs for each in oneof.fields}
        left_out -= {self.chance.choice(oneof.fields).name for oneof in kind.oneofs}
        fields: list[FieldDescriptor] = list(kind.fields)
        for each in fields:
            if each.name not in left_out and self.chance.random() >= wrong / 3:
                self._put(made, each, about, wrong, depth)
        return made

    def _put(self, message: Message, each: FieldDescriptor, about: Subject, wrong: float, depth: int) -> None:
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            self._put_map(message, each, wrong)
        elif each.is_repeated:
            self._put_list(message, each, about, wrong, depth)
        elif each.message_type is not None:
            if depth < MAX_DEPTH:
                getattr(message, each.name).CopyFrom(self._message(each.message_type, about, wrong, depth + 1))
        else:
            setattr(message, each.name, self._value(each, about, wrong))

    def _put_list(self, message: Message, each: FieldDescriptor, about: Subject, wrong: float, depth: int) -> None:
        at_edge = self.chance.random() < wrong
        count = length(self.chance) if at_edge else self.chance.choice((1, 1, 2, 3))
        if depth >= MAX_DEPTH:
            return
        if each.message_type is None:
            values: list[Any] = [self._value(each, about, wrong) for _ in range(min(count, 64))]
        else:
            values = [
                self._message(each.message_type, self._next(about), wrong, depth + 1) for _ in range(min(count, 64))
            ]
        if each.message_type is not None and self.chance.random() < 0.95:
            values = _of_different_partitions(values)
            count = min(count, len(values))
        # A very long list repeats its items: creating them all would dominate the run time.
        getattr(message, each.name).extend((values * (count // 64 + 1))[:count] if values else values)

    def _next(self, about: Subject) -> Subject:
        """Returns the subject of a list's next item, usually another partition."""
        if self.chance.random() < 0.2:
            return about
        fresh = self.subject()
        return Subject(fresh.topic, fresh.partition, about.group_id, about.member)

    def _put_map(self, message: Message, each: FieldDescriptor, wrong: float) -> None:
        entries = getattr(message, each.name)
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            key = self.chance.choice(list(_CONFIGS))
            value = self.chance.choice(_CONFIGS[key])
            if self.chance.random() < wrong:
                key = self.chance.choice(TEXTS)
            if self.chance.random() < wrong:
                value = self.chance.choice(TEXTS)
            entries[key] = value

    def _value(self, each: FieldDescriptor, about: Subject, wrong: float) -> object:
        chance = self.chance
        if chance.random() < wrong:
            return self._bounded(each, boundary(each, chance))
        plausible = _PLAUSIBLE.get(f"{_owner(each)}.{each.name}") or _PLAUSIBLE.get(each.name)
        if plausible is not None:
            value = plausible(self, about)
            return value if _fits(each, value) else boundary(each, chance)
        if each.name == "batch":
            producers = self.vocabulary.producers
            producer = chance.choice(producers) if producers and chance.random() < 0.5 else None
            return self.batches.batch(producer, chance.choice((0, 0, 1, 2, 50)), chance.random() < 0.3)
        known = self.vocabulary.known(each.name, chance)
        if known is not None and _fits(each, known):
            return known
        return boundary(each, chance)

    def _bounded(self, each: FieldDescriptor, value: object) -> object:
        if each.name in ("num_partitions", "total_count") and isinstance(value, int):
            return (
                value if not MOST_PARTITIONS < value < _TOO_MANY_PARTITIONS else self.chance.randrange(MOST_PARTITIONS)
            )
        return value


def _owner(each: FieldDescriptor) -> str:
    return each.containing_type.name if each.containing_type is not None else ""


def _of_different_partitions(items: list[Message]) -> list[Message]:
    """Removes items that name a partition again: for that alone a request would be rejected as a whole."""
    if not items or not {"topic_id", "partition"} <= set(items[0].DESCRIPTOR.fields_by_name):
        return items
    return list({(item.topic_id, item.partition): item for item in items}.values())  # type: ignore[attr-defined]


def _fits(each: FieldDescriptor, value: object) -> bool:
    """True if a value of a field of the same name fits this one."""
    if each.type == FieldDescriptor.TYPE_BYTES:
        return isinstance(value, bytes)
    if each.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return isinstance(value, str)
    if not isinstance(value, int):
        return False
    if each.enum_type is not None:
        return -(1 << 31) <= value < 1 << 31
    bits = {
        FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), 1 << 31),
        FieldDescriptor.CPPTYPE_UINT32: (0, 1 << 32),
        FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), 1 << 63),
        FieldDescriptor.CPPTYPE_UINT64: (0, 1 << 64),
        FieldDescriptor.CPPTYPE_BOOL: (0, 2),
    }.get(each.cpp_type)
    return bits is not None and bits[0] <= value < bits[1]
