"""A mirror that follows its source: topics, partitions and settings that change while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, NetworkError
from quorumlog.sdk.mirror import commands
from quorumlog.sdk.mirror import mirror as laps
from quorumlog.sdk.mirror.commands import MirrorOptions, MirrorReport
from quorumlog.sdk.mirror.copy_intents import MirrorIdentity, PartitionPlan
from quorumlog.sdk.mirror.source import SourceRecord, SourceTopic, Taken
from quorumlog.sdk.mirror.target_topics import TopicRules
from quorumlog.sdk.types import NewPartitions, NewTopic, TopicPartition

ORDERS = TopicPartition("orders", 0)


class Source:
    """A cluster with topics, whose records are their offsets."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.mirrors: dict[str, bytes] = {}
        self.away = False

    def cluster_id(self) -> str:
        return "east"

    def topics(self) -> list[SourceTopic]:
        if self.away:
            raise NetworkError("no node answers")
        names = sorted({tp.topic for tp in self.logs})
        count = {name: sum(tp.topic == name for tp in self.logs) for name in names}
        return [SourceTopic(name, count[name], dict(self.configs.get(name, {}))) for name in names]

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        if partition not in self.logs:
            raise NetworkError("unknown partition")
        return 0, self.logs[partition]

    def known_end(self, partition: TopicPartition) -> int | None:
        return self.logs.get(partition)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(positions)

    def take(self, most: int, timeout_s: float) -> Taken:
        records = [
            SourceRecord(tp, offset, 5, None, b"%d" % offset, ())
            for tp, at in self.positions.items()
            for offset in range(at, self.logs.get(tp, 0))
        ]
        beyond = [tp for tp, at in self.positions.items() if at > self.logs.get(tp, 0)]  # A deleted topic's, too.
        for record in records:
            self.positions[record.partition] = record.offset + 1
        return Taken(records, {tp: self.logs[tp] for tp in self.positions if tp in self.logs}, beyond)

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        return self.groups


class Target:
    """The cluster that the mirror writes, and the mirror's plans."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.plans: dict[TopicPartition, PartitionPlan] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.mirrors: dict[str, MirrorIdentity] = {}
        self.groups: dict[str, dict[TopicPartition, int]] = {}

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def list_topics(self) -> list[str]:
        return sorted({tp.topic for tp in self.logs})

    def describe_cluster(self) -> SimpleNamespace:
        return SimpleNamespace(cluster_id="west")

    def describe_topics(self, names: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(partitions=[tp for tp in self.logs if tp.topic == name]) for name in names]

    def create_topics(self, topics: list[NewTopic]) -> None:
        for topic in topics:
            self.create_partitions({topic.name: NewPartitions(topic.num_partitions)})
            self.configs[topic.name] = dict(topic.topic_configs)

    def create_partitions(self, wanted: Mapping[str, NewPartitions]) -> None:
        for name, new in wanted.items():
            for number in range(new.total_count):
                self.logs.setdefault(TopicPartition(name, number), [])

    def alter_configs(self, configs: Mapping[str, Mapping[str, object]]) -> None:
        for name, changed in configs.items():
            self.configs[name] |= changed

    def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self.logs[place]) for place in places}

    def load(self) -> dict[TopicPartition, PartitionPlan]:
        return dict(self.plans)

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        self.plans |= plans

    def write_settings(self, topic: str, configs: Mapping[str, str]) -> None:
        self.settings[topic] = dict(configs)

    def list_group_offsets(self, group: str) -> dict[TopicPartition, SimpleNamespace]:
        return {tp: SimpleNamespace(offset=at) for tp, at in self.groups.get(group, {}).items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.groups.setdefault(group, {}).update(offsets)

    def send(self, topic: str, value: bytes, *, partition: int, **_: object) -> SimpleNamespace:
        log = self.logs[TopicPartition(topic, partition)]
        log.append(value)
        result = SimpleNamespace(offset=len(log) - 1)
        return SimpleNamespace(result=lambda: result)

    def end_epoch(self) -> None:
        pass


@pytest.fixture
def source() -> Source:
    made = Source()
    made.logs[ORDERS] = 3
    return made


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    for name in ("Admin", "Consumer", "Producer", "MirrorPlans"):
        monkeypatch.setattr(commands, name, lambda *_, **__: made)
    monkeypatch.setattr(
        commands,
        "mirrors_into",
        lambda source: {name: MirrorIdentity.read(text) for name, text in source.mirrors.items()},
    )
    monkeypatch.setattr(commands, "PAUSED_EVERY_S", 0.0)
    monkeypatch.setattr(laps, "_TAKE_S", 0.0)
    return made


def run(source: Source, *steps: Callable[[], object], **options: Any) -> MirrorReport:
    """Follows the source; after every third lap the next step happens, and after the last one it stops."""
    left = [lambda: None, *steps]
    count = 0

    def should_stop() -> bool:
        nonlocal count
        count += 1
        if count % 3 == 0 and left:
            left.pop(0)()
        return not left and count % 3 == 2

    chosen = MirrorOptions(follow=True, refresh_s=0.0, **options)
    return commands.mirror(source, bootstrap_servers="", options=chosen, should_stop=should_stop)  # type: ignore[arg-type]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_new_topics_are_copied_while_it_runs(source: Source, target: Target) -> None:
    """With their settings, if the patterns choose them."""
    later, other = TopicPartition("orders-later", 0), TopicPartition("other", 0)

    def create() -> None:
        source.configs["orders-later"] = {"retention.ms": "7"}
        source.logs |= {later: 4, other: 4}

    run(source, create, rules=TopicRules(("orders*",)))
    assert {tp: len(log) for tp, log in target.logs.items()} == {ORDERS: 3, later: 4}
    assert target.configs["orders-later"]["retention.ms"] == "7"


def test_new_partitions_are_copied_while_it_runs(source: Source, target: Target) -> None:
    run(source, lambda: source.logs.update({ORDERS._replace(partition=1): 2}))
    assert target.logs == {ORDERS: numbers(3), ORDERS._replace(partition=1): numbers(2)}


def test_changed_settings_arrive_while_it_runs(source: Source, target: Target) -> None:
    source.configs["orders"] = {"retention.ms": "5"}
    run(source, lambda: source.configs.update(orders={"retention.ms": "6"}))
    assert target.configs["orders"]["retention.ms"] == "6"


def test_settings_changed_between_runs_arrive(source: Source, target: Target) -> None:
    run(source)
    source.configs["orders"] = {"retention.ms": "6"}
    run(source)
    assert target.configs["orders"]["retention.ms"] == "6"


def test_deleted_topics_stay_here(source: Source, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    """The others are copied on, and the log has one line."""
    clicks = TopicPartition("clicks", 0)
    source.logs[clicks] = 1

    def delete() -> None:
        del source.logs[ORDERS]
        source.logs[clicks] = 2

    run(source, delete, lambda: source.logs.update({clicks: 3}))
    assert target.logs == {ORDERS: numbers(3), clicks: numbers(3)}
    assert ORDERS not in source.positions
    lines = [record.getMessage() for record in caplog.records if "orders" in record.getMessage()]
    assert lines == ["topic orders was deleted in the source: it stays here, and is no longer copied"]


def test_topics_deleted_here_are_copied_anew(source: Source, target: Target) -> None:
    run(source)
    target.logs.clear()
    source.logs[ORDERS] = 4
    run(source)
    assert target.logs == {ORDERS: numbers(4)}


def test_topics_created_again_are_set_aside(
    source: Source, target: Target, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that ends before the position is another one; its records do not follow those that were copied."""
    monkeypatch.setattr(laps, "SHORTER_S", 0.0)
    clicks = TopicPartition("clicks", 0)
    source.logs[clicks] = 1
    run(source)
    run(source, lambda: source.logs.update({ORDERS: 1, clicks: 2}))
    assert target.logs == {ORDERS: numbers(3), clicks: numbers(2)}
    source.logs[ORDERS] = 1
    run(source, lambda: source.logs.update({clicks: 3}))
    assert target.logs == {ORDERS: numbers(3), clicks: numbers(3)}
    assert "orders-0 ends at offset 1 in the source" in caplog.text
    with pytest.raises(IllegalStateError, match="no longer copied"):
        commands.mirror(source, bootstrap_servers="")  # type: ignore[arg-type]


def test_paused_topics_wait(source: Source, target: Target, tmp_path: Path) -> None:
    """Those in the file are not copied while they are in it."""
    clicks, file = TopicPartition("clicks", 0), tmp_path / "paused"
    source.logs[clicks] = 1
    file.write_text("# for the upgrade\nord*\n")
    seen: list[int] = []

    def proceed() -> None:
        seen.append(len(target.logs[ORDERS]))
        file.write_text("")

    run(source, proceed, paused=file)
    assert seen == [0]
    assert target.logs == {ORDERS: numbers(3), clicks: numbers(1)}


def test_an_unreadable_pause_file_changes_nothing(
    source: Source, target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start it ends the mirror, which would copy what is paused; later it is one line in the log."""
    file = tmp_path / "paused"
    with pytest.raises(IllegalArgumentError, match="cannot read the file of paused topics"):
        run(source, paused=file)
    file.write_text("orders")
    run(source, file.unlink, lambda: None, paused=file)
    assert target.logs[ORDERS] == []
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_looks_that_fail_are_repeated(source: Source, target: Target) -> None:
    def leave() -> None:
        source.away = True

    def return_with_topic() -> None:
        source.away = False
        source.logs[TopicPartition("later", 0)] = 1

    run(source, leave, return_with_topic)
    assert target.logs[TopicPartition("later", 0)] == numbers(1)


def test_renamed_topics_and_their_groups_arrive(source: Source, target: Target) -> None:
    source.groups = {"g": {ORDERS: 2}}
    run(source, rules=TopicRules(renames=("*=eu.*",)))
    place = TopicPartition("eu.orders", 0)
    assert target.logs == {place: numbers(3)}
    assert target.groups == {"g": {place: 2}}


@pytest.mark.parametrize("bidirectional", [False, True])
def test_circles_of_mirrors_are_refused(source: Source, target: Target, bidirectional: bool) -> None:
    """Records would go round if only one of two mirrors marked its copies."""
    source.logs[TopicPartition("mirror-plans", 0)] = 1
    source.mirrors = {"back": MirrorIdentity("west", not bidirectional).text()}
    with pytest.raises(IllegalStateError, match="copied in a circle"):
        run(source, bidirectional=bidirectional)
    source.mirrors = {"back": MirrorIdentity("west", bidirectional).text(), "on": MirrorIdentity("north").text()}
    run(source, bidirectional=bidirectional)
    assert target.logs[ORDERS] == numbers(3)


def test_topics_of_the_opposite_mirror_are_left_out(source: Source, target: Target) -> None:
    """Their names show that they came from here; each mirror would give them another prefix, without end."""
    source.logs |= {TopicPartition("mirror-plans", 0): 1, TopicPartition("west.clicks", 0): 1}
    source.mirrors = {"back": MirrorIdentity("west", False, ("*=west.*",)).text()}
    run(source, rules=TopicRules(renames=("*=east.*",)))
    assert set(target.logs) == {TopicPartition("east.orders", 0)}


def test_copies_without_origin_are_not_sent_back(source: Source, target: Target) -> None:
    target.mirrors = {"before": MirrorIdentity("east")}
    with pytest.raises(IllegalStateError, match="mirror before has copied the source without --bidirectional"):
        run(source, bidirectional=True)


def test_a_cluster_is_not_mirrored_into_itself(source: Source, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "cluster_id", lambda: "west")
    with pytest.raises(IllegalArgumentError, match="the same cluster, west"):
        run(source)


def test_names_and_directions_exclude_each_other() -> None:
    with pytest.raises(IllegalArgumentError, match="exclude each other"):
        MirrorOptions(bidirectional=True, rules=TopicRules(renames=("*=eu.*",)))
