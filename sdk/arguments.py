"""Validates arguments of the clients before use; each error message is one line.

Without these checks, a wrong type would fail deep in a background thread, or in the protocol's encoder, with an
unhelpful message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from quorumlog.sdk.errors import IllegalArgumentError, OffsetMetadataTooLargeError
from quorumlog.sdk.transaction_views import TransactionState
from quorumlog.sdk.types import GroupState, OffsetAndMetadata, TopicPartition

Value = TypeVar("Value")
StateT = TypeVar("StateT", GroupState, TransactionState)

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
#: Limit of metadata text in one request. A commit with more is split: each request becomes one entry of a log.
MAX_TEXT_BYTES = 4 << 20


def checked_topic(topic: object) -> str:
    """Returns a topic's name. The nodes decide which names are allowed."""
    if not isinstance(topic, str) or not topic:
        raise IllegalArgumentError(f"topic {topic!r} is not a name: topics are given one by one, as strings")
    if not is_text(topic):
        raise IllegalArgumentError(f"topic {topic!r} is not text: it cannot be written as UTF-8")
    return topic


def checked_topics(topics: Iterable[str]) -> tuple[str, ...]:
    """Returns names of topics without duplicates."""
    if isinstance(topics, str | bytes | Mapping) or not isinstance(topics, Iterable):
        raise IllegalArgumentError(f"topics are {topics!r}: give a list of names")
    return tuple(dict.fromkeys(checked_topic(topic) for topic in topics))


def checked_partition(partition: object) -> TopicPartition:
    """Returns a topic and the number of one of its partitions."""
    if not (isinstance(partition, tuple) and len(partition) == 2 and type(partition[1]) is int):
        raise IllegalArgumentError(f"{partition!r} is not a TopicPartition(topic, partition)")
    if not 0 <= partition[1] <= MAX_INT32:
        raise IllegalArgumentError(f"partition {partition[1]} of {partition[0]!r}: partitions are numbered from 0")
    return TopicPartition(checked_topic(partition[0]), partition[1])


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns partitions without duplicates."""
    if not isinstance(partitions, Iterable):
        raise IllegalArgumentError(f"partitions are {partitions!r}: give a list of TopicPartition(topic, partition)")
    return list(dict.fromkeys(checked_partition(partition) for partition in partitions))


def checked_offset(offset: object) -> int:
    """Returns an offset from 0 to 2^63 - 1."""
    if type(offset) is not int or not 0 <= offset <= MAX_INT64:
        raise IllegalArgumentError(f"offset is {offset!r}: give an int from 0 to 2^63 - 1, or use seek_to_end")
    return offset


def checked_numbers(numbers: Mapping[TopicPartition, int], lowest: int, what: str) -> dict[TopicPartition, int]:
    """Returns a number per partition.

    Arguments:
        lowest: the lowest allowed value; the highest is 2^63 - 1.
        what: meaning and unit of the numbers, for the message.
    """
    if not isinstance(numbers, Mapping):
        raise IllegalArgumentError(f"{numbers!r} is not a mapping from TopicPartition(topic, partition) to {what}")
    checked: dict[TopicPartition, int] = {}
    for partition, number in numbers.items():
        tp = checked_partition(partition)
        if type(number) is not int or not lowest <= number <= MAX_INT64:
            raise IllegalArgumentError(f"for {tp.topic}-{tp.partition} {number!r} is given: it must be {what}")
        checked[tp] = number
    return checked


def checked_commits(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offset to commit per partition: the next offset to read, with its metadata."""
    if not isinstance(offsets, Mapping):
        raise IllegalArgumentError(f"{offsets!r} is not a mapping from TopicPartition(topic, partition) to offsets")
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, value in offsets.items():
        tp = checked_partition(partition)
        commit = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
        if type(commit.offset) is not int or not 0 <= commit.offset <= MAX_INT64:
            raise IllegalArgumentError(
                f"for {tp.topic}-{tp.partition} {value!r} is given: it must be an offset or OffsetAndMetadata(offset,"
                " metadata, leader_epoch), with an offset from 0 on"
            )
        if not isinstance(commit.metadata, str) or not is_text(commit.metadata):
            raise IllegalArgumentError(f"the metadata beside offset {commit.offset} is {commit.metadata!r}: give text")
        if (size := len(commit.metadata.encode())) > MAX_TEXT_BYTES:
            raise OffsetMetadataTooLargeError(
                f"the text beside offset {commit.offset} of {tp.topic}-{tp.partition} has {size} bytes: no node keeps"
                " so much"
            )
        epoch = commit.leader_epoch
        if epoch is not None and (type(epoch) is not int or not 0 <= epoch <= MAX_INT64):
            raise IllegalArgumentError(f"the leader epoch beside offset {commit.offset} is {epoch!r}: give it or None")
        checked[tp] = commit
    return checked


def checked_group(group_id: object) -> str:
    """Returns a group id. The nodes decide which ids are allowed."""
    if not isinstance(group_id, str) or not group_id:
        raise IllegalArgumentError(f"group {group_id!r} is not an id: groups are given as strings")
    if not is_text(group_id):
        raise IllegalArgumentError(f"group {group_id!r} is not text: it cannot be written as UTF-8")
    return group_id


def checked_groups(group_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns group ids without duplicates."""
    if isinstance(group_ids, str | bytes | Mapping) or not isinstance(group_ids, Iterable):
        raise IllegalArgumentError(f"groups are {group_ids!r}: give a list of ids")
    return tuple(dict.fromkeys(checked_group(group_id) for group_id in group_ids))


def checked_producer_names(names: Iterable[str]) -> tuple[str, ...]:
    """Returns producer names without duplicates. The nodes decide which names are allowed."""
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise IllegalArgumentError(f"producer names are {names!r}: give a list of names")
    return tuple(dict.fromkeys(_checked_producer_name(name) for name in names))


def _checked_producer_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise IllegalArgumentError(f"producer name {name!r} is not a name: names are given one by one, as strings")
    return checked_prefix(name)


def checked_prefix(prefix: object) -> str:
    """Returns a prefix of producer names, which may be empty."""
    if not isinstance(prefix, str) or not is_text(prefix):
        raise IllegalArgumentError(f"producer names cannot start with {prefix!r}: give text that UTF-8 can write")
    return prefix


def checked_claim_time(claimed_before_ms: object) -> int:
    """Returns a time in milliseconds since the epoch; 0 for None, which means any time."""
    if claimed_before_ms is None:
        return 0
    if type(claimed_before_ms) is not int or not 0 < claimed_before_ms <= MAX_INT64:
        raise IllegalArgumentError(
            f"claimed_before_ms is {claimed_before_ms!r}: give a time in milliseconds since 1970, or None for any"
        )
    return claimed_before_ms


def checked_states(states: Iterable[GroupState | str]) -> tuple[GroupState, ...]:
    """Returns group states without duplicates, given by name (in any case) or as members of `GroupState`."""
    return _members(states, GroupState, "a group", ["Empty", "Stable"])


def _members(states: Iterable[StateT | str], kind: type[StateT], of: str, example: list[str]) -> tuple[StateT, ...]:
    known = {state.value.lower(): state for state in kind}
    if isinstance(states, str | bytes) or not isinstance(states, Iterable):
        raise IllegalArgumentError(f"states are {states!r}: give a list such as {example}")
    checked: dict[StateT, None] = {}
    for value in states:
        state = known.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(state, kind):
            names = ", ".join(state.value for state in kind)
            raise IllegalArgumentError(f"{value!r} is not a state of {of}: choose among {names}")
        checked[state] = None
    return tuple(checked)


def checked_transactional_ids(names: Iterable[str]) -> tuple[str, ...]:
    """Returns transactional ids without duplicates. The nodes decide which are allowed."""
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise IllegalArgumentError(f"transactional ids are {names!r}: give a list of ids")
    checked: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str) or not name or not is_text(name):
            raise IllegalArgumentError(f"transactional id {name!r} is not an id: ids are given one by one, as strings")
        checked[name] = None
    return tuple(checked)


def checked_transaction_filters(
    states: Iterable[TransactionState | str] | None,
    producer_ids: Iterable[int] | None,
    longer_than_ms: int | None,
    name_pattern: str,
) -> tuple[tuple[TransactionState, ...], tuple[int, ...], int | None, str]:
    """Returns the filters of a list of transactional ids."""
    checked = _members(() if states is None else states, TransactionState, "a transactional id", ["Ongoing"])
    producer_ids = () if producer_ids is None else producer_ids
    if isinstance(producer_ids, str | bytes) or not isinstance(producer_ids, Iterable):
        raise IllegalArgumentError(f"producer ids are {producer_ids!r}: give a list of numbers")
    ids = tuple(producer_ids)
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
            raise IllegalArgumentError(f"producer id {number!r} is not a number from 0 to 2**63 - 1")
    if longer_than_ms is not None and (type(longer_than_ms) is not int or not 0 <= longer_than_ms < 1 << 62):
        raise IllegalArgumentError(f"longer_than_ms is {longer_than_ms!r}: give milliseconds from 0 on")
    if not isinstance(name_pattern, str) or not is_text(name_pattern):
        raise IllegalArgumentError(f"name_pattern is {name_pattern!r}: give a regular expression")
    return checked, ids, longer_than_ms, name_pattern


def checked_settings(settings: Mapping[str, object], what: str) -> dict[str, str]:
    """Returns a topic's settings as strings. The nodes decide which settings exist."""
    if not isinstance(settings, Mapping):
        raise IllegalArgumentError(f"{what} are {settings!r}: give a mapping such as {{'retention.ms': '60000'}}")
    checked = {name: str(value) for name, value in settings.items()}
    for name, value in checked.items():
        if not isinstance(name, str) or not is_text(name + value):
            raise IllegalArgumentError(f"{what} have {name!r}: {value!r}, which is not text")
    return checked


def checked_by_topic(given: Mapping[str, Value], what: str) -> dict[str, Value]:
    """Returns a mapping from topics to values with validated topic names."""
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(f"{given!r} is not a mapping from names of topics to {what}")
    return {checked_topic(topic): value for topic, value in given.items()}


def is_text(text: str) -> bool:
    """True if the text can be encoded as UTF-8: a lone surrogate, as in a file name that is not UTF-8, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_wait(timeout: object, what: str = "timeout", *, endless: bool = True) -> None:
    """Raises `IllegalArgumentError` unless it is a number of at least 0; None is allowed if ``endless``."""
    if timeout is None and endless:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise IllegalArgumentError(f"{what} is {timeout!r}: it must be a number from 0 on")


def checked_node(given: object, what: str = "node_id") -> int:
    """Returns a node id."""
    return checked_nodes([given], what)[0]


def checked_nodes(given: object, what: str = "replicas") -> list[int]:
    """Returns a list of node ids."""
    nodes = list(given) if isinstance(given, Iterable) else None
    if nodes is None or not all(type(node) is int and abs(node) <= MAX_INT32 for node in nodes):
        raise IllegalArgumentError(f"{what} {given!r} are not node ids: give numbers such as [1, 2, 3]")
    return nodes


def checked_replicas(
    replicas: Mapping[TopicPartition, Sequence[int] | None],
) -> dict[TopicPartition, list[int] | None]:
    """Returns a list of node ids, or None, per partition."""
    if not isinstance(replicas, Mapping):
        raise IllegalArgumentError(f"{replicas!r} is not a mapping from TopicPartition(topic, partition) to node ids")
    return {checked_partition(tp): None if nodes is None else checked_nodes(nodes) for tp, nodes in replicas.items()}


def check_int32(number: object, what: str) -> None:
    """Raises `IllegalArgumentError` for a number that does not fit on the wire. The nodes decide its range."""
    if type(number) is not int or abs(number) > MAX_INT32:
        raise IllegalArgumentError(f"{what} is {number!r}: it must be a whole number below 2^31")


def check_count(count: object, what: str) -> None:
    """Raises `IllegalArgumentError` unless it is a whole number of at least 1."""
    if type(count) is not int or count < 1:
        raise IllegalArgumentError(f"{what} is {count!r}: it must be a whole number of at least 1")


def checked_throttle(throttle: object) -> int:
    """Returns a limit in bytes per second; 0 means no limit. The nodes decide the lowest limit."""
    if type(throttle) is not int or not 0 <= throttle < 2**63:
        raise IllegalArgumentError(
            f"throttle_bytes_per_second is {throttle!r}: it must be a whole number of bytes, 0 for no limit"
        )
    return throttle
