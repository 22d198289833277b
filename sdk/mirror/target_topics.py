"""Selects topics of the source, and creates, extends and configures those here like them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidConfigError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)
from quorumlog.sdk.mirror.copy_intents import TOPIC as PLANS
from quorumlog.sdk.mirror.source import SourceTopic
from quorumlog.sdk.types import NewPartitions, NewTopic, TopicPartition

#: Settings with the same meaning here.
_SAME = (
    "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms", "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms", "max.compaction.lag.ms", "message.timestamp.type",
)  # fmt: skip
#: A batch here has more overhead around its records, and may be no larger than the second value.
_MORE_BYTES, _MOST_BYTES = 64 << 10, 8 << 20
_KAFKA_DEFAULT_BYTES = 1_048_588
_log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class TopicRules:
    """Selection of the topics to copy, and their names here.

    In patterns ``*`` stands for any characters, ``?`` for one.

    Arguments:
        names: names or patterns of topics to copy; None: all.
        excluded: names or patterns of topics to leave out.
        renames: such as ``shop-*=eu.shop-*``, of which the first that matches applies; ``*`` at most once on each side.

    Raises:
        IllegalArgumentError: a rename has another form.
    """

    names: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for rename in self.renames:
            before, equals, after = rename.partition("=")
            if not before or not equals or not after or not before.count("*") == after.count("*") <= 1:
                raise IllegalArgumentError(
                    f"rename {rename!r} is not NAME=NAME or PATTERN=PATTERN with one '*' on each side, such as '*=eu.*'"
                )

    def chosen(self, topics: Sequence[SourceTopic], *, strict: bool = True) -> list[SourceTopic]:
        """Returns the topics of the source to copy.

        Arguments:
            strict: a name without a topic, and two topics that get the same name here, are errors. Otherwise the first
                of the two is chosen, with a line in the log.

        Raises:
            IllegalArgumentError: one does not exist, or two get the same name here.
        """
        there = {topic.name for topic in topics}
        absent = [name for name in self.names or () if name not in there and not _is_pattern(name)]
        if absent and strict:
            raise IllegalArgumentError(f"the source has no topic {min(absent)}")
        here: dict[str, SourceTopic] = {}
        for topic in topics:
            name = self.renamed(topic.name)
            other = here.setdefault(name, topic) if self._selects(topic.name) else topic
            if other is not topic:
                clash = f"topics {other.name} and {topic.name} would both be {name} here: rename or exclude one of them"
                if strict:
                    raise IllegalArgumentError(clash)
                _log.error("%s; %s is not copied", clash, topic.name)
        return list(here.values())

    def _selects(self, name: str) -> bool:
        if any(fnmatchcase(name, each) for each in self.excluded):
            return False
        if self.names is None:
            return name != PLANS
        return any(fnmatchcase(name, each) for each in self.names) and (name != PLANS or PLANS in self.names)

    def renamed(self, name: str) -> str:
        """Returns the name here of a topic of the source."""
        for rename in self.renames:
            before, _, after = rename.partition("=")
            first, star, last = before.partition("*")
            if not star and name == before:
                return after
            if star and len(name) >= len(first + last) and name.startswith(first) and name.endswith(last):
                return after.replace("*", name[len(first) : len(name) - len(last)])
        return name


def _is_pattern(name: str) -> bool:
    return any(each in name for each in "*?[")


class SettingsStore(Protocol):
    """The settings of topics of the source that were copied last."""

    settings: dict[str, dict[str, str]]

    def write_settings(self, topic: str, configs: Mapping[str, str]) -> None: ...


class TargetTopics:
    """The topics here, which follow those of the source.

    Arguments:
        store: keeps settings. A setting is copied when it changes in the source: one that an administrator changed here
            stays until then.
        ends: returns the number of records ever written to a partition of a topic here.
        wins: None, or in a mirror with an opposite one: True if this one wins if a setting has changed on both sides.
            Topics here may then have records of their own, and more partitions: the opposite mirror adds them there.
    """

    def __init__(
        self, admin: Admin, rules: TopicRules, store: SettingsStore, ends: Callable[[str, int], int],
        wins: bool | None = None,
    ) -> None:  # fmt: skip
        self._admin, self._rules, self._store, self._ends = admin, rules, store, ends
        self._wins = wins
        self._told: set[str] = set()

    def missing(self, topics: Sequence[SourceTopic]) -> set[str]:
        """Returns the topics of the source that do not exist here."""
        there = set(self._admin.list_topics())
        return {topic.name for topic in topics if self._rules.renamed(topic.name) not in there}

    def make(self, topics: Sequence[SourceTopic], planned: Collection[str]) -> None:
        """Creates missing topics, with the same number of partitions and the settings that are supported here. Existing
        ones get new partitions and changed settings.

        Arguments:
            planned: topics of which something has been copied.

        Raises:
            IllegalStateError: a topic has records that were not copied, or more partitions than the source has.
        """
        missing = self.missing(topics)
        for topic in topics:
            self._make(topic, planned, is_missing=topic.name in missing)

    def follow(self, topics: Sequence[SourceTopic], planned: Collection[str]) -> list[SourceTopic]:
        """Does the same, and leaves topics out that cannot be copied, with a line in the log; returns the others."""
        missing = self.missing(topics)
        found = []
        for topic in topics:
            try:
                self._make(topic, planned, is_missing=topic.name in missing)
            except IllegalStateError as problem:
                self._tell_once(logging.ERROR, f"{problem.message}; it is not copied for now")
            else:
                found.append(topic)
        return found

    def _make(self, topic: SourceTopic, planned: Collection[str], *, is_missing: bool) -> None:
        name = self._rules.renamed(topic.name)
        if is_missing:
            self._create(name, topic)
        else:
            self._extend(name, topic, is_planned=topic.name in planned)
        known = self._store.settings.get(topic.name)
        if known is not None and not is_missing:
            self._change_settings(name, topic, known)
        if known != dict(topic.configs):
            self._store.write_settings(topic.name, topic.configs)

    def _extend(self, name: str, topic: SourceTopic, *, is_planned: bool) -> None:
        (described,) = self._admin.describe_topics([name])
        count = len(described.partitions)
        if self._wins is None and not is_planned and any(self._ends(name, number) for number in range(count)):
            raise IllegalStateError(
                f"topic {name} is here already, with records: mirror into a cluster without it, or leave it out"
            )
        if count > topic.partitions and self._wins is None:
            raise IllegalStateError(
                f"topic {name} has {count} partitions here and {topic.partitions} there: keys would go elsewhere"
            )
        if count < topic.partitions:
            self._admin.create_partitions({name: NewPartitions(topic.partitions)})

    def _change_settings(self, name: str, topic: SourceTopic, known: Mapping[str, str]) -> None:
        margin = _MORE_BYTES if self._wins is None else 0  # With one, two mirrors would raise the limit in turn.
        before, now = settings_here(known, margin), settings_here(topic.configs, margin)
        changed = {key: now.get(key) for key in sorted({*before, *now}) if before.get(key) != now.get(key)}
        if changed and self._wins is False:
            here = self._admin.describe_configs([name])[name]
            set_here = {key: None if here[key].is_default else here[key].value for key in changed}
            changed = {key: value for key, value in changed.items() if set_here[key] in (value, before.get(key))}
        if not changed:
            return
        try:
            self._admin.alter_configs({name: changed})
        except (InvalidConfigError, PolicyViolationError) as refused:
            self._tell_once(logging.ERROR, f"topic {name} keeps its settings: {refused.message}")
        else:
            shown = ", ".join(
                f"{key}={value}" if value is not None else f"{key} unset" for key, value in changed.items()
            )
            _log.info("topic %s has new settings, as in the source: %s", name, shown)

    def _create(self, name: str, topic: SourceTopic) -> None:
        new = NewTopic(name, topic.partitions, topic_configs=settings_here(topic.configs))
        try:
            with suppress(TopicAlreadyExistsError):  # Another client has created it since.
                self._admin.create_topics([new])
        except (InvalidConfigError, PolicyViolationError) as refused:
            raise IllegalStateError(f"topic {name} cannot be made as it is at the source: {refused.message}") from None

    def _tell_once(self, level: int, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _log.log(level, "%s", line)


def settings_here(configs: Mapping[str, str], margin: int = _MORE_BYTES) -> dict[str, str]:
    """Returns the settings of a Kafka topic that are supported here.

    Arguments:
        margin: bytes that a batch may have in addition; 0: an unset limit stays unset.
    """
    same = {name: configs[name] for name in _SAME if name in configs}
    if not margin and "max.message.bytes" not in configs:
        return same
    largest = int(configs.get("max.message.bytes", _KAFKA_DEFAULT_BYTES))
    return {**same, "max.message.bytes": str(min(largest + margin, _MOST_BYTES))}


def partitions_of(topics: Iterable[SourceTopic]) -> list[TopicPartition]:
    """Returns all partitions of topics."""
    return [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
