"""Mirrors in both directions: no record is sent back, and groups that change the cluster miss nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.sdk.mirror.copy_intents import PartitionPlan
from quorumlog.sdk.mirror.mirror import LapOptions, Mirror
from quorumlog.sdk.mirror.offset_map import OffsetRun, joined, runs_of
from quorumlog.sdk.mirror.origins import HEADER, both_ways, headers_with_origin, origin_of
from quorumlog.sdk.mirror.source import SourceRecord, Taken
from quorumlog.sdk.types import Headers, TopicPartition

ORDERS = TopicPartition("orders", 0)


def record(offset: int, headers: Headers = (), place: TopicPartition = ORDERS) -> SourceRecord:
    return SourceRecord(place, offset, 5, None, b"v", headers)


def test_copies_show_their_origin() -> None:
    headers = headers_with_origin(record(7, [("mine", b"1")]), "east")
    assert headers == [("mine", b"1"), (HEADER, b"east 7 orders-0")]
    assert origin_of(record(3, headers), "east") == 7
    assert origin_of(record(3, headers), "west") is None


def test_origins_of_several_clusters_are_kept() -> None:
    """A record that was copied twice has been in two clusters."""
    twice = headers_with_origin(record(3, headers_with_origin(record(7), "east")), "west")
    assert [origin_of(record(1, twice), name) for name in ("east", "west", "north")] == [7, 3, None]


def test_derived_records_have_no_origin() -> None:
    """A stream job passes headers on: its results are not copies."""
    headers = headers_with_origin(record(7), "east")
    for place in (TopicPartition("results", 0), TopicPartition("orders", 1)):
        assert origin_of(record(0, headers, place), "east") is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"east",
        b"east x orders-0",
        b"east -1 orders-0",
        b"\xff 1 orders-0",
        b"east " + b"9" * 5_000 + b" orders-0",
    ],
)
def test_headers_of_other_programs_are_no_origin(value: bytes | None) -> None:
    assert origin_of(record(0, [(HEADER, value)]), "east") is None  # type: ignore[list-item]


class Source:
    """A partition, whose records are read from the assigned position on."""

    def __init__(self, records: list[SourceRecord]) -> None:
        self.records, self.at = records, 0

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, len(self.records)

    def known_end(self, partition: TopicPartition) -> int:
        return len(self.records)

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self.at = positions[ORDERS]

    def take(self, most: int, timeout_s: float) -> Taken:
        records, self.at = self.records[self.at :], len(self.records)
        return Taken(records, {ORDERS: self.at}, ())


def copied(source: Source, plans: dict[TopicPartition, PartitionPlan]) -> tuple[Mirror, list[int]]:
    """Copies what is new; returns the offsets of the sent records."""
    sent: list[int] = []

    def send(lap: int, records: list[SourceRecord], latest_ms: int) -> dict[TopicPartition, list[int]]:
        sent.extend(each.offset for each in records)
        return {ORDERS: [100 + each.offset for each in records]}

    anything: Any = source
    mirror = Mirror(anything, SimpleNamespace(write=plans.update), send, LapOptions("west"), clock=lambda: 0.0)  # type: ignore[arg-type]
    mirror.load(plans)
    mirror.resume([ORDERS])
    while mirror.lap() or not mirror.is_at_end:
        pass
    mirror.finish()
    return mirror, sent


def from_west(offset: int, origin: int) -> SourceRecord:
    return record(offset, headers_with_origin(record(origin), "west"))


def test_records_of_the_target_are_not_sent_back() -> None:
    """Not after a restart either; its progress is stored even if it has sent nothing."""
    plans: dict[TopicPartition, PartitionPlan] = {}
    source = Source([from_west(0, 5), from_west(1, 6)])
    _, sent = copied(source, plans)
    assert sent == []
    assert plans[ORDERS].end == 2
    source.records += [record(2), from_west(3, 9), record(4)]
    mirror, sent = copied(source, plans)
    assert sent == [2, 4]
    assert mirror.returned(ORDERS) == [OffsetRun(0, 5, 2), OffsetRun(3, 9, 1)]
    assert mirror.runs(ORDERS) == [OffsetRun(2, 102, 1), OffsetRun(4, 104, 1)]


def test_records_written_again_are_sent() -> None:
    """A program reads a copied record and writes it again, with its headers, into the same partition."""
    source = Source([from_west(0, 5), from_west(1, 6), from_west(2, 5), from_west(3, 7)])
    _, sent = copied(source, {})
    assert sent == [2]


def test_repeated_laps_leave_out_the_same_records() -> None:
    source = Source([from_west(0, 5), record(1), from_west(2, 6), record(3)])
    plans = {ORDERS: PartitionPlan(4, 1, 4, 2, 0, (), (OffsetRun(0, 5, 1),), 5)}
    mirror, sent = copied(source, plans)
    assert sent == [1, 3]
    assert mirror.returned(ORDERS) == [OffsetRun(0, 5, 1), OffsetRun(2, 6, 1)]


class Logs:
    """The logs of two clusters as both mirrors fill them: the number of a record, and its offset at home.

    Arguments:
        steps: what happens: a record is written, or a mirror copies some.
    """

    def __init__(self, steps: list[tuple[str, int]]) -> None:
        self.east: list[tuple[str, int]] = []
        self.west: list[tuple[str, int]] = []
        self.done = {"east": 0, "west": 0}
        self.runs: list[OffsetRun] = []
        self.returned: list[OffsetRun] = []
        for step, count in steps:
            if step in ("east", "west"):
                log = getattr(self, step)
                log.extend([(step, len(log) + number) for number in range(count)])
            else:
                self.copy(step.removeprefix("copy "), count)

    def copy(self, name: str, count: int) -> None:
        """The mirror from this cluster copies some of its records, and passes over those of the other one."""
        log, other = (self.east, self.west) if name == "east" else (self.west, self.east)
        for offset in range(self.done[name], min(self.done[name] + count, len(log))):
            if log[offset][0] == name:
                if name == "east":
                    self.runs = joined([*self.runs, *runs_of([offset], [len(other)], self.runs)])
                other.append((name, offset))
            elif name == "east":
                self.returned = joined([*self.returned, OffsetRun(offset, log[offset][1], 1)])
            self.done[name] = offset + 1


STEPS = st.tuples(st.sampled_from(["east", "west", "copy east", "copy west"]), st.integers(1, 5))


@given(st.lists(STEPS, max_size=30))
def test_groups_that_change_the_cluster_miss_nothing(steps: list[tuple[str, int]]) -> None:
    """From each offset of the source the group continues before everything that it has not read, and behind everything
    if it has read all."""
    logs = Logs(steps)
    for offset in range(len(logs.east) + 1):
        here = both_ways(logs.runs, logs.returned, offset)
        read = set(logs.east[:offset])
        assert here is None or set(logs.west[:here]) <= read, (offset, here)
    for name in ("west", "east") * 3:
        logs.copy(name, 1_000)
    if logs.west:
        assert both_ways(logs.runs, logs.returned, len(logs.east)) == len(logs.west)


def test_groups_stop_before_own_records_of_the_target() -> None:
    """The group has read both copies; the record between them has not reached the source, and is unread."""
    copies = [OffsetRun(0, 0, 1), OffsetRun(1, 2, 1)]
    assert both_ways(copies, [], 2) == 1
    assert both_ways(copies, [OffsetRun(2, 1, 1)], 2) == 1
    assert both_ways(copies, [OffsetRun(2, 1, 1)], 3) == 3


def test_groups_before_what_is_known_stay() -> None:
    """Older runs have been dropped: what is before the first one may be unread."""
    assert both_ways([OffsetRun(10, 20, 5)], [], 9) is None
    assert both_ways([OffsetRun(10, 20, 5)], [OffsetRun(15, 25, 1)], 12) is None
    assert both_ways([], [], 4) is None
