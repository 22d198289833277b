"""Topic configuration: the keys, their allowed values, and the defaults."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from quorumlog.server.config.plain_numbers import parse_decimal, parse_integer
from quorumlog.wire.entry import TimestampType

_DAY_MS = 86_400_000
_MAX_LONG = (1 << 63) - 1
#: The words of ``cleanup.policy``.
COMPACT, DELETE = "compact", "delete"
#: Maximum batch size whatever the topic's configuration: a batch is one Raft entry and is sent in one message.
MAX_BATCH_BYTES = 8 << 20


class InvalidTopicConfigError(ValueError):
    """Raised for an unknown key, or a value outside its type or range. The message is one line that says what to do."""


@dataclass(slots=True, frozen=True)
class TopicConfig:
    """A topic's configuration with every default filled in.

    Arguments:
        retention_ms: how long records are kept, in milliseconds; -1: forever.
        retention_bytes: how much of each partition is kept, in bytes; -1: everything.
        cleanup_policy: "delete" removes old records by time and size, "compact" keeps the last record of each key. Both
            may be set; they are in the order in which they were given.
        delete_retention_ms: how long tombstones are kept after their first compaction, in milliseconds.
        min_compaction_lag_ms: how long a record is kept before compaction may remove it, in milliseconds.
        max_compaction_lag_ms: how long after its append a record is compacted at the latest, in milliseconds.
        min_cleanable_dirty_ratio: the fraction of a partition that must be new before it is compacted again.
        max_message_bytes: the largest batch accepted, in bytes, overhead included.
        min_insync_replicas: with acks=all, how many replicas must have a record durably before it is acknowledged.
        message_timestamp_type: the source of the records' timestamps.
    """

    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = (DELETE,)
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1 << 20
    min_insync_replicas: int = 1
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def compacts(self) -> bool:
        """True if only the last record of each key is kept."""
        return COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if records are removed by time and size."""
        return DELETE in self.cleanup_policy


@dataclass(slots=True, frozen=True)
class IntegerKey:
    """A key whose value is an integer between two bounds, both included. ``attribute`` is TopicConfig's name for it."""

    name: str
    attribute: str
    unit: str
    smallest: int
    largest: int
    doc: str

    def parse(self, text: str, *, is_stored: bool = False) -> int:
        """Returns the value in ``text``.

        Arguments:
            is_stored: the value is set on a topic. Older versions also accepted Python's own notation, such as
                ``1_000``.

        Raises:
            InvalidTopicConfigError: not an integer, or out of range.
        """
        expected = f"expected an integer {self.unit}, {self._range()}"
        try:
            value = int(text) if is_stored else parse_integer(text)
        except ValueError:
            raise InvalidTopicConfigError(f"{self.name}={_shown(text)}: {expected}") from None
        if not self.smallest <= value <= self.largest:
            raise InvalidTopicConfigError(f"{self.name}={_shown(text)}: out of range, {expected}")
        return value

    @staticmethod
    def text(value: object) -> str:
        """Returns a value as text."""
        return str(value)

    @property
    def documentation(self) -> str:
        """Description of the key, with its unit and range."""
        return f"{self.doc} A {self.unit}, {self._range()}."

    def _range(self) -> str:
        if self.largest == _MAX_LONG:
            return f"at least {self.smallest}"
        return f"from {self.smallest} to {self.largest}"


@dataclass(slots=True, frozen=True)
class ChoiceKey:
    """A key whose value is one of a few words."""

    name: str
    attribute: str
    choices: Mapping[str, object]
    doc: str

    def parse(self, text: str, *, is_stored: bool = False) -> object:
        """Returns the value for the word in ``text``.

        Arguments:
            is_stored: the value is set on a topic, which makes no difference for words.

        Raises:
            InvalidTopicConfigError: not one of the words.
        """
        if text in self.choices:
            return self.choices[text]
        raise InvalidTopicConfigError(f"{self.name}={_shown(text)}: expected {' or '.join(self.choices)}")

    def text(self, value: object) -> str:
        """Returns the word for a value."""
        return next(word for word, meaning in self.choices.items() if meaning == value)

    @property
    def documentation(self) -> str:
        """Description of the key, with its words."""
        return f"{self.doc} One of: {', '.join(self.choices)}."


@dataclass(slots=True, frozen=True)
class ListKey:
    """A key whose value is one or more of a few words, separated by commas."""

    name: str
    attribute: str
    words: tuple[str, ...]
    doc: str

    def parse(self, text: str, *, is_stored: bool = False) -> tuple[str, ...]:
        """Returns the words in ``text``, each once, in the order in which they are given.

        Arguments:
            is_stored: the value is set on a topic, which makes no difference for words.

        Raises:
            InvalidTopicConfigError: no word, or another one.
        """
        given = tuple(dict.fromkeys(word.strip(_SPACES) for word in text.split(",")))
        if all(word in self.words for word in given):
            return given
        both = ",".join(self.words)
        raise InvalidTopicConfigError(f"{self.name}={_shown(text)}: expected {', '.join(self.words)} or {both}")

    @staticmethod
    def text(value: object) -> str:
        """Returns the words as text."""
        assert isinstance(value, tuple)
        return ",".join(value)

    @property
    def documentation(self) -> str:
        """Description of the key, with its words."""
        return f"{self.doc} One or more of: {', '.join(self.words)}."


@dataclass(slots=True, frozen=True)
class RatioKey:
    """A key whose value is a number from 0 to 1, both included."""

    name: str
    attribute: str
    doc: str

    def parse(self, text: str, *, is_stored: bool = False) -> float:
        """Returns the value in ``text``.

        Arguments:
            is_stored: the value is set on a topic. Older versions also accepted Python's own notation, such as
                ``0.2_5``.

        Raises:
            InvalidTopicConfigError: not a number, or out of range.
        """
        try:
            value = float(text) if is_stored else parse_decimal(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise InvalidTopicConfigError(f"{self.name}={_shown(text)}: expected a number from 0 to 1")
        return value

    @staticmethod
    def text(value: object) -> str:
        """Returns a value as text."""
        return str(value)

    @property
    def documentation(self) -> str:
        """Description of the key, with its range."""
        return f"{self.doc} A number from 0 to 1."


ConfigKey = IntegerKey | ChoiceKey | ListKey | RatioKey

_KEYS: tuple[ConfigKey, ...] = (
    IntegerKey(
        "retention.ms",
        "retention_ms",
        "number of milliseconds",
        -1,
        _MAX_LONG,
        "How long records are kept; -1 keeps them forever.",
    ),
    IntegerKey(
        "retention.bytes",
        "retention_bytes",
        "number of bytes",
        -1,
        _MAX_LONG,
        "How many bytes of each partition are kept; -1 sets no bound.",
    ),
    ListKey(
        "cleanup.policy",
        "cleanup_policy",
        (DELETE, COMPACT),
        "What happens to old records: delete removes what is past its retention, compact keeps the last of each key.",
    ),
    IntegerKey(
        "delete.retention.ms",
        "delete_retention_ms",
        "number of milliseconds",
        0,
        _MAX_LONG,
        "How long a compacted topic keeps a tombstone after its first compaction, for readers to see it.",
    ),
    IntegerKey(
        "min.compaction.lag.ms",
        "min_compaction_lag_ms",
        "number of milliseconds",
        0,
        _MAX_LONG,
        "How long a compacted topic keeps every record, whether its key has a newer one or not.",
    ),
    IntegerKey(
        "max.compaction.lag.ms",
        "max_compaction_lag_ms",
        "number of milliseconds",
        1,
        _MAX_LONG,
        "After how long a record is compacted at the latest, however little of the partition is new.",
    ),
    RatioKey(
        "min.cleanable.dirty.ratio",
        "min_cleanable_dirty_ratio",
        "How much of a partition, by size, must be new for it to be compacted again.",
    ),
    IntegerKey(
        "max.message.bytes",
        "max_message_bytes",
        "number of bytes",
        1024,
        MAX_BATCH_BYTES,
        "The largest batch that is accepted.",
    ),
    IntegerKey(
        "min.insync.replicas",
        "min_insync_replicas",
        "number of replicas",
        1,
        101,
        "With acks=all, how many replicas must have a record before it is acknowledged.",
    ),
    ChoiceKey(
        "message.timestamp.type",
        "message_timestamp_type",
        MappingProxyType({"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}),
        "Whether records carry the producer's time or the time of their appending.",
    ),
)

#: Every key by its name, in the order of the documentation.
CONFIG_KEYS: Mapping[str, ConfigKey] = MappingProxyType({key.name: key for key in _KEYS})

#: Kafka's broker settings that users try to set on topics.
_NODE_LEVEL = frozenset({"replica.lag.time.max.ms"})
#: Kafka's keys for the layout of its brokers' files, and for features that work differently here.
_KAFKAS_OWN = frozenset(
    (
        "preallocate", "file.delete.delay.ms", "message.format.version",
        "message.downconversion.enable", "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
    )
)  # fmt: skip
#: Keys that nodes below feature level 3 do not have.
_THIRD_LEVEL_KEYS = frozenset(("max.compaction.lag.ms", "min.compaction.lag.ms"))
#: Whitespace that is trimmed around a value, as in Kafka.
_SPACES = " \t\r\n"
_KAFKAS_OWN_PREFIXES = ("segment.", "flush.", "index.", "compression.", "local.retention.")


def is_kafkas_own(name: str) -> bool:
    """True if a key is one of Kafka's that has no meaning here."""
    return name in _KAFKAS_OWN or name.startswith(_KAFKAS_OWN_PREFIXES)


def checked_configs(values: Mapping[str, str], *, is_restored: bool = False) -> dict[str, str]:
    """Returns valid settings in normal form: ``007`` becomes ``7``.

    Arguments:
        values: key and value as text, from a request.
        is_restored: the values were set on a topic before, perhaps by an older version.

    Raises:
        InvalidTopicConfigError: an unknown key, or a value outside its type or range.
    """
    checked = {}
    for name in sorted(values):
        key = _key(name)
        checked[name] = key.text(key.parse(values[name].strip(_SPACES), is_stored=is_restored))
    return checked


def parse_topic_config(configs: Mapping[str, str]) -> TopicConfig:
    """Returns the typed configuration of a topic.

    Arguments:
        configs: the keys set on the topic, with their values as text.

    Raises:
        InvalidTopicConfigError: an unknown key, or a value outside its type or range.
    """
    values: dict[str, object] = {}
    for name in sorted(configs):
        key = _key(name)
        values[key.attribute] = key.parse(configs[name].strip(), is_stored=True)
    return TopicConfig(**values)  # type: ignore[arg-type]


def needs_third_level(values: Mapping[str, str]) -> str:
    """Returns the first of the settings that a node below feature level 3 cannot read, as ``key=value``; otherwise an
    empty string.

    Arguments:
        values: settings in normal form.
    """
    for name, value in sorted(values.items()):
        if name in _THIRD_LEVEL_KEYS or (name == "cleanup.policy" and "," in value):
            return f"{name}={value}"
    return ""


def _key(name: str) -> ConfigKey:
    key = CONFIG_KEYS.get(name)
    if key is None:
        raise InvalidTopicConfigError(_unknown(name))
    return key


def changed_configs(
    configs: Mapping[str, str], values: Mapping[str, str], clear: Collection[str], replication_factor: int
) -> dict[str, str]:
    """Returns the values to set, after checking the resulting configuration.

    Arguments:
        configs: the keys set on the topic.
        values: keys to set.
        clear: keys to reset to their defaults.
        replication_factor: the topic's.

    Raises:
        InvalidTopicConfigError: the change, or the resulting configuration, is invalid.
    """
    if not values and not clear:
        raise InvalidTopicConfigError("no key to set or clear: name at least one")
    both = sorted(set(values) & set(clear))
    if both:
        raise InvalidTopicConfigError(f"{_shown(both[0])} is both set and cleared: choose one")
    unknown = sorted(name for name in clear if name not in CONFIG_KEYS)
    if unknown:
        raise InvalidTopicConfigError(_unknown(unknown[0]))
    checked = checked_configs(values)
    after = {name: value for name, value in configs.items() if name not in clear} | checked
    check_consistency(parse_topic_config(after), replication_factor)
    return checked


@dataclass(slots=True, frozen=True)
class DescribedKey:
    """One key of a topic's configuration, for display: effective value, default, and description."""

    name: str
    value: str
    default: str
    is_set: bool
    doc: str


def default_text(name: str) -> str:
    """Returns the default value of a key as text."""
    key = CONFIG_KEYS[name]
    return key.text(getattr(TopicConfig(), key.attribute))


def describe_topic_config(configs: Mapping[str, str]) -> list[DescribedKey]:
    """Returns every key with its effective value.

    Arguments:
        configs: the keys set on the topic.
    """
    described = []
    for name, key in CONFIG_KEYS.items():
        default = default_text(name)
        value = key.text(key.parse(configs[name], is_stored=True)) if name in configs else default
        described.append(DescribedKey(name, value, default, name in configs, key.documentation))
    return described


def check_consistency(config: TopicConfig, replication_factor: int) -> None:
    """Checks that the settings agree with each other, and that the replication factor can satisfy them.

    Raises:
        InvalidTopicConfigError: every produce with acks=all would fail permanently, or a record would have to be
            compacted before it may be.
    """
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidTopicConfigError(
            f"min.compaction.lag.ms={config.min_compaction_lag_ms}: more than"
            f" max.compaction.lag.ms={config.max_compaction_lag_ms}; lower one or raise the other"
        )
    if config.min_insync_replicas > replication_factor:
        raise InvalidTopicConfigError(
            f"min.insync.replicas={config.min_insync_replicas}: more than the replication factor {replication_factor},"
            " no record could ever be acknowledged; lower one or raise the other"
        )


def _unknown(name: str) -> str:
    if name in _NODE_LEVEL:
        return f"{name}: this is a setting of nodes, not of topics; set it in the nodes' configuration"
    if name == "compression.type":
        return f"{name} means nothing here: producers choose it (compression_type), and batches are kept as they came"
    if is_kafkas_own(name):
        return f"{_shown(name)} means nothing here, or does not exist: leave it out"
    near = difflib.get_close_matches(name, CONFIG_KEYS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(CONFIG_KEYS)}"
    return f"unknown topic configuration key {_shown(name)}: {hint}"


def _shown(text: str) -> str:
    """Returns user text for an error line: printable and short."""
    clean = text if text.isprintable() else ascii(text)
    return clean if len(clean) <= 60 else clean[:57] + "..."
