"""Points in time on the command line: milliseconds since 1970, or a date and time."""

from __future__ import annotations

from datetime import UTC, datetime

from quorumlog.cli.boundary import WRONG_USAGE, CommandError


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970 of ``1700000000000`` or ``2024-05-01T12:00:00``; without a zone it is UTC.

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
            f"{option} '{text}' is no time: give milliseconds since 1970, or a date and time such as"
            " 2024-05-01T12:00:00+02:00 (UTC without a zone)",
            WRONG_USAGE,
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
