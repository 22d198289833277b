"""The log of a node's steps: each line has the package that writes it."""

from __future__ import annotations

from quorumlog.server.node.resources import StepLog
from quorumlog.server.observability.log_levels import LogLevels
from quorumlog.server.step.events import LogLine


def test_lines_have_their_package() -> None:
    lines: list[LogLine] = []
    levels = LogLevels("error")
    log = StepLog(levels, lines.append, "server.node")
    other = log.named("server.partition")
    log("info", "stopping")
    other("warning", "compaction_gave_up", reason="x")
    assert lines == [
        LogLine("info", "stopping", {}, "server.node"),
        LogLine("warning", "compaction_gave_up", {"reason": "x"}, "server.partition"),
    ]
    levels.follow({"": "error", "server.partition": "debug"})
    assert (log.debugs, other.debugs) == (False, True)
