"""Failed TLS handshakes: one line per address and second in the audit log, one a minute in the log."""

from __future__ import annotations

import ssl

from quorumlog.server.step.events import AuditLine
from quorumlog.server.transport.failed_handshakes import LOG_AGAIN_S, MAX_HOSTS, OTHERS, FailedHandshakes, reason_of


class Reported:
    """Failed handshakes on a clock of their own, and what is written about them."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.log: list[dict[str, object]] = []
        self.audit: list[AuditLine] = []
        self.failed = FailedHandshakes(self, self.audit.append, lambda: self.now_s)  # type: ignore[arg-type]

    def warning(self, event: str, **fields: object) -> None:
        assert event == "handshake_failed"
        self.log.append(fields)

    def fail(self, host: str = "10.0.0.7", times: int = 1) -> None:
        for _ in range(times):
            self.failed.failed("kafka_listen", host, "wrong version number")

    def lines(self) -> list[AuditLine]:
        """Returns the new lines of the audit log."""
        before = len(self.audit)
        self.failed.tell()
        return self.audit[before:]


def test_a_failure_is_reported_once() -> None:
    reported = Reported()
    reported.fail()
    (line,) = reported.lines()
    assert (line.event, line.fields) == (
        "handshake_failed",
        {"listener": "kafka_listen", "host": "10.0.0.7", "reason": "wrong version number", "times": 1},
    )
    assert reported.lines() == []
    assert [line["address"] for line in reported.log] == ["10.0.0.7"]


def test_failures_are_reported_together() -> None:
    """Failures of one address share a line, and so do those of all addresses beyond the limit."""
    reported = Reported()
    reported.fail(times=5)
    (line,) = reported.lines()
    assert line.fields["times"] == 5
    for number in range(MAX_HOSTS + 30):
        reported.fail(f"10.0.1.{number}")
    lines = reported.lines()
    assert len(lines) == MAX_HOSTS + 1
    assert lines[-1].fields["host"] == OTHERS and lines[-1].fields["times"] == 30
    assert len(reported.log) == 1
    reported.now_s += LOG_AGAIN_S
    reported.fail()
    reported.lines()
    assert [line["times"] for line in reported.log] == [5, MAX_HOSTS + 31]


def test_every_failure_has_a_reason() -> None:
    """Every failure has a reason, also the error of a reset connection, which has no text."""
    assert reason_of(ConnectionAbortedError()) == "ConnectionAbortedError"
    assert reason_of(ssl.SSLError(1, "wrong version number")) == "wrong version number"
