"""A client's view of a killed server: when its records were acknowledged, before and after."""

from __future__ import annotations

import sys
import threading
import time

#: Between two records.
EVERY_S = 0.005
#: Acknowledgements before the killer is notified that all is well, and after the first record that was sent later.
SETTLED_S = 2.0
#: A peer that acknowledges nothing for this long after the kill has failed.
LIMIT_S = 90.0


class KillWatch:
    """Times of acknowledgements, in ns of the machine's monotonic clock.

    It writes ``ready`` to standard output once acknowledgements have come for a while, and takes a line on standard
    input as the news that a server was killed. The load continues until :meth:`over`.
    """

    def __init__(self) -> None:
        self._acknowledged: list[int] = []
        self._failed = 0
        self._told = False
        self._killed_ns = 0
        self._back_ns = 0
        self._ear = threading.Thread(target=self._listen, daemon=True)

    def acknowledged(self, sent_ns: int) -> None:
        """Notes that a record has been acknowledged now."""
        now = time.monotonic_ns()
        self._acknowledged.append(now)
        if self._killed_ns and sent_ns > self._killed_ns and not self._back_ns:
            self._back_ns = now
        if not self._told and now - self._acknowledged[0] > SETTLED_S * 1e9:
            self._told = True
            self._ear.start()
            print("ready", flush=True)

    def failed(self) -> None:
        """Notes that a record was given up."""
        self._failed += 1

    def over(self) -> bool:
        """True if the load may end: acknowledged again for a while, or not for too long."""
        now = time.monotonic_ns()
        if self._back_ns:
            return now - self._back_ns > SETTLED_S * 1e9
        return bool(self._killed_ns) and now - self._killed_ns > LIMIT_S * 1e9

    def result(self) -> dict[str, object]:
        """Returns the times of acknowledgements (ns), and what failed."""
        return {"acknowledged_ns": sorted(self._acknowledged), "failed": self._failed, "back": bool(self._back_ns)}

    def _listen(self) -> None:
        if sys.stdin.readline():
            self._killed_ns = time.monotonic_ns()
