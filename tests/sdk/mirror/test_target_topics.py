"""Topics here are selected, created and changed like those of the source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, InvalidConfigError
from quorumlog.sdk.mirror.source import KafkaSource, SourceTopic
from quorumlog.sdk.mirror.target_topics import TargetTopics, TopicRules, settings_here
from quorumlog.sdk.types import NewPartitions, NewTopic


def test_settings_that_mean_the_same_are_taken_and_others_left() -> None:
    same = {"retention.ms": "60000", "cleanup.policy": "compact,delete", "max.compaction.lag.ms": "60000"}
    here = settings_here({"segment.bytes": "1048576", **same})
    assert here == {**same, "max.message.bytes": "1114124"}


def test_the_largest_batch_has_room_for_what_is_around_it_and_a_limit() -> None:
    assert settings_here({"max.message.bytes": "2000000"})["max.message.bytes"] == "2065536"
    assert settings_here({"max.message.bytes": "99000000"})["max.message.bytes"] == "8388608"


TOPICS = [SourceTopic(name, 1, {}) for name in ("clicks", "mirror-plans", "shop-orders", "shop-returns")]


def chosen(rules: TopicRules) -> list[str]:
    return [topic.name for topic in rules.chosen(TOPICS)]


def test_a_topic_that_is_not_there_is_named() -> None:
    assert chosen(TopicRules()) == ["clicks", "shop-orders", "shop-returns"]
    with pytest.raises(IllegalArgumentError, match="no topic payments"):
        chosen(TopicRules(("shop-orders", "payments")))


def test_patterns_choose_and_exclude_topics() -> None:
    assert chosen(TopicRules(("shop-*",))) == ["shop-orders", "shop-returns"]
    assert chosen(TopicRules(("*",), ("*-returns",))) == ["clicks", "shop-orders"]
    assert chosen(TopicRules(("payments-*",))) == []


def test_the_first_matching_rename_applies() -> None:
    rules = TopicRules(renames=("clicks=hits", "shop-*=eu.*.v1", "*=all.*"))
    names = ("clicks", "shop-orders", "other")
    assert [rules.renamed(name) for name in names] == ["hits", "eu.orders.v1", "all.other"]
    assert TopicRules(renames=("clicks=hits",)).renamed("orders") == "orders"


@pytest.mark.parametrize("rename", ["", "a", "=a", "a=", "a*=b", "a=b*", "**=**"])
def test_other_renames_are_refused(rename: str) -> None:
    with pytest.raises(IllegalArgumentError, match="PATTERN=PATTERN"):
        TopicRules(renames=(rename,))


def test_two_topics_with_one_name_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A topic that is created later does not end the mirror."""
    rules = TopicRules(renames=("shop-orders=clicks",))
    with pytest.raises(IllegalArgumentError, match="topics clicks and shop-orders would both be clicks"):
        rules.chosen(TOPICS)
    assert [topic.name for topic in rules.chosen(TOPICS, strict=False)] == ["clicks", "shop-returns"]
    assert "shop-orders is not copied" in caplog.text


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "kafka://", "http://127.0.0.1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"kafka://127\.0\.0\.1:9092"):
        KafkaSource(address)


class Target:
    """The topics of the target, by their count of partitions, and the settings that were copied last."""

    def __init__(self, **topics: int) -> None:
        self.partitions = topics
        self.added: dict[str, int] = {}
        self.created: list[NewTopic] = []
        self.settings: dict[str, dict[str, str]] = {}
        self.altered: list[tuple[str, dict[str, object]]] = []
        self.set_here: dict[str, str] = {}
        self.refuses = False

    def list_topics(self) -> list[str]:
        return sorted(self.partitions)

    def describe_topics(self, names: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(partitions=range(self.partitions[name])) for name in names]

    def create_partitions(self, wanted: dict[str, NewPartitions]) -> None:
        self.added = {name: new.total_count for name, new in wanted.items()}

    def create_topics(self, topics: list[NewTopic]) -> None:
        self.created += topics

    def describe_configs(self, names: list[str]) -> dict[str, dict[str, SimpleNamespace]]:
        keys = ("retention.ms", "retention.bytes", "max.message.bytes")
        entries = {
            key: SimpleNamespace(value=self.set_here.get(key), is_default=key not in self.set_here) for key in keys
        }
        return dict.fromkeys(names, entries)

    def alter_configs(self, configs: Mapping[str, dict[str, object]]) -> None:
        if self.refuses:
            raise InvalidConfigError("retention.ms: too small")
        self.altered += configs.items()

    def write_settings(self, topic: str, configs: Mapping[str, str]) -> None:
        self.settings[topic] = dict(configs)


def topics_of(
    target: Target, records: tuple[int, ...] = (), wins: bool | None = None, **rules: tuple[str, ...]
) -> TargetTopics:
    return TargetTopics(target, TopicRules(**rules), target, lambda name, number: number in records, wins)  # type: ignore[arg-type]


def made(target: Target, partitions: int, planned: tuple[str, ...] = ("t",), records: tuple[int, ...] = ()) -> Target:
    topics_of(target, records).make([SourceTopic("t", partitions, {})], planned)
    return target


def test_topics_grow_with_their_source() -> None:
    assert made(Target(t=2), 5).added == {"t": 5}
    assert made(Target(t=5), 5).added == {}
    (created,) = made(Target(), 5).created
    assert (created.name, created.num_partitions) == ("t", 5)


def test_topics_with_more_partitions_are_refused() -> None:
    """Keys would go elsewhere."""
    with pytest.raises(IllegalStateError, match="has 6 partitions here and 5 there"):
        made(Target(t=6), 5)


@pytest.mark.parametrize("number", [0, 3])
def test_topics_with_other_records_are_refused(number: int) -> None:
    """In any of their partitions; a topic that has been mirrored has records, of course."""
    with pytest.raises(IllegalStateError, match="is here already, with records"):
        made(Target(t=4), 4, planned=(), records=(number,))
    made(Target(t=4), 4, planned=(), records=())
    made(Target(t=4), 4, planned=("t",), records=(number,))


def test_both_directions_accept_own_records() -> None:
    """The opposite mirror copies them, and adds the partitions that the source lacks."""
    target = Target(t=4)
    topics_of(target, records=(0,), wins=True).make([SourceTopic("t", 3, {})], ())
    assert target.added == {}


def test_topics_that_cannot_be_copied_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """While the mirror follows, with one line in the log."""
    topics = topics_of(Target(t=6, u=1))
    wanted = [SourceTopic("t", 5, {}), SourceTopic("u", 1, {})]
    for _ in range(3):
        assert [topic.name for topic in topics.follow(wanted, ("t", "u"))] == ["u"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_new_topics_get_their_settings_and_names() -> None:
    target = Target()
    topics_of(target, renames=("*=eu.*",)).follow([SourceTopic("t", 2, {"retention.ms": "7"})], ())
    (created,) = target.created
    assert (created.name, created.num_partitions, created.topic_configs["retention.ms"]) == ("eu.t", 2, "7")
    assert target.settings == {"t": {"retention.ms": "7"}}


def changed(
    target: Target, before: dict[str, str] | None, now: dict[str, str], wins: bool | None = None
) -> dict[str, object]:
    """Returns the settings that a topic here gets when those in the source change."""
    target.settings = {} if before is None else {"t": before}
    topics_of(target, wins=wins).follow([SourceTopic("t", 1, now)], ("t",))
    assert target.settings == {"t": now}
    return dict(target.altered.pop()[1]) if target.altered else {}


def test_changed_settings_are_copied() -> None:
    assert changed(Target(t=1), {"retention.ms": "5"}, {"retention.ms": "6"}) == {"retention.ms": "6"}
    assert changed(Target(t=1), {"retention.ms": "5"}, {}) == {"retention.ms": None}
    assert changed(Target(t=1), {}, {"segment.bytes": "9"}) == {}


def test_settings_changed_here_stay() -> None:
    """Until the same one changes in the source. Those of a topic that was here before stay, too."""
    assert changed(Target(t=1), {"retention.ms": "5"}, {"retention.ms": "5"}) == {}
    assert changed(Target(t=1), {"retention.ms": "5"}, {"retention.ms": "5", "retention.bytes": "9"}) == {
        "retention.bytes": "9"
    }
    assert changed(Target(t=1), None, {"retention.ms": "5"}) == {}


def test_settings_changed_on_both_sides_settle() -> None:
    """One of the two mirrors wins; without that they would exchange the values forever."""
    target = Target(t=1)
    target.set_here = {"retention.ms": "9"}
    assert changed(target, {"retention.ms": "5"}, {"retention.ms": "6"}, wins=False) == {}
    assert changed(target, {"retention.ms": "5"}, {"retention.ms": "6"}, wins=True) == {"retention.ms": "6"}
    target.set_here = {"retention.ms": "5"}
    assert changed(target, {"retention.ms": "5"}, {"retention.ms": "6"}, wins=False) == {"retention.ms": "6"}


def test_both_directions_do_not_raise_limits_in_turn() -> None:
    now = {"max.message.bytes": "2000000"}
    assert changed(Target(t=1), {}, now, wins=True) == now
    assert changed(Target(t=1), {}, now) == {"max.message.bytes": "2065536"}


def test_refused_settings_do_not_end_the_mirror(caplog: pytest.LogCaptureFixture) -> None:
    target = Target(t=1)
    target.refuses = True
    assert changed(target, {}, {"retention.ms": "1"}) == {}
    assert "topic t keeps its settings: retention.ms: too small" in caplog.text
