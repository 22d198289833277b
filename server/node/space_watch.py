"""Refuses appends when the disk is nearly full, so that deletions always find pages to write.

Refusing starts above one level of use and ends below a lower one; in between nothing changes.
"""

from __future__ import annotations

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.step.events import EventLog, LogLevel
from quorumlog.server.step.wire_errors import error
from quorumlog.storage.interface import StorageReader
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

CHECK_INTERVAL_US = 1_000_000
#: Under load the use is checked this often, because a disk can fill noticeably within a second.
BUSY_CHECK_INTERVAL_US = 50_000


class SpaceWatch:
    """Checks the storage's use once a second, and more often after writes.

    Arguments:
        log: reports when refusing starts and ends.
    """

    def __init__(self, reader: StorageReader, limits: NodeLimits, now: int, log: EventLog) -> None:
        self._reader = reader
        self._limits = limits
        self._log = log
        self.last = reader.space()
        self.next_deadline = now + CHECK_INTERVAL_US
        self._refusing = False
        self._judge()

    def wrote(self, now: int) -> None:
        """Checks the use after a transaction, if the last check is not recent."""
        if now >= self.next_deadline - CHECK_INTERVAL_US + BUSY_CHECK_INTERVAL_US:
            self.check(now)

    def check(self, now: int) -> None:
        """Checks the use."""
        self.next_deadline = now + CHECK_INTERVAL_US
        self.last = self._reader.space()
        self._judge()

    def failed(self) -> None:
        """Refuses appends after a transaction failed for lack of space."""
        self._turn(refusing=True)

    def refusal(self) -> errors_pb2.Error | None:
        """Returns the error while appends are refused; None while they are accepted."""
        if not self._refusing:
            return None
        return error(
            ErrorCode.STORAGE_ERROR,
            f"the node's disk is nearly full ({self.last.free_bytes >> 20} MiB free); free space on it and try again:"
            f" appends are accepted again with over {self._resumed_above >> 20} MiB free, below"
            f" {self._limits.storage_resume_below:.0%} in use".replace("%", " %"),
        )

    @property
    def _used_bytes(self) -> int:
        """Bytes in use by all workers that share the disk, as if each had as many. Otherwise each of four would accept
        appends until the disk is nearly full, because it can tell only its own quarter."""
        return self.last.used_bytes * self._limits.storage_sharers

    @property
    def _resumed_above(self) -> int:
        """Free bytes required to accept appends again.

        Twice the reserve, so that a small write does not stop appends at once. On a small disk, which may never
        have that much free, it is the reserve plus the part of the disk between the two levels of use.
        """
        limits = self._limits
        between = (limits.storage_refuse_above - limits.storage_resume_below) * (
            self._used_bytes + self.last.free_bytes
        )
        return limits.storage_reserve_bytes + min(limits.storage_reserve_bytes, round(between))

    def _judge(self) -> None:
        used, free = self._used_bytes, self.last.free_bytes
        share = used / max(1, used + free)
        if share > self._limits.storage_refuse_above or free < self._limits.storage_reserve_bytes:
            self._turn(refusing=True)
        elif share < self._limits.storage_resume_below and free > self._resumed_above:
            self._turn(refusing=False)

    def _turn(self, *, refusing: bool) -> None:
        if refusing == self._refusing:
            return
        self._refusing = refusing
        level: LogLevel = "warning" if refusing else "info"
        event = "appends_refused" if refusing else "appends_taken_again"
        self._log(level, event, used_mib=self.last.used_bytes >> 20, free_mib=self.last.free_bytes >> 20)
