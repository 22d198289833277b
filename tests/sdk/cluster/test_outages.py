"""Log lines of a client while nodes do not serve it: late enough, seldom enough, and with the right figures."""

from __future__ import annotations

import logging

import pytest

from quorumlog.sdk.cluster.outage_log import QUIET_S, REPEATED_AFTER_S, Outage, OutageLog
from quorumlog.sdk.errors import NetworkError
from quorumlog.sdk.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
WHY = NetworkError("no route")


@pytest.fixture(autouse=True)
def warnings_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="quorumlog.sdk")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the lines that were logged since the last call."""
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def test_short_outages_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    outages, outage = OutageLog("fetching from"), Outage("reaching g")
    for now in (100.0, 100.0 + QUIET_S - 0.001):
        outages.failed(A, WHY, now)
        outage.failed(WHY, now)
    outages.served(A, 105.0)
    outage.succeeded(105.0)
    assert lines(caplog) == []


def test_outages_are_logged_from_five_seconds_on(caplog: pytest.LogCaptureFixture) -> None:
    outages, outage = OutageLog("fetching from"), Outage("reaching g")
    for now in (100.0, 105.0):
        outages.failed(A, WHY, now)
        outage.failed(WHY, now)
    assert lines(caplog) == [
        "fetching from t-0 has failed for 5 s; still trying: no route",
        "reaching g has failed for 5 s; still trying: no route",
    ]
    outages.served(A, 107.0)
    outage.succeeded(108.0)
    assert lines(caplog) == ["fetching from t-0 works again, after 7 s", "reaching g works again, after 8 s"]
    outages.served(A, 108.0)
    outage.succeeded(109.0)
    assert lines(caplog) == []


def test_lines_are_repeated_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    """One for all partitions; one whose outage lasts is named with its own time."""
    outages, outage = OutageLog("fetching from"), Outage("reaching g")
    for second in range(100, 171):
        for tp in (A, B):
            outages.failed(tp, WHY, float(second))
        outage.failed(WHY, float(second))
    said = lines(caplog)
    assert [line for line in said if "fetching" in line] == [
        f"fetching from t-0{more} has failed for {seconds} s; still trying: no route"
        for seconds, more in ((5, " and 1 more"), (35, " and 1 more"), (65, " and 1 more"))
    ]
    assert [line.split(" for ")[1][:4] for line in said if "reaching" in line] == ["5 s;", "35 s", "65 s"]


def test_only_present_outages_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A partition that is no longer tried does not count."""
    outages = OutageLog("fetching from")
    outages.failed(C, WHY, 94.9)
    outages.failed(B, WHY, 100.0)
    for now in (95.0, 100.0):
        outages.failed(A, WHY, now)
    assert lines(caplog) == ["fetching from t-0 and 1 more has failed for 5 s; still trying: no route"]


def test_old_failures_are_no_part_of_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    outages = OutageLog("fetching from")
    outages.failed(A, WHY, 100.0)
    outages.failed(A, WHY, 100.0 + REPEATED_AFTER_S + 0.1)
    assert lines(caplog) == [], "it was given up in between"
    other = OutageLog("fetching from")
    other.failed(A, WHY, 100.0)
    other.failed(A, WHY, 100.0 + REPEATED_AFTER_S)
    assert lines(caplog) == ["fetching from t-0 has failed for 30 s; still trying: no route"]


def test_a_new_outage_counts_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    outages, outage = OutageLog("fetching from"), Outage("reaching g")
    for now in (100.0, 110.0):
        outages.failed(A, WHY, now)
        outage.failed(WHY, now)
    outages.served(A, 111.0)
    outage.succeeded(111.0)
    assert len(lines(caplog)) == 4
    for now in (500.0, 504.0):
        outages.failed(A, WHY, now)
        outage.failed(WHY, now)
    assert lines(caplog) == []
