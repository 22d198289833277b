"""Audit log: JSON, one object per line, appended to a separate file by a separate thread.

A file that log rotation has moved away is created again. Lines that arrive faster than the disk accepts them are
dropped and counted: a node continues without its audit log, and reports that.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
from datetime import UTC, datetime
from pathlib import Path

from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.events import AuditLine

#: Lines that wait for the disk.
MOST_WAITING = 10_000


class AuditLogError(Exception):
    """Raised if the audit log cannot be written. The message is one line."""


class _AuditFile(logging.handlers.WatchedFileHandler):
    """The file. A write error is reported once, until a write succeeds."""

    def __init__(self, path: Path, log: Log) -> None:
        super().__init__(path, encoding="utf-8")
        self._log = log
        self._is_broken = False
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Appends a line."""
        try:
            self.reopenIfNeeded()
            if self.stream is None:
                self.stream = self._open()
            self.stream.write(f"{record.getMessage()}\n")
            self.flush()
        except (OSError, ValueError) as problem:
            if not self._is_broken:
                self._is_broken = True
                self._log.error("audit_log_failed", reason=str(problem))
            return
        self._is_broken = False


class AuditLog:
    """Writes audit lines, and can be switched off and on.

    Arguments:
        path: of the file; created if it is missing, readable only by its owner.
        node_id: of this node.
        log: reports lost lines.
        is_on: False: nothing is written, and the file is not opened, until it is switched on.

    Attributes:
        is_on: False if it is switched off.

    Raises:
        AuditLogError: the file cannot be opened.
    """

    def __init__(self, path: Path, node_id: int, log: Log, *, is_on: bool = True) -> None:
        self._path = path
        self._node_id = node_id
        self._log = log
        self._lost = 0
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(MOST_WAITING)
        self._target: _AuditFile | None = None
        self._listener: logging.handlers.QueueListener | None = None
        self.is_on = is_on
        if is_on:
            self._open()

    def _open(self) -> None:
        try:
            self._path.touch(mode=0o600, exist_ok=True)
            self._target = _AuditFile(self._path, self._log)
        except OSError as problem:
            reason = f"audit_log = {self._path}: cannot write the audit log: {problem.strerror}"
            raise AuditLogError(reason) from None
        self._listener = logging.handlers.QueueListener(self._lines, self._target)
        self._listener.start()

    def follow_settings(self, values: DynamicValues) -> None:
        """Switches it on or off. If the file cannot be opened, that is logged, and nothing is written."""
        self.is_on = values.audited
        if self.is_on and self._listener is None:
            try:
                self._open()
            except AuditLogError as problem:
                self._log.error("audit_log_failed", reason=str(problem))

    def write(self, line: AuditLine) -> None:
        """Queues a line, if the file is open. Never blocks."""
        if self._listener is None:
            return
        time = datetime.fromtimestamp(line.wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
        entry = {"time": time, "event": line.event, "node": self._node_id, **line.fields}
        if self._lost:
            entry["lines_lost_before"] = self._lost
        record = logging.makeLogRecord({"msg": json.dumps(entry, default=str)})
        try:
            self._lines.put_nowait(record)
        except queue.Full:
            if not self._lost:
                self._log.error("audit_log_behind", waiting=MOST_WAITING)
            self._lost += 1
        else:
            self._lost = 0

    def close(self) -> None:
        """Writes the queued lines, and closes the file."""
        if self._listener is not None and self._target is not None:
            self._listener.stop()
            self._target.close()
