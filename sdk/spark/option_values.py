"""Common parts of read and write options: names, and validation of values.

A silently ignored option reads or writes the wrong data, so a name that is unknown, or does not apply, is refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import NoReturn

from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.runtime.security import PROPERTIES, ClientSecurity
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.servers import Servers

SERVERS = ("quorumlog.bootstrap.servers", "kafka.bootstrap.servers")
#: Security options: the properties of clients, under our own prefix.
SECURITY_PREFIX = "quorumlog."
SECURITY = tuple(SECURITY_PREFIX + name for name in PROPERTIES.values())
SELECTIONS = ("subscribe", "subscribePattern", "assign")
#: Options by purpose. All other names are refused, or belong to other libraries.
READS = (
    *SELECTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "onCorrupt",
    "readFrom",
    "minPartitions",
    "maxRecordsPerPartition",
)
BATCH_READS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STREAM_READS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId")
WRITES = ("topic", "compression", "transactional", "transactionTimeout")
BATCH_WRITES = ("transactionId", "transactionEpoch")
_PURPOSES: dict[str, tuple[str, ...]] = {
    "any": (*SERVERS, *SECURITY),
    "a read": READS,
    "a batch read": BATCH_READS,
    "a streaming read": STREAM_READS,
    "a write": WRITES,
    "a batch write": BATCH_WRITES,
}
#: Similarity above which an unknown name counts as a misspelling of a known one.
_NEAR = 0.8
#: The highest number of an option, as in Kafka's protocol. Python refuses to parse numbers of unlimited length.
_LARGEST = (1 << 63) - 1
#: Limit of a value quoted in a message: offsets of a thousand partitions are not readable.
_SHOWN_CHARACTERS = 200
_TIME_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class GivenOptions:
    """A user's options; names are case-insensitive, as everywhere in Spark.

    Arguments:
        options: names and values from Spark.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._written = dict(options)
        self._values = {name.lower(): value for name, value in options.items()}

    def __contains__(self, option: str) -> bool:
        return option.lower() in self._values

    def text(self, option: str, default: str = "") -> str:
        """Returns an option's value as text."""
        return self._values.get(option.lower(), default)

    def boolean(self, option: str, *, default: bool) -> bool:
        """Returns an option as a boolean.

        Raises:
            OptionError: it is neither true nor false.
        """
        if option not in self:
            return default
        value = self.text(option).strip().lower()
        if value not in {"true", "false"}:
            raise OptionError(f"option {option} is {self.text(option)!r}: expected true or false")
        return value == "true"

    def number(self, option: str, *, least: int, most: int = _LARGEST) -> int | None:
        """Returns an option as a whole number from ``least`` to ``most``; None if it is not given.

        Raises:
            OptionError: it is not such a number.
        """
        if option not in self:
            return None
        value = self.text(option).strip()
        number = whole_number(value)
        if number is None or not least <= number <= most:
            raise OptionError(f"option {option} is {_shown(value)}: expected a number from {least} to {most}")
        return number

    def duration_ms(self, option: str, default: str) -> int:
        """Returns an option as a time in Spark's format, such as 500ms, 10s, 15m; a bare number is in milliseconds.

        Raises:
            OptionError: it is not a time.
        """
        value = self.text(option, default)
        found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", value.strip().lower(), re.ASCII)
        if found is None or found[2] not in _TIME_UNITS_MS:
            raise OptionError(f"option {option} is {value!r}: expected a time such as 500ms, 10s, 15m or 2h")
        return int(found[1]) * _TIME_UNITS_MS[found[2]]

    def json_object(self, option: str, shape: str) -> dict[str, object]:
        """Returns an option as a JSON object.

        Arguments:
            shape: an example, for the message.

        Raises:
            OptionError: it is not a JSON object.
        """
        try:
            parsed = json.loads(self.text(option), object_pairs_hook=_without_twins, parse_int=_integer)
        except (ValueError, RecursionError) as error:
            self.malformed(option, str(error), shape)
        if not isinstance(parsed, dict):
            self.malformed(option, "it is not a JSON object", shape)
        return parsed

    def malformed(self, option: str, reason: str, shape: str) -> NoReturn:
        """Raises the error for a malformed option.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"option {option} is {_shown(self.text(option))}: {reason}; expected {shape}")

    def bootstrap_servers(self) -> Servers:
        """Returns the addresses of the cluster, ``host:port,host:port``, with the security options.

        Raises:
            OptionError: it is missing, malformed, or contradicts another option.
        """
        values = {name: tuple(filter(None, map(str.strip, self.text(name).split(",")))) for name in SERVERS}
        addresses = {name: servers for name, servers in values.items() if servers}
        if not addresses:
            hint = "" if self._written else " (a table of Spark's catalog has no options here: use a temporary view)"
            raise OptionError(f"option {SERVERS[0]} is missing: give one or more nodes as host:port,host:port{hint}")
        if len(set(addresses.values())) > 1:
            raise OptionError(f"options {' and '.join(SERVERS)} contradict each other: give only {SERVERS[0]}")
        name, servers = next(iter(addresses.items()))
        for server in servers:
            host, _, port = server.rpartition(":")
            if re.search(r"[\s/]", host) or not host or not 0 < (whole_number(port) or 0) < 1 << 16:
                raise OptionError(f"option {name} is {_shown(self.text(name))}: {server[:80]!r} is not host:port")
        properties = {name.removeprefix(SECURITY_PREFIX): self.text(name) for name in SECURITY if name in self}
        try:
            return Servers(",".join(servers), ClientSecurity.of_properties(properties))
        except IllegalArgumentError as error:
            raise OptionError(f"options {SECURITY[0]}, quorumlog.ssl.* and quorumlog.sasl.*: {error}") from None

    def refuse_strangers(self) -> None:
        """Refuses unknown names that can only be intended for this source: by prefix, or by similarity.

        A misspelt ``startingOffset`` that is silently ignored would read the whole topic.

        Raises:
            OptionError: the message names the option and, if possible, the intended one.
        """
        known = {name.lower(): name for names in _PURPOSES.values() for name in names}
        for name, value in self._written.items():
            lowered = name.lower()
            if lowered in known:
                continue
            if lowered.removeprefix("option.") in known:
                # CREATE TABLE sends these, beside their own names; SELECT from the table sends none.
                raise OptionError(
                    "a table in Spark's catalog cannot be a topic: Spark does not hand a table's options to a source in"
                    " Python; use CREATE TEMPORARY VIEW name USING quorumlog OPTIONS (...)"
                )
            if lowered == "path":
                raise OptionError(
                    f"a path ({value!r}) has no meaning here: name topics by option subscribe, and where to write by"
                    " option topic; call load(), save() or start() without a path"
                )
            near = difflib.get_close_matches(lowered, known, n=1, cutoff=_NEAR)
            hint = f": did you mean {known[near[0]]}?" if near else ""
            if lowered.startswith("kafka."):
                hint = hint or ": settings of a Kafka client have no effect here, remove it"
            elif not hint and lowered.startswith("quorumlog."):
                hint = f": options of that prefix are {', '.join((SERVERS[0], *SECURITY))}"
            if hint:
                raise OptionError(f"unknown option {name} ({value!r}){hint}")

    def refuse_all_but(self, *purposes: str) -> None:
        """Refuses unknown names, and options that have no effect on the operation.

        Arguments:
            purposes: of ``a read``, ``a batch read``, ``a streaming read``, ``a write``, ``a batch write``.

        Raises:
            OptionError: the message names the option and its purpose.
        """
        self.refuse_strangers()
        for purpose, names in _PURPOSES.items():
            for name in names if purpose not in {"any", *purposes} else ():
                if name in self:
                    raise OptionError(
                        f"option {name} ({self.text(name)!r}) is for {purpose} and has no effect on {purposes[-1]}:"
                        " remove it"
                    )


def whole_number(text: str) -> int | None:
    """Returns the decimal number from 0 to 2^63-1 in a text, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))):
        return None
    number = int(text)
    return number if number <= _LARGEST else None


def _shown(value: str) -> str:
    return repr(value) if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]!r} and so on"


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > len(str(_LARGEST)):
        raise ValueError(f"{digits[:25]} has too many digits")
    return int(digits)


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns a JSON object whose names differ. Of duplicates the last would win silently: the wrong data may be
    read."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        name.encode()  # A lone surrogate is text to JSON, but cannot be sent.
        found[name] = value
    return found
