"""Filters that Spark offers to a batch read, as bounds of what is read.

Spark still applies every filter to the rows: a bound only leaves out records that no filter would keep. So a filter
that cannot be translated costs time, and never changes the result.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from quorumlog.sdk.spark.planning import EVERYTHING, ReadBounds

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def bounds_of(filters: Iterable[Filter]) -> ReadBounds:
    """Returns the bounds of a read whose rows all of these filters keep."""
    return reduce(ReadBounds.within, map(_bounds, filters), EVERYTHING)


def _bounds(wanted: Filter) -> ReadBounds:
    """Returns the bounds of one filter; ``EVERYTHING`` for one that bounds nothing."""
    keeps: Callable[[Any], bool]
    if isinstance(wanted, In):
        values = frozenset(wanted.value) - {None}
        keeps = values.__contains__
    elif type(wanted) in _COMPARISONS:
        compare, value = _COMPARISONS[type(wanted)], wanted.value  # type: ignore[attr-defined]
        values = frozenset((value,))
        keeps = lambda held: compare(held, value)  # noqa: E731
    else:
        return EVERYTHING
    match wanted.attribute:  # type: ignore[attr-defined]
        case ("topic",) if all(type(each) is str for each in values):
            return ReadBounds(topics=keeps)
        case ("partition",) if all(type(each) is int for each in values):
            return ReadBounds(partitions=keeps)
        case ("offset",) if values and all(type(each) is int for each in values):
            return _offsets(wanted, min(values), max(values))
        # Records need not be in order of time, so no offset follows all those before a time.
        case ("timestamp",) if values and not isinstance(wanted, LessThan | LessThanOrEqual):
            if all(isinstance(each, dt.datetime) and each.tzinfo is not None for each in values):
                return ReadBounds(since_ms=(min(values) - _EPOCH) // _MILLISECOND)
    return EVERYTHING


def _offsets(wanted: Filter, least: int, most: int) -> ReadBounds:
    """Returns the bounds of a filter that compares offsets with values from ``least`` to ``most``."""
    match wanted:
        case GreaterThan():
            return ReadBounds(first=least + 1)
        case GreaterThanOrEqual():
            return ReadBounds(first=least)
        case LessThan():
            return ReadBounds(end=most)
        case LessThanOrEqual():
            return ReadBounds(end=most + 1)
        case _:
            return ReadBounds(first=least, end=most + 1)
