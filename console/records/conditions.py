"""Filters: ``key = anna and value/pounds > 3 and header.trace contains "ab" and value ~ "^a+$"``.

User input becomes conditions of this module and nothing else: other consoles have evaluated scripts here, so that
anyone who reached the page could execute code (CVE-2023-52251). Regular expressions are RE2's, whose time is linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute

#: The stubs contain few of the functions that take chunked columns.
_compute: Any = pyarrow.compute

#: Maximum number of characters of a filter, and of its conditions.
LONGEST, MOST = 2_000, 16
EXAMPLE = 'key = anna and value/pounds > 3 and header.trace contains "ab" and value ~ "^a+$"'

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<field>(?:key|value)(?:/(?:[^\s=!<>~≠"]|~[01])*)? | header\.[^\s=!<>~≠"]+) \s*
        (?P<operator>=|!=|≠|<|>|~|contains(?=[\s"])) \s*
        (?:"(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<bare>[^\s"]+))
    )\s*""",
    re.VERBOSE,
)
_AND = re.compile(r"and\s+", re.IGNORECASE)


class FilterError(ValueError):
    """Raised for an invalid filter; the message says where it is wrong, and shows an example."""


class FilterOperator(Enum):
    """The comparison of a field."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    GREATER = ">"
    CONTAINS = "contains"
    MATCHES = "~"


@dataclass(slots=True, frozen=True)
class Condition:
    """One comparison.

    Arguments:
        column: ``key``, ``value`` or ``header``.
        inside: steps of a JSON pointer (RFC 6901) into it; None: the whole. For a header: its name alone.
        literal: the text to compare with.
    """

    column: str
    inside: tuple[str, ...] | None
    operator: FilterOperator
    literal: str

    @property
    def is_columnar(self) -> bool:
        """True if Arrow can evaluate it for a whole column at once."""
        return (
            self.column != "header"
            and self.inside is None
            and self.operator not in (FilterOperator.LESS, FilterOperator.GREATER)
        )


@dataclass(slots=True, frozen=True)
class RecordFilter:
    """A conjunction of conditions. Without any it matches everything."""

    conditions: tuple[Condition, ...] = ()

    def fitting(self, table: pa.Table) -> pa.Table:
        """Returns the matching rows: conditions for whole columns are applied first, and the others row by row to the
        rest.
        """
        for condition in self.conditions:
            if condition.is_columnar and table.num_rows:
                table = table.filter(_column_mask(condition, table.column(condition.column)))
        by_row = [_row_test(condition) for condition in self.conditions if not condition.is_columnar]
        if not by_row or not table.num_rows:
            return table
        rows = table.select(["key", "value", "headers"]).to_pylist()
        return table.filter(pa.array([all(fits(row) for fits in by_row) for row in rows], pa.bool_()))

    def key(self) -> bytes | None:
        """Returns the one key that a record must have to match; None if the filter does not determine it."""
        for condition in self.conditions:
            if condition.column == "key" and condition.inside is None and condition.operator is FilterOperator.EQUAL:
                return condition.literal.encode()
        return None

    @property
    def looks_at_values(self) -> bool:
        """True if the result reveals something about values or headers."""
        return any(condition.column != "key" for condition in self.conditions)


def parse_filter(text: str) -> RecordFilter:
    """Parses a filter.

    Raises:
        FilterError: the text is not a filter.
    """
    if len(text) > LONGEST:
        raise FilterError(f"the filter has {len(text)} characters, more than {LONGEST}")
    conditions = tuple(_conditions(text.strip())) if text.strip() else ()
    if len(conditions) > MOST:
        raise FilterError(f"the filter has {len(conditions)} conditions, more than {MOST}")
    return RecordFilter(conditions)


def _conditions(text: str) -> Iterator[Condition]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            raise FilterError(f"no condition starts at {text[at : at + 30]!r}; example: {EXAMPLE}")
        yield _condition(match)
        at = match.end()
        if at == len(text):
            return
        more = _AND.match(text, at)
        if text[at:].strip().lower() == "and":
            raise FilterError(f"expected a condition after 'and'; example: {EXAMPLE}")
        if more is None:
            raise FilterError(f"expected 'and' before {text[at : at + 30]!r}; example: {EXAMPLE}")
        at = more.end()


def _condition(match: re.Match[str]) -> Condition:
    field, quoted = match["field"], match["quoted"]
    literal = (
        match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1" if match["operator"] != "~" else r"\\\1", quoted)
    )
    operator = FilterOperator("!=" if match["operator"] == "≠" else match["operator"])
    if operator is FilterOperator.MATCHES:
        _check_expression(literal)
    column, dot, name = field.partition(".")
    if column == "header" and dot:
        return Condition("header", (name,), operator, literal)
    column, slash, pointer = field.partition("/")
    steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")) if slash else None
    return Condition(column, steps, operator, literal)


def _check_expression(expression: str) -> None:
    try:
        _compute.match_substring_regex(pa.array([b""], pa.binary()), expression)
    except pa.ArrowInvalid as error:
        raise FilterError(str(error).partition("\n")[0]) from None


def _column_mask(condition: Condition, column: pa.ChunkedArray[Any]) -> Any:
    if condition.operator in (FilterOperator.EQUAL, FilterOperator.UNEQUAL):
        equal = _compute.fill_null(_compute.equal(column, pa.scalar(condition.literal.encode(), column.type)), False)
        return equal if condition.operator is FilterOperator.EQUAL else _compute.invert(equal)
    if condition.operator is FilterOperator.CONTAINS:
        return _compute.fill_null(_compute.match_substring(column, condition.literal.encode()), False)
    return _compute.fill_null(_compute.match_substring_regex(column, condition.literal.encode()), False)


# -- row by row ---------------------------------------------------------------------------------------------------


def _row_test(condition: Condition) -> Callable[[dict[str, Any]], bool]:
    compare = _comparison(condition.operator, condition.literal)
    if condition.column == "header":
        (name,) = condition.inside or ("",)
        return lambda row: any(
            each["key"] == name and compare((each["value"] or b"").decode("utf-8", "replace"))
            for each in row["headers"] or ()
        )

    def fits(row: dict[str, Any]) -> bool:
        content = row[condition.column]
        if content is None:
            return False
        if condition.inside is None:
            return compare(content.decode("utf-8", "replace"))
        found = _at_pointer(content, condition.inside)
        return found is not None and compare(found)

    return fits


def _at_pointer(content: bytes, steps: tuple[str, ...]) -> str | None:
    """Returns the value at a position of a JSON document, as text; None if none exists. Numbers keep all of their
    digits.
    """
    try:
        found = json.loads(content, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    for step in steps:
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and len(step) < 10 and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found if isinstance(found, str) else json.dumps(found)


def _comparison(operator: FilterOperator, literal: str) -> Callable[[str], bool]:
    number = _number(literal)
    if operator is FilterOperator.CONTAINS:
        return lambda text: literal in text
    if operator is FilterOperator.MATCHES:
        import re2

        expression = re2.compile(literal)
        return lambda text: expression.search(text) is not None
    if operator in (FilterOperator.EQUAL, FilterOperator.UNEQUAL):
        wanted = operator is FilterOperator.EQUAL
        return lambda text: (text == literal or (number is not None and _number(text) == number)) is wanted
    less = operator is FilterOperator.LESS

    def ordered(text: str) -> bool:
        other = _number(text)
        if number is not None:
            return other is not None and (other < number if less else other > number)
        return text < literal if less else text > literal

    return ordered


def _number(text: str) -> Decimal | None:
    # A number with an exponent of a thousand digits would have as many digits.
    if len(text) > 64:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
