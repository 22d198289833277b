"""Filters of a query as bounds of what is read."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import datasource as spark

from quorumlog.sdk.spark.options import parse_batch_options
from quorumlog.sdk.spark.planning import EVERYTHING, plan
from quorumlog.sdk.spark.pushed_filters import bounds_of
from tests.spark.test_read_planning import FixedCatalog

T, P, O, W = ("topic",), ("partition",), ("offset",), ("timestamp",)  # noqa: E741
ALL = [("a", 0, 0, 10), ("a", 1, 5, 25), ("b", 0, 0, 4)]


def at(ms: int, us: int = 0) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms, microseconds=us)


def ranges(*filters: spark.Filter, **options: str) -> list[tuple[str, int, int, int]]:
    parsed = parse_batch_options({"quorumlog.bootstrap.servers": "h:1", "subscribe": "a,b"} | options)
    return [(r.topic, r.partition, r.start, r.end) for r in plan(FixedCatalog(), parsed, bounds_of(filters))]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        ([spark.EqualTo(T, "b")], ALL[2:]),
        ([spark.EqualNullSafe(T, "b")], ALL[2:]),
        ([spark.In(T, ("b", None, "c"))], ALL[2:]),
        ([spark.In(T, (None,))], []),
        ([spark.GreaterThan(T, "a")], ALL[2:]),
        ([spark.EqualTo(P, 1)], ALL[1:2]),
        ([spark.LessThan(P, 1), spark.EqualTo(T, "a")], ALL[:1]),
        ([spark.GreaterThanOrEqual(O, 8)], [("a", 0, 8, 10), ("a", 1, 8, 25)]),
        ([spark.GreaterThan(O, 8)], [("a", 0, 9, 10), ("a", 1, 9, 25)]),
        ([spark.LessThan(O, 6)], [("a", 0, 0, 6), ("a", 1, 5, 6), ("b", 0, 0, 4)]),
        ([spark.LessThanOrEqual(O, 6)], [("a", 0, 0, 7), ("a", 1, 5, 7), ("b", 0, 0, 4)]),
        ([spark.EqualTo(O, 7)], [("a", 0, 7, 8), ("a", 1, 7, 8)]),
        ([spark.In(O, (20, 9, None))], [("a", 0, 9, 10), ("a", 1, 9, 21)]),
        ([spark.GreaterThan(O, 3), spark.LessThan(O, 3)], []),
        ([spark.GreaterThanOrEqual(W, at(85))], [("a", 0, 9, 10), ("a", 1, 9, 25)]),
        ([spark.GreaterThan(W, at(80))], [("a", 0, 8, 10), ("a", 1, 8, 25)]),
        ([spark.EqualTo(W, at(100)), spark.GreaterThan(O, 12)], [("a", 1, 13, 25)]),
        ([spark.In(W, (at(200), at(120)))], [("a", 1, 12, 25)]),
        ([spark.GreaterThan(W, at(250))], []),
    ],
)
def test_filters_bound_a_read(filters: list[spark.Filter], expected: list[tuple[str, int, int, int]]) -> None:
    assert ranges(*filters) == expected


@pytest.mark.parametrize(
    "wanted",
    [
        spark.Not(spark.EqualTo(T, "b")),
        spark.IsNotNull(W),
        spark.StringStartsWith(T, "a"),
        spark.EqualTo(("key",), b"b"),
        spark.EqualTo(("value", "partition"), 1),
        spark.EqualTo(T, None),
        spark.EqualTo(P, "1"),
        spark.EqualTo(P, True),
        spark.In(O, (None,)),
        spark.LessThan(W, at(10)),
        spark.LessThanOrEqual(W, at(10)),
        spark.GreaterThan(W, at(-5)),
        spark.GreaterThan(W, dt.datetime(1970, 1, 1, 0, 0, 1)),
    ],
)
def test_other_filters_bound_nothing(wanted: spark.Filter) -> None:
    """Not one that would need an order of time, nor one whose value is of another type."""
    assert ranges(wanted) == ALL


def test_times_are_rounded_down() -> None:
    """Look-ups by time count milliseconds, and records microseconds."""
    assert bounds_of([spark.GreaterThan(W, at(80, 999))]).since_ms == 80
    assert bounds_of([spark.GreaterThan(W, at(-2))]).since_ms == 0, "negative times are words in look-ups"


def test_options_bound_a_read_as_well() -> None:
    bounded = ranges(spark.GreaterThanOrEqual(O, 8), spark.EqualTo(P, 1), endingTimestamp="120")
    assert bounded == [("a", 1, 8, 12)]
    assert bounds_of([]) is EVERYTHING


def test_options_are_checked_first() -> None:
    """A filter does not hide that offsets of a partition are missing."""
    with pytest.raises(Exception, match="has no offset for a partition 1"):
        ranges(spark.EqualTo(P, 0), startingOffsets='{"a": {"0": 2}, "b": {"0": 0}}')
