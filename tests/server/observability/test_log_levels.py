"""Log levels by package, and their changes while a log is in use."""

from __future__ import annotations

import io

import pytest

from quorumlog.server.observability.log_levels import LogLevels
from quorumlog.server.observability.logging_setup import open_log


@pytest.mark.parametrize(
    ("logger", "level"),
    [
        ("server.groups", "debug"),
        ("server.partition", "error"),
        ("server", "error"),
        ("client", "warning"),
        ("", "warning"),
    ],
)
def test_the_closest_level_counts(logger: str, level: str) -> None:
    levels = LogLevels()
    levels.follow({"": "warning", "server": "error", "server.groups": "debug"})
    assert levels.level_of(logger) == level


def test_a_level_counts_for_its_package_only() -> None:
    """A name that starts like another one is another package."""
    levels = LogLevels("error")
    levels.follow({"": "error", "server.group": "debug"})
    assert not levels.writes("server.groups", "debug")
    assert levels.writes("server.group", "debug")


def test_levels_change_while_a_log_is_in_use() -> None:
    written = io.StringIO()
    log = open_log("info", "console", 3, written)
    groups = log.named("server.groups")
    groups.debug("before")
    log.follow_levels({"": "warning", "server.groups": "debug"})
    assert groups.debugs and not log.debugs
    groups.debug("coordinator_stepped", group=5)
    log.info("omitted")
    log.warning("kept")
    log.follow_levels({"": "info"})
    groups.debug("after")
    groups.info("again")
    lines = [line.split(" ", 1)[1] for line in written.getvalue().splitlines()]
    assert lines == [
        "debug coordinator_stepped node=3 logger=server.groups group=5", "warning kept node=3", "info again node=3"
    ]  # fmt: skip
