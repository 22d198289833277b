"""The options of a read, checked: names and meanings are those of Spark's Kafka source."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from quorumlog.sdk.spark.errors import OptionError

#: In JSON offsets, as in Kafka: the first offset kept, and the high watermark.
EARLIEST = -2
LATEST = -1

_SERVERS = ("quorumlog.bootstrap.servers", "kafka.bootstrap.servers")
_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_SUPPORTED = (
    *_SERVERS,
    *_SELECTIONS,
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
)
_NOT_YET = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupId",
    "transactionId",
    "topic",
)
#: How alike an unknown name must be to a known one to count as a slip of the pen.
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What to read: named topics, topics whose whole name matches, or named partitions. Exactly one is set."""

    option: str
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Where to begin or to end: one place for every partition, or one offset per partition.

    Attributes:
        option: the option it came from, for messages.
        everywhere: EARLIEST or LATEST for all partitions; None when ``by_partition`` says.
        by_partition: (topic, partition) to an offset, EARLIEST or LATEST.
    """

    option: str
    everywhere: int | None
    by_partition: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch read, as the user asked for it. Offsets are resolved later, once, by the planner."""

    bootstrap_servers: str
    selection: TopicSelection
    starting: OffsetSpec
    ending: OffsetSpec
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Checks a reader's options and gives them types. Names are case-insensitive, as everywhere in Spark.

    Raises:
        OptionError: an option is missing, unknown, malformed, or contradicts another.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_strangers(options)
    starting = _offsets("startingOffsets", given.get("startingoffsets", "earliest"))
    ending = _offsets("endingOffsets", given.get("endingoffsets", "latest"))
    _refuse_place(starting, LATEST, "latest", "a batch query would read nothing: use earliest, -2 or offsets")
    _refuse_place(ending, EARLIEST, "earliest", "a batch query would read nothing: use latest, -1 or offsets")
    return ReadOptions(
        bootstrap_servers=_bootstrap_servers(given),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        include_headers=_boolean("includeHeaders", given, default=False),
        fail_on_data_loss=_boolean("failOnDataLoss", given, default=True),
        min_partitions=_positive("minPartitions", given),
        max_records_per_partition=_positive("maxRecordsPerPartition", given),
    )


def _refuse_strangers(options: Mapping[str, str]) -> None:
    """Unknown names are refused where they can only be meant for this source: by prefix, or by likeness.

    A misspelt ``startingOffset`` that is silently ignored reads the whole topic.
    """
    known = {name.lower(): name for name in _SUPPORTED}
    later = {name.lower(): name for name in _NOT_YET}
    for name, value in options.items():
        lowered = name.lower()
        if lowered in known:
            continue
        if lowered in later:
            raise OptionError(f"option {later[lowered]} ({value!r}) is not supported yet: remove it")
        if lowered == "path":
            raise OptionError(f"load({value!r}) has no meaning here: name the topic by option subscribe, call load()")
        near = difflib.get_close_matches(lowered, (*known, *later), n=1, cutoff=_NEAR)
        hint = f": did you mean {(known | later)[near[0]]}?" if near else ""
        if lowered.startswith("kafka."):
            hint = hint or ": settings of a Kafka client have no effect here, remove it"
        elif not hint and lowered.startswith("quorumlog."):
            hint = f": the only option of that prefix is {_SERVERS[0]}"
        if hint:
            raise OptionError(f"unknown option {name} ({value!r}){hint}")


def _bootstrap_servers(given: Mapping[str, str]) -> str:
    values = {name: given[name] for name in _SERVERS if given.get(name, "").strip()}
    if not values:
        raise OptionError(f"option {_SERVERS[0]} is missing: give one or more nodes as host:port,host:port")
    if len(set(values.values())) > 1:
        raise OptionError(f"options {' and '.join(_SERVERS)} contradict each other: give only {_SERVERS[0]}")
    name, value = next(iter(values.items()))
    servers = [server.strip() for server in value.split(",") if server.strip()]
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise OptionError(f"option {name} is {value!r}: {server!r} is not host:port")
    return ",".join(servers)


def _selection(given: Mapping[str, str]) -> TopicSelection:
    chosen = [name for name in _SELECTIONS if name.lower() in given]
    if len(chosen) != 1:
        what = f"{' and '.join(chosen)} are" if chosen else "none is"
        raise OptionError(f"exactly one of the options {', '.join(_SELECTIONS)} must be given, {what}")
    (name,) = chosen
    value = given[name.lower()]
    if name == "assign":
        return TopicSelection(name, assign=_assignment(value))
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"option {name} is {value!r}, not a regular expression: {error}") from None
        if not value:
            raise OptionError(f"option {name} is empty: give a regular expression that matches whole topic names")
        return TopicSelection(name, pattern=value)
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"option {name} is {value!r}: name at least one topic, as in 'orders,payments'")
    return TopicSelection(name, subscribe=topics)


def _assignment(value: str) -> dict[str, tuple[int, ...]]:
    shape = """JSON such as {"orders": [0, 1]}"""
    parsed = _json_object("assign", value, shape)
    assignment: dict[str, tuple[int, ...]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(number) for number in partitions):
            _malformed("assign", value, f"partitions of {topic!r} are not a list of numbers from 0", shape)
        assignment[topic] = tuple(sorted(set(partitions)))
    if not assignment:
        _malformed("assign", value, "it names no topic", shape)
    return assignment


def _offsets(option: str, value: str) -> OffsetSpec:
    word = value.strip().lower()
    if word in {"earliest", "latest"}:
        return OffsetSpec(option, EARLIEST if word == "earliest" else LATEST, {})
    shape = """earliest, latest or JSON such as {"orders": {"0": 42, "1": -2}}"""
    by_partition: dict[tuple[str, int], int] = {}
    for topic, partitions in _json_object(option, value, shape).items():
        if not isinstance(partitions, dict) or not partitions:
            _malformed(option, value, f"offsets of {topic!r} are not an object of partition to offset", shape)
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdigit()):
                _malformed(option, value, f"{number!r} of {topic!r} is not a partition's number", shape)
            if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST <= offset < 1 << 63:
                _malformed(option, value, f"{offset!r} of {topic!r} partition {number} is not an offset", shape)
            by_partition[topic, int(number)] = offset
    if not by_partition:
        _malformed(option, value, "it names no topic", shape)
    return OffsetSpec(option, None, by_partition)


def _refuse_place(spec: OffsetSpec, place: int, word: str, advice: str) -> None:
    if spec.everywhere == place:
        raise OptionError(f"option {spec.option} must not be {word}: {advice}")
    for (topic, partition), offset in spec.by_partition.items():
        if offset == place:
            raise OptionError(f"option {spec.option} must not be {place} ({topic} partition {partition}): {advice}")


def _json_object(option: str, value: str, shape: str) -> dict[str, object]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        _malformed(option, value, str(error), shape)
    if not isinstance(parsed, dict):
        _malformed(option, value, "it is no JSON object", shape)
    return parsed


def _malformed(option: str, value: str, reason: str, shape: str) -> NoReturn:
    raise OptionError(f"option {option} is {value!r}: {reason}; expected {shape}")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 31


def _boolean(option: str, given: Mapping[str, str], *, default: bool) -> bool:
    value = given.get(option.lower())
    if value is None:
        return default
    if value.strip().lower() not in {"true", "false"}:
        raise OptionError(f"option {option} is {value!r}: expected true or false")
    return value.strip().lower() == "true"


def _positive(option: str, given: Mapping[str, str]) -> int | None:
    value = given.get(option.lower())
    if value is None:
        return None
    if not (value.strip().isascii() and value.strip().isdigit() and 0 < int(value) < 1 << 63):
        raise OptionError(f"option {option} is {value!r}: expected a number from 1")
    return int(value)
