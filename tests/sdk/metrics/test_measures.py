"""Counts in all and of late, on a clock of the test's."""

from __future__ import annotations

import math

from quorumlog.sdk.metrics.windows import WINDOW_S, Measure


def test_a_total_goes_on_while_what_is_of_late_passes() -> None:
    measure = Measure(0.0)
    measure.add(60, 1.0)
    measure.add(30, 2.0)
    assert (measure.times, measure.total) == (2, 90)
    assert measure.rate(2.0) == 90 / WINDOW_S, "a window that has hardly started counts as a whole one"
    assert measure.rate(45.0) == 2.0
    assert measure.rate(2 * WINDOW_S) == 0.0
    assert measure.total == 90


def test_averages_and_maxima_are_of_this_window_and_the_one_before() -> None:
    measure = Measure(0.0)
    measure.add(100, 0.0)
    measure.add(1, WINDOW_S)
    measure.add(3, WINDOW_S + 1)
    assert (measure.average(WINDOW_S + 1), measure.most(WINDOW_S + 1)) == (104 / 3, 100)
    assert (measure.average(2 * WINDOW_S + 1), measure.most(2 * WINDOW_S + 1)) == (2, 3)


def test_where_nothing_came_there_is_no_average() -> None:
    measure = Measure(0.0)
    assert math.isnan(measure.average(0.0))
    assert math.isnan(measure.most(0.0))
    assert measure.rate(0.0) == 0.0


def test_what_is_long_ago_is_not_taken_for_the_window_before() -> None:
    measure = Measure(0.0)
    measure.add(100, 0.0)
    measure.add(1, 10 * WINDOW_S)
    assert measure.most(10 * WINDOW_S) == 1
