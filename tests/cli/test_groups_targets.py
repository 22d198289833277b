"""Targets of ``groups reset-offsets``: durations, targets, files, and the bounds of the log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.reset_targets import PartitionBeforeReset, Wish, target, within_log
from quorumlog.cli.times import parse_duration_ms
from quorumlog.sdk import TopicPartition

TP = TopicPartition("orders", 0)
PLACE = PartitionBeforeReset(TP, committed=40, start=5, end=100)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1h30m", 5_400_000), ("PT1H30M", 5_400_000), ("pt1h30m", 5_400_000), ("7d", 604_800_000), ("P7D", 604_800_000),
        ("P1W", 604_800_000), ("P1DT12H", 129_600_000), ("90s", 90_000), ("PT0.5S", 500), ("0s", 0),
        ("1.5h", 5_400_000),
    ],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text, "--by-duration") == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "5", "-1h", "1h 30m", "P1M", "P1Y", "30m1h", "PT1D", "1e3s", "٣h", "h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(CommandError, match="is not a duration"):
        parse_duration_ms(text, "--by-duration")


@pytest.mark.parametrize(
    ("wish", "offset"),
    [
        (Wish(to_earliest=True), 5),
        (Wish(to_latest=True), 100),
        (Wish(to_current=True), 40),
        (Wish(to_offset=0), 0),
        (Wish(to_offset=7), 7),
        (Wish(shift_by=-3), 37),
        (Wish(shift_by=0), 40),
    ],
    ids=repr,
)
def test_targets_that_need_no_time(wish: Wish, offset: int) -> None:
    goal = target(wish)
    assert goal.time_ms is None
    assert goal.offset(PLACE) == offset


def test_a_time_leads_to_the_first_record_as_late_or_to_the_end() -> None:
    goal = target(Wish(to_timestamp=1_700_000_000_000))
    assert goal.time_ms == 1_700_000_000_000
    assert goal.offset(PLACE._replace(at_time=33)) == 33
    assert goal.offset(PLACE._replace(at_time=0)) == 0
    assert goal.offset(PLACE) == 100
    assert target(Wish(to_datetime="2024-05-01T12:00:00")).time_ms == 1_714_564_800_000
    hour_ago = target(Wish(by_duration="1h")).time_ms
    assert hour_ago is not None
    assert 0 <= time.time() * 1000 - 3_600_000 - hour_ago < 60_000
    assert target(Wish(by_duration="999999999999w")).time_ms == 0


def test_where_nothing_is_committed_there_is_nothing_to_shift() -> None:
    for request in (Wish(shift_by=1), Wish(to_current=True)):
        with pytest.raises(CommandError, match="no offset is committed for orders-0"):
            target(request).offset(PLACE._replace(committed=None))


@pytest.mark.parametrize(
    ("wanted", "taken", "words"),
    [
        (4, 5, "before the start"),
        (-9, 5, "before the start"),
        (5, 5, None),
        (100, 100, None),
        (101, 100, "beyond the end"),
    ],
)
def test_offsets_stay_within_the_log(wanted: int, taken: int, words: str | None) -> None:
    offset, warning = within_log(PLACE, wanted)
    assert offset == taken
    assert warning is None if words is None else words in (warning or "")


def test_what_was_exported_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('orders,0,42\n"orders",1,0\n\npayments,0,7\norders,0,42\n')
    goal = target(Wish(from_file=file))
    assert goal.offsets == {TP: 42, TopicPartition("orders", 1): 0, TopicPartition("payments", 0): 7}
    assert goal.offset(PLACE) == 42
