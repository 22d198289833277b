"""Searches, resets and followed topics at their first and last records, without a cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest
from scripted_log import TOPIC, ScriptedLog

from quorumlog.console.changes.reset_plan import ResetTo, ResetWish, plan, step
from quorumlog.console.records import follow, search
from quorumlog.console.records.conditions import parse_filter
from quorumlog.console.records.follow import follow_topic
from quorumlog.console.records.search import Stretch, TopicSearch
from quorumlog.console.shared_state import Thing
from quorumlog.sdk import GroupDescription, GroupState, OffsetAndMetadata, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer
from quorumlog.sdk.errors import LeaderNotAvailableError, TopicAuthorizationFailedError

PLACE = TopicPartition(TOPIC, 0)
#: Two partitions with three and four records, a second apart; the second one starts at offset 7.
TIMES = {0: [1_000, 2_000, 3_000], 1: [1_500, 2_500, 3_500, 4_500]}


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog({number: [*times] for number, times in TIMES.items()}, {1: 7})


async def find(log: ScriptedLog, stretch: Stretch, wanted: str = "") -> list[dict[str, Any]]:
    """The events of a search."""
    made = TopicSearch(cast(AsyncConsumer, log), cast(AsyncAdmin, log), TOPIC, stretch, parse_filter(wanted))
    return [cast(dict[str, Any], event) async for event in made.events()]


def planned(events: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """Returns the start and end offset of a search by partition."""
    return {each["partition"]: (int(each["start"]), int(each["end"])) for each in events[0]["partitions"]}


def places(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Partition and offset of all rows, sorted."""
    return sorted((row["partition"], int(row["offset"])) for event in events for row in event.get("rows", ()))


# -- searches ---------------------------------------------------------------------------------------------------------


async def test_a_time_between_records_starts_with_the_later(log: ScriptedLog) -> None:
    events = await find(log, Stretch(since_ms=2_600))
    assert planned(events) == {0: (2, 3), 1: (9, 11)}
    assert places(events) == [(0, 2), (1, 9), (1, 10)]
    assert events[-1]["why"] == "everything"


@pytest.mark.parametrize(("since_ms", "first"), [(0, (0, 7)), (1_000, (0, 7)), (1_001, (1, 7)), (3_000, (2, 9))])
async def test_a_time_includes_the_record_of_that_time(log: ScriptedLog, since_ms: int, first: tuple[int, int]) -> None:
    events = await find(log, Stretch(since_ms=since_ms))
    assert (planned(events)[0][0], planned(events)[1][0]) == first


async def test_a_time_after_all_records_reads_nothing(log: ScriptedLog) -> None:
    events = await find(log, Stretch(since_ms=86_400_000))
    assert planned(events) == {0: (3, 3), 1: (11, 11)}
    assert [event["kind"] for event in events] == ["plan", "end"]
    assert (events[-1]["why"], events[-1]["read_bytes"], events[-1]["found"], log.polled) == ("everything", 0, 0, 0)


@pytest.mark.parametrize(
    ("stretch", "starts"),
    [
        (Stretch(), (0, 7)),
        (Stretch(last=2), (1, 9)),
        (Stretch(last=100), (0, 7)),
        (Stretch(last=0), (3, 11)),
        (Stretch(offset=0), (0, 7)),
        (Stretch(offset=0, last=1), (0, 7)),
        (Stretch(offset=8), (3, 8)),
        (Stretch(offset=1 << 62), (3, 11)),
        (Stretch(offset=1, since_ms=86_400_000), (1, 7)),
    ],
)
async def test_a_search_starts_within_the_log(log: ScriptedLog, stretch: Stretch, starts: tuple[int, int]) -> None:
    events = await find(log, stretch)
    assert planned(events) == {0: (starts[0], 3), 1: (starts[1], 11)}
    assert places(events) == [(0, each) for each in range(starts[0], 3)] + [(1, each) for each in range(starts[1], 11)]


async def test_partition_zero_alone_is_searched(log: ScriptedLog) -> None:
    assert planned(await find(log, Stretch(partition=0))) == {0: (0, 3)}


async def test_what_was_written_since_is_left_out(log: ScriptedLog) -> None:
    """The end of a search is the end that each partition had when it started."""
    log.grown = {0: [9_000] * 5, 1: [9_000] * 5}
    events = await find(log, Stretch())
    assert len(places(events)) == 7
    assert events[-1]["why"] == "everything"


async def test_exactly_enough_rows_are_everything(log: ScriptedLog) -> None:
    assert (await find(log, Stretch(limit=7)))[-1]["why"] == "everything"
    log.positions.clear()
    log.paused.clear()
    events = await find(log, Stretch(limit=6))
    end = events[-1]
    assert (end["why"], end["found"]) == ("rows", 6)
    assert [(each["partition"], each["at"], each["end"]) for each in end["partitions"]] == [
        (0, "3", "3"),
        (1, "10", "11"),
    ]


async def test_a_search_ends_when_its_time_is_over(log: ScriptedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BUDGET_S", 0.0)
    events = await find(log, Stretch())
    assert (events[-1]["why"], log.polled) == ("seconds", 0)
    assert all(part["at"] == part["start"] for part in events[-1]["partitions"])


async def test_a_partition_without_a_leader_is_named(log: ScriptedLog) -> None:
    log.failures = {1: LeaderNotAvailableError("it has no leader")}
    events = await find(log, Stretch())
    assert (planned(events), events[0]["away"], events[-1]["away"]) == ({0: (0, 3)}, [1], [1])
    log.failures = {1: TopicAuthorizationFailedError("User:anna may not READ orders")}
    with pytest.raises(TopicAuthorizationFailedError):
        await find(log, Stretch())


# -- followed topics --------------------------------------------------------------------------------------------------


async def followed(log: ScriptedLog, partition: int | None = None, wanted: str = "") -> list[dict[str, Any]]:
    """The first event with rows, and that before it."""
    consumer, admin = cast(AsyncConsumer, log), cast(AsyncAdmin, log)
    events: list[Thing] = []
    async for event in follow_topic(consumer, admin, TOPIC, partition, parse_filter(wanted)):
        events.append(event)
        if event["kind"] == "rows":
            break
    return cast(list[dict[str, Any]], events)


async def test_following_shows_the_newest_records(log: ScriptedLog) -> None:
    most = int(follow.ROWS_PER_SECOND * follow.SHOWN_EVERY_S)
    log.polls = [log.rows(0, 1_000, 1_000 + 3 * most)]
    rows = (await followed(log))[-1]
    assert [int(row["offset"]) for row in rows["rows"]] == list(range(1_000 + 2 * most, 1_000 + 3 * most))
    assert (rows["left_out"], rows["seen"]) == (2 * most, 3 * most)


async def test_following_shows_as_many_as_it_may(log: ScriptedLog) -> None:
    most = int(follow.ROWS_PER_SECOND * follow.SHOWN_EVERY_S)
    log.polls = [log.rows(0, 0, most)]
    rows = (await followed(log))[-1]
    assert (len(rows["rows"]), rows["left_out"]) == (most, 0)


async def test_following_counts_what_its_filter_lets_through(log: ScriptedLog) -> None:
    most = int(follow.ROWS_PER_SECOND * follow.SHOWN_EVERY_S)
    log.polls = [log.rows(0, 0, 10 * most)]
    rows = (await followed(log, wanted='value ~ "[05]$"'))[-1]
    assert [int(row["offset"]) for row in rows["rows"]] == list(range(5 * most, 10 * most, 5))
    assert (rows["left_out"], rows["seen"]) == (most, 10 * most)


@pytest.mark.parametrize(("partition", "numbers"), [(None, [0, 1]), (0, [0]), (1, [1])])
async def test_following_starts_at_the_end(log: ScriptedLog, partition: int | None, numbers: list[int]) -> None:
    events = await followed(log, partition)
    assert events[0] == {"kind": "follows", "partitions": len(numbers)}
    assert log.positions == {TopicPartition(TOPIC, number): {0: 3, 1: 11}[number] for number in numbers}
    assert events[-1]["rows"] == []


# -- resets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "committed", "at_time", "target"),
    [
        (ResetWish(ResetTo.TIME, 1), 50, 0, 0),
        (ResetWish(ResetTo.TIME, 1), None, 0, 0),
        (ResetWish(ResetTo.TIME, 0), 50, 90, 90),
        (ResetWish(ResetTo.OFFSET, 0), 50, None, 0),
        (ResetWish(ResetTo.SHIFT, 0), 0, None, 0),
        (ResetWish(ResetTo.SHIFT, 5), 0, None, 5),
        (ResetWish(ResetTo.SHIFT, -50), 50, None, 0),
        (ResetWish(ResetTo.EARLIEST), 50, None, 0),
        (ResetWish(ResetTo.LATEST), 0, None, 90),
        (ResetWish(ResetTo.OFFSET, 90), 50, None, 90),
    ],
)
def test_offset_zero_is_an_offset(wish: ResetWish, committed: int | None, at_time: int | None, target: int) -> None:
    """In a partition that starts at 0, the first record and the end are targets like any other, without a note."""
    planned = step(PLACE, wish, committed, 0, 90, at_time)
    assert (planned.target, planned.note, planned.committed) == (target, "", committed)


class ScriptedGroup(ScriptedLog):
    """The log, and a group that has committed offset 0 of partition 0."""

    async def describe_groups(self, group_ids: list[str], *, include_offsets: bool) -> list[GroupDescription]:
        assert include_offsets
        offsets = {PLACE: OffsetAndMetadata(0)}
        return [GroupDescription(group_ids[0], GroupState.EMPTY, 1, 1, "uniform", (), 2, offsets=offsets)]


@pytest.mark.parametrize(
    ("wish", "targets"),
    [
        (ResetWish(ResetTo.TIME, 0, TOPIC), ["0", "7"]),
        (ResetWish(ResetTo.TIME, 1_000, TOPIC), ["0", "7"]),
        (ResetWish(ResetTo.TIME, 4_000, TOPIC), ["3", "10"]),
        (ResetWish(ResetTo.TIME, 86_400_000, TOPIC), ["3", "11"]),
        (ResetWish(ResetTo.SHIFT, 1, TOPIC), ["1", "7"]),
        (ResetWish(ResetTo.SHIFT, 1), ["1"]),
    ],
)
async def test_a_plan_goes_to_the_first_record(wish: ResetWish, targets: list[str]) -> None:
    group = ScriptedGroup({number: [*times] for number, times in TIMES.items()}, {1: 7})
    made = cast(dict[str, Any], await plan(group, group, "billing", wish))
    assert [each["target"] for each in made["steps"]] == targets
    assert [each["committed"] for each in made["steps"]] == ["0", None][: len(targets)]
