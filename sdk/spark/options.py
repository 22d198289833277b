"""Validated options of reads, with the names and meanings of Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.option_values import SELECTIONS, GivenOptions, whole_number

_MAX_GROUP_ID = 249
#: Limit of tasks per query: an hour of Spark's own overhead. A million tasks take the driver a minute to plan.
MAX_TASKS = 100_000
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics to read: named topics, topics whose whole name matches, or named partitions. Exactly one is set."""

    option: str
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The start or end of a read: one place for every partition, or one per partition.

    Attributes:
        option: the option it came from, for messages.
        everywhere: EARLIEST or LATEST, or with ``by_time`` a timestamp, for all partitions; None if ``by_partition`` is
            set.
        by_partition: (topic, partition) to an offset, EARLIEST or LATEST, or with ``by_time`` a timestamp.
        by_time: places are timestamps, in milliseconds since the epoch.
        late_is_latest: a timestamp after the last record means the end; otherwise it is an error.
    """

    option: str
    everywhere: int | None
    by_partition: Mapping[tuple[str, int], int]
    by_time: bool = False
    late_is_latest: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options common to batch and streaming reads. Offsets are resolved later, once, by the planner.

    Attributes:
        skip_unreadable: skip batches whose records cannot be decoded; otherwise they are an error.
        from_replicas: the tasks of a partition are spread over its replicas; otherwise all read from its leader.
    """

    bootstrap_servers: str
    selection: TopicSelection
    starting: OffsetSpec
    include_headers: bool
    fail_on_data_loss: bool
    skip_unreadable: bool
    from_replicas: bool
    min_partitions: int | None
    max_records_per_partition: int | None


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of a batch read."""

    read: ReadOptions
    ending: OffsetSpec


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a streaming read.

    Attributes:
        max_offsets: limit of offsets in a micro-batch; None for no limit.
        min_offsets: number of offsets to wait for before a micro-batch; None for no minimum.
        max_delay_ms: longest time that fewer offsets wait for more, in milliseconds.
        group_id: the consumer group that shows the query's progress, if any.
    """

    read: ReadOptions
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    group_id: str | None


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Validates options before it is known whether the read is a batch or a stream.

    Raises:
        OptionError: an option is missing, unknown, malformed, or contradicts another.
    """
    parsed = GivenOptions(options)
    parsed.refuse_all_but("a batch read", "a streaming read", "a read")
    return _common(parsed, default_start="earliest")


def parse_batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Validates and parses the options of a batch read.

    Raises:
        OptionError: an option is missing, unknown, malformed, contradicts another, or does not apply to batch reads.
    """
    parsed = GivenOptions(options)
    parsed.refuse_all_but("a read", "a batch read")
    read = _common(parsed, default_start="earliest")
    ending = _place(parsed, "ending", "latest", late_is_latest=True)
    _refuse_place(read.starting, LATEST, "latest", "a batch query would read nothing: use earliest, -2 or offsets")
    _refuse_place(ending, EARLIEST, "earliest", "a batch query would read nothing: use latest, -1 or offsets")
    return BatchOptions(read, ending)


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Validates and parses the options of a streaming read.

    Raises:
        OptionError: an option is missing, unknown, malformed, contradicts another, or does not apply to streaming
            reads.
    """
    parsed = GivenOptions(options)
    parsed.refuse_all_but("a read", "a streaming read")
    least, most = parsed.number("minOffsetsPerTrigger", least=1), parsed.number("maxOffsetsPerTrigger", least=1)
    if least is not None and most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")
    return StreamOptions(
        _common(parsed, default_start="latest"),
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=parsed.duration_ms("maxTriggerDelay", "15m"),
        group_id=_group_id(parsed),
    )


def _common(given: GivenOptions, default_start: str) -> ReadOptions:
    strategy = given.text("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in {"error", "latest"}:
        raise OptionError(f"option startingOffsetsByTimestampStrategy is {strategy!r}: expected error or latest")
    on_corrupt = given.text("onCorrupt", "raise").strip().lower()
    if on_corrupt not in {"raise", "skip"}:
        raise OptionError(f"option onCorrupt is {on_corrupt!r}: expected raise or skip")
    read_from = given.text("readFrom", "leader").strip().lower()
    if read_from not in {"leader", "replicas"}:
        raise OptionError(f"option readFrom is {read_from!r}: expected leader or replicas")
    return ReadOptions(
        bootstrap_servers=given.bootstrap_servers(),
        selection=_selection(given),
        starting=_place(given, "starting", default_start, late_is_latest=strategy == "latest"),
        include_headers=given.boolean("includeHeaders", default=False),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        skip_unreadable=on_corrupt == "skip",
        from_replicas=read_from == "replicas",
        min_partitions=given.number("minPartitions", least=1, most=MAX_TASKS),
        max_records_per_partition=given.number("maxRecordsPerPartition", least=1),
    )


def _selection(given: GivenOptions) -> TopicSelection:
    chosen = [name for name in SELECTIONS if name in given]
    if len(chosen) != 1:
        what = f"{' and '.join(chosen)} are" if chosen else "none is"
        raise OptionError(f"exactly one of the options {', '.join(SELECTIONS)} must be given, {what}")
    (name,) = chosen
    value = given.text(name)
    if name == "assign":
        return TopicSelection(name, assign=_assignment(given))
    if name == "subscribePattern":
        if not value.strip():
            raise OptionError(f"option {name} is empty: give a regular expression that matches whole topic names")
        try:
            re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise OptionError(f"option {name} is {value[:200]!r}, not a regular expression: {error}") from None
        return TopicSelection(name, pattern=value)
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"option {name} is {value!r}: name at least one topic, as in 'orders,payments'")
    return TopicSelection(name, subscribe=topics)


def _assignment(given: GivenOptions) -> dict[str, tuple[int, ...]]:
    shape = """JSON such as {"orders": [0, 1]}"""
    assignment: dict[str, tuple[int, ...]] = {}
    for topic, partitions in given.json_object("assign", shape).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(number) for number in partitions):
            given.malformed("assign", f"partitions of {topic!r:.80} are not a list of numbers from 0", shape)
        assignment[topic] = tuple(sorted(set(partitions)))
    if not assignment:
        given.malformed("assign", "it names no topic", shape)
    return assignment


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 31


def _place(given: GivenOptions, side: str, default: str, *, late_is_latest: bool) -> OffsetSpec:
    """Returns the place of the most specific of three options: one timestamp, timestamps, or offsets."""
    everywhere = given.number(f"{side}Timestamp", least=0)
    if everywhere is not None:
        return OffsetSpec(f"{side}Timestamp", everywhere, {}, True, late_is_latest)
    option = f"{side}OffsetsByTimestamp"
    if option in given:
        shape = """JSON such as {"orders": {"0": 1700000000000}}"""
        return OffsetSpec(option, None, _by_partition(given, option, shape, "timestamp", 0), True, late_is_latest)
    option = f"{side}Offsets"
    word = given.text(option, default).strip().lower()
    if word in _WORDS:
        return OffsetSpec(option, _WORDS[word], {})
    shape = """earliest, latest or JSON such as {"orders": {"0": 42, "1": -2}}"""
    return OffsetSpec(option, None, _by_partition(given, option, shape, "offset", EARLIEST))


def _by_partition(given: GivenOptions, option: str, shape: str, what: str, least: int) -> Mapping[tuple[str, int], int]:
    """Parses a JSON object of topics to objects of partitions to numbers."""
    by_partition: dict[tuple[str, int], int] = {}
    for topic, partitions in given.json_object(option, shape).items():
        if not isinstance(partitions, dict) or not partitions:
            given.malformed(option, f"{what}s of {topic!r:.80} are not an object of partition to {what}", shape)
        for number, value in partitions.items():
            # "00" beside "0" would specify one partition twice.
            if not (_is_count(whole_number(number)) and number == str(whole_number(number))):
                given.malformed(option, f"{number!r:.80} of {topic!r:.80} is not a partition's number", shape)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
                given.malformed(option, f"{value!r:.80} of {topic!r:.80} partition {number} is not {_a(what)}", shape)
            by_partition[topic, int(number)] = value
    if not by_partition:
        given.malformed(option, "it names no topic", shape)
    return by_partition


def _a(what: str) -> str:
    return f"an {what}" if what == "offset" else f"a {what}"


def _refuse_place(spec: OffsetSpec, place: int, word: str, advice: str) -> None:
    if spec.everywhere == place:
        raise OptionError(f"option {spec.option} must not be {word}: {advice}")
    for (topic, partition), offset in spec.by_partition.items():
        if offset == place:
            raise OptionError(f"option {spec.option} must not be {place} ({topic} partition {partition}): {advice}")


def _group_id(given: GivenOptions) -> str | None:
    if "groupId" not in given:
        return None
    group_id = given.text("groupId")
    if not 1 <= len(group_id) <= _MAX_GROUP_ID:
        raise OptionError(f"option groupId is {group_id!r}: expected 1 to {_MAX_GROUP_ID} characters")
    return group_id
