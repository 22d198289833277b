"""Times on the command line: milliseconds since 1970, or a date and time; and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from quorumlog.cli.boundary import WRONG_USAGE, CommandError

_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_PART = r"(?:([0-9]{1,12}(?:\.[0-9]{1,6})?)%s)?"
#: ISO 8601, without years and months, whose length varies: P7D, PT1H30M.
_ISO_DURATION = re.compile(
    "P" + _PART % "W" + _PART % "D" + "(?:T" + _PART % "H" + _PART % "M" + _PART % "S" + ")?", re.IGNORECASE
)
_SHORT_DURATION = re.compile("".join(_PART % unit for unit in _UNITS_MS), re.IGNORECASE)


def parse_time_ms(text: str, option: str) -> int:
    """Parses ``1700000000000`` or ``2024-05-01T12:00:00`` into milliseconds since 1970; UTC without a zone.

    Raises:
        CommandError: it is neither.
    """
    if text.isdecimal() and int(text) < 1 << 63:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.year < 1970:
        raise CommandError(
            f"{option} '{text}' is not a time: give milliseconds since 1970, or a date and time such as"
            " 2024-05-01T12:00:00+02:00 (UTC without a zone)",
            WRONG_USAGE,
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(text: str, option: str) -> int:
    """Parses a duration such as ``PT1H30M``, ``P7D``, ``1h30m`` or ``7d`` into milliseconds.

    Raises:
        CommandError: it is none of these.
    """
    match = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    parts = match.groups() if match is not None else ()
    if not any(parts):
        raise CommandError(
            f"{option} '{text}' is not a duration: give one such as 1h30m, 7d, PT1H30M or P7D", WRONG_USAGE
        )
    return round(sum(float(part or 0) * unit_ms for part, unit_ms in zip(parts, _UNITS_MS.values(), strict=True)))
