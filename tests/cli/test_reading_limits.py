"""Start and end of ``quorumlog consume``, and the meaning of times; the cluster is a list of records."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.main import app
from quorumlog.cli.records import consume
from quorumlog.cli.records.reading_start import ReadingStart, seek_start
from quorumlog.cli.records.record_text import value_line
from quorumlog.cli.times import parse_duration_ms, parse_time_ms
from quorumlog.sdk import CommitFailedError, ConsumerRecord, TopicPartition
from quorumlog.sdk.types import OffsetAndTimestamp

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A machine that is elsewhere."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2024-05-01T12:00:00", 1_714_564_800_000),
        ("2024-05-01", 1_714_521_600_000),
        ("2024-05-01T12:00:00.250", 1_714_564_800_250),
        ("2024-05-01T12:00:00+02:00", 1_714_557_600_000),
        ("2024-05-01T12:00:00Z", 1_714_564_800_000),
        ("1714564800000", 1_714_564_800_000),
    ],
)
def test_a_time_without_a_zone_is_utc_wherever_the_machine_is(machine: str, text: str, ms: int) -> None:
    assert parse_time_ms(text, "--from-time") == ms


@pytest.mark.parametrize("text", ["yesterday", "1969-12-31", "-1", "9223372036854775808", ""])
def test_what_is_no_time_is_one_line(text: str) -> None:
    with pytest.raises(CommandError, match=r"--from-time '.*' is not a time: give milliseconds since 1970"):
        parse_time_ms(text, "--from-time")


def test_a_duration_is_in_milliseconds_in_both_ways_to_write_it() -> None:
    for text in ("1w2d3h4m5.5s", "P1W2DT3H4M5.5S", "p1w2dt3h4m5.5s"):
        assert parse_duration_ms(text, "--by-duration") == (((9 * 24 + 3) * 60 + 4) * 60 + 5) * 1_000 + 500


class ReadLog:
    """A consumer of existing records, and of others that come while it reads."""

    def __init__(self, **ends: int) -> None:
        self.ends = {A: ends.get("a", 0), B: ends.get("b", 0)}
        self.first = {A: 0, B: 0}
        self.positions = {A: 0, B: 0}
        self.assigned = [A, B]
        self.committed: list[dict[TopicPartition, int]] = []
        self.found: dict[TopicPartition, int] = {}
        self.polls = 0
        self.grows = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = list(partitions)

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: self.first[where] for where in partitions}

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: self.ends[where] for where in partitions}

    def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        # A client writes while it is looked up.
        answer = {where: OffsetAndTimestamp(self.found[where], 5) if where in self.found else None for where in times}
        self.ends = {where: end + 10 for where, end in self.ends.items()}
        return answer

    def position(self, where: TopicPartition) -> int:
        return self.positions[where]

    def seek(self, where: TopicPartition, offset: int) -> None:
        self.positions[where] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self.positions.update(dict.fromkeys(partitions, 0))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self.positions.update({where: self.ends[where] for where in partitions})

    def poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        self.polls += 1
        assert self.polls < 100, "it would never end"
        self.ends = {where: end + self.grows for where, end in self.ends.items()}
        polled: dict[TopicPartition, list[ConsumerRecord]] = {}
        for where, end in ((each, self.ends[each]) for each in self.assigned):
            last = min(end, self.positions[where] + max_records)
            polled[where] = [record(where, offset) for offset in range(self.positions[where], last)]
            max_records -= len(polled[where])
            self.positions[where] = last
        return polled

    def commit(self) -> None:
        self.committed.append(dict(self.positions))


def record(where: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(where.topic, where.partition, offset, 0, None, b"%d-%d" % (where.partition, offset), [])


def lines(log: ReadLog, **given: Any) -> list[bytes]:
    arguments = {"max_records": None, "timeout": None, "ends": None, **given}
    return [line for some in consume._batches(log, value_line, **arguments) for line in some]  # type: ignore[arg-type]


def test_until_the_end_prints_what_was_there_and_nothing_that_came_later() -> None:
    log = ReadLog(a=3, b=2)
    ends, log.grows = log.end_offsets([A, B]), 2
    assert lines(log, ends=ends) == [b"0-0\n", b"0-1\n", b"0-2\n", b"1-0\n", b"1-1\n"]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_until_the_end_waits_for_every_partition(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(consume, "POLL_RECORDS", at_once)
    log = ReadLog(a=5, b=3)
    assert len(lines(log, ends=log.end_offsets([A, B]))) == 8


def test_until_the_end_of_nothing_asks_for_nothing() -> None:
    log = ReadLog()
    assert lines(log, ends=log.end_offsets([A, B])) == []
    assert log.polls == 0


def test_no_more_records_are_taken_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a group, a record that is taken and not printed would be committed."""
    monkeypatch.setattr(consume, "POLL_RECORDS", 3)
    log = ReadLog(a=5, b=5)
    assert len(lines(log, max_records=7)) == 7
    assert sum(log.positions.values()) == 7


def test_silence_counts_from_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    log, now_ms = ReadLog(), 0.0

    def poll(timeout_ms: float, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        nonlocal now_ms
        assert 1 <= timeout_ms <= consume.POLL_MS
        now_ms += timeout_ms
        log.polls += 1
        return {A: [record(A, 0)]} if log.polls in (8, 16) else {}

    monkeypatch.setattr(consume, "POLL_MS", 100)
    monkeypatch.setattr(consume.time, "monotonic", lambda: now_ms / 1000)
    monkeypatch.setattr(log, "poll", poll)
    assert len(lines(log, timeout=1.0)) == 2
    assert 2_600 <= now_ms < 2_800


@pytest.mark.parametrize(
    ("start", "positions"),
    [
        (ReadingStart(beginning=True), {A: 0, B: 0}),
        (ReadingStart(), {A: 4, B: 6}),
        (ReadingStart(time_ms=5), {A: 2, B: 6}),
        (ReadingStart(offset=3), {A: 3, B: 1}),
        (ReadingStart(last=5), {A: 0, B: 1}),
        (ReadingStart(last=0), {A: 4, B: 6}),
    ],
)
def test_reading_starts_where_it_was_told(start: ReadingStart, positions: dict[TopicPartition, int]) -> None:
    """A time that no record has reached is the end as it was before: what came in the meantime is not passed over."""
    log = ReadLog(a=4, b=6)
    log.positions, log.found = {A: 1, B: 1}, {A: 2}
    seek_start(log, [A, B], start)  # type: ignore[arg-type]
    assert log.positions == positions
    assert log.assigned == [A, B]


@pytest.mark.parametrize("offset", [0, 2, 8, 99])
def test_an_offset_that_is_not_there_is_refused_with_what_is(offset: int) -> None:
    log = ReadLog(a=8)
    log.first = {A: 3, B: 0}
    if offset == 8:
        seek_start(log, [A], ReadingStart(offset=offset))  # type: ignore[arg-type]
        return
    with pytest.raises(CommandError, match=f"--offset {offset} is not in t-0: the log has 3 to 7, and 8 comes next"):
        seek_start(log, [A], ReadingStart(offset=offset))  # type: ignore[arg-type]
    assert log.positions[A] == 0


def test_a_group_commits_what_has_been_printed_and_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Printed(io.BytesIO):
        def flush(self) -> None:
            order.append(f"printed {len(self.getvalue().splitlines())}")

    class Committing(ReadLog):
        def commit(self) -> None:
            order.append(f"committed {sum(self.positions.values())}")
            raise CommitFailedError("others have it")

    @contextmanager
    def opened(source: object, membership: object) -> Iterator[tuple[ReadLog, list[TopicPartition]]]:
        yield Committing(a=4), []

    @contextmanager
    def output(file: object) -> Iterator[io.BytesIO]:
        yield Printed()

    said: list[str] = []
    monkeypatch.setattr(consume, "POLL_RECORDS", 2)
    monkeypatch.setattr(consume, "say", said.append)
    monkeypatch.setattr(consume, "_open_in_group", opened)
    monkeypatch.setattr(consume, "_output", output)
    shown = CliRunner().invoke(app, ["consume", "t", "--group", "g", "-n", "4"])
    assert shown.exit_code == 0, shown.output
    assert order == ["printed 2", "committed 2", "printed 4", "committed 4"]
    assert len(said) == 2
