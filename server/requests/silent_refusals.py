"""Batches that are refused without an answer (``acks=0``): the operator is told, because the client never is."""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.server.events import EventLog
from quorumlog.v1 import errors_pb2

#: Refusals for the same reason are told together in one line, once in this time (µs).
TELL_EVERY_US = 60_000_000


@dataclass(slots=True)
class _Reason:
    quiet_until: int = 0
    untold: int = 0


class SilentRefusals:
    """Reports refusals that no client is answered: the first of each reason at once, further ones together."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._reasons: dict[int, _Reason] = {}

    def note(self, now: int, problem: errors_pb2.Error) -> None:
        """A batch was refused."""
        reason = self._reasons.setdefault(problem.code, _Reason())
        reason.untold += 1
        if now < reason.quiet_until:
            return
        self._log(
            "warning",
            "unanswered_produce_refused",
            error=errors_pb2.ErrorCode.Name(problem.code),
            batches=reason.untold,
            reason=problem.message,
        )
        reason.untold, reason.quiet_until = 0, now + TELL_EVERY_US
