"""Builds a validated configuration from keyword arguments; each error message is one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from typing import Any, TypeVar

from quorumlog.sdk.errors import IllegalArgumentError

Config = TypeVar("Config")

_NEEDLESS = "it is not needed here, leave it out"
#: Option names of Kafka's clients that do not exist here, with what to do instead.
KAFKA_NAMES = {
    "retries": "delivery_timeout_ms bounds the time of all attempts, whose number does not matter",
    "max_in_flight_requests_per_connection": "it is max_in_flight here, of batches of one partition",
    "partition_assignment_strategy": "it is group_assignor here, uniform or range",
    "allow_auto_create_topics": "topics are created with Admin.create_topics only, leave it out",
    "api_version": _NEEDLESS,
    "api_version_auto_timeout_ms": _NEEDLESS,
    "connections_max_idle_ms": _NEEDLESS,
    "reconnect_backoff_ms": _NEEDLESS,
    "reconnect_backoff_max_ms": _NEEDLESS,
    "receive_buffer_bytes": _NEEDLESS,
    "send_buffer_bytes": _NEEDLESS,
    "check_crcs": "checksums are always compared, leave it out",
}


def options_of(config: type) -> list[Field[Any]]:
    """Returns the fields of a client's configuration in reading order.

    Options shared by all clients are inherited and therefore come first. ``bootstrap_servers`` is moved before them.
    """
    return sorted(fields(config), key=lambda field: field.name != "bootstrap_servers")


def build_config(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """Builds a config dataclass from keyword arguments.

    Raises:
        IllegalArgumentError: an unknown name; the message names the closest known one.
    """
    known = [option.name for option in options_of(kind)]
    check_names(options, known)
    return kind(**options)


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Raises `IllegalArgumentError` for a configuration name that does not exist."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
            hint = f": {KAFKA_NAMES[name]}" if name in KAFKA_NAMES else hint
            raise IllegalArgumentError(f"there is no configuration {name!r}{hint}")


def check_range(config: object, name: str, lowest: float, highest: float) -> None:
    """Raises `IllegalArgumentError` for a value that is not a number or outside its range (bounds included)."""
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise IllegalArgumentError(f"{name} is {value!r}: it must be a number from {lowest:g} to {highest:g}")
