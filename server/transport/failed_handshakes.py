"""Reports failed TLS handshakes in the log and in the audit log, with address and reason.

gRPC reports none to a program, so they are those of the listeners that use Python's ssl: the port for Kafka's clients
and the metrics page. A client can cause any number of failures. Therefore the audit log has one line per address and
second, and one for all addresses beyond ``MAX_HOSTS``; the log has one line a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.step.events import AuditLine

#: Interval for reporting failures (s).
TELL_EVERY_S = 1.0
#: Addresses reported separately in that interval.
MAX_HOSTS = 20
OTHERS = "(others)"
#: Minimum time between two lines in the log (s).
LOG_AGAIN_S = 60.0
MAX_REASON_LENGTH = 500


def reason_of(problem: Exception) -> str:
    """Returns why a handshake failed: the exception's text, or its type if it has none (as for a closed connection)."""
    return str(problem) or type(problem).__name__


@dataclass(slots=True)
class _Failed:
    """Failed connections of an address to a listener.

    Arguments:
        reason: of the last one.
    """

    reason: str
    times: int = 0


class FailedHandshakes:
    """Counts failed handshakes and reports them periodically.

    Arguments:
        audit: receives lines for the audit log.
        clock: in seconds.
    """

    def __init__(
        self, log: Log, audit: Callable[[AuditLine], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._audit = audit
        self._clock = clock
        self._failed: dict[tuple[str, str], _Failed] = {}
        self._log_again_s = -LOG_AGAIN_S
        self._unlogged = 0

    def failed(self, listener: str, host: str, reason: str) -> None:
        """Records a failed connection.

        Arguments:
            listener: name of the setting that configures the listener.
            host: the client's address.
        """
        key = (listener, host)
        if key not in self._failed and len(self._failed) >= MAX_HOSTS:
            key = (listener, OTHERS)
        known = self._failed.setdefault(key, _Failed(reason))
        known.reason = reason[:MAX_REASON_LENGTH]
        known.times += 1

    def tell(self) -> None:
        """Reports the failures since the last call."""
        failed, self._failed = self._failed, {}
        for (listener, host), each in failed.items():
            fields: dict[str, object] = {
                "listener": listener, "host": host, "reason": each.reason, "times": each.times
            }  # fmt: skip
            self._audit(AuditLine("handshake_failed", time.time_ns() // 1_000_000, fields))
            self._unlogged += each.times
            now = self._clock()
            if now >= self._log_again_s:
                self._log_again_s = now + LOG_AGAIN_S
                self._log.warning(
                    "handshake_failed", listener=listener, address=host, reason=each.reason, times=self._unlogged
                )
                self._unlogged = 0

    async def run(self) -> None:
        """Reports failures for as long as the node serves."""
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            self.tell()
