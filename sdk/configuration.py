"""Turns keyword arguments into a checked configuration; every mistake is one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from quorumlog.sdk.errors import IllegalArgumentError

Config = TypeVar("Config")


def build_config(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """A config dataclass from keyword arguments.

    Raises:
        IllegalArgumentError: an unknown name, with the closest known one.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    check_names(options, known)
    return kind(**options)


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuses configuration names that do not exist."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
            raise IllegalArgumentError(f"there is no configuration {name!r}{hint}")


def check_range(config: object, name: str, lowest: float, highest: float) -> None:
    """Refuses a number outside its range, or something that is no number."""
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise IllegalArgumentError(f"{name} is {value!r}: it must be a number from {lowest:g} to {highest:g}")
