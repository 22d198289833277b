"""Structured logs on stderr: one line per event, as JSON or in readable form."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

import structlog

from quorumlog.server.observability.log_levels import LEVELS, LogLevels


class Log(Protocol):
    """A log of events with fields."""

    def debug(self, event: str, **fields: object) -> None:
        """Logs an event that helps to diagnose a fault."""

    def info(self, event: str, **fields: object) -> None:
        """Logs a normal event."""

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that may need an operator's attention."""

    def error(self, event: str, **fields: object) -> None:
        """Logs a failure."""

    def named(self, logger: str) -> Log:
        """Returns the log of a package, such as ``server.kafka``."""

    @property
    def debugs(self) -> bool:
        """True if lines of the level debug are written: their fields should not be computed otherwise."""


class NodeLog:
    """The log of one package of a node: writes the lines of at least the level of its logger.

    Arguments:
        write: writes a line of any level.
        levels: of all loggers.
        logger: the package, which lines of the level debug name.
    """

    def __init__(self, write: Any, levels: LogLevels, logger: str = "server.process") -> None:
        self._write = write
        self._levels = levels
        self._logger = logger

    def debug(self, event: str, **fields: object) -> None:
        """Logs an event that helps to diagnose a fault."""
        if self.debugs:
            self._write.debug(event, logger=self._logger, **fields)

    def info(self, event: str, **fields: object) -> None:
        """Logs a normal event."""
        if self._levels.writes(self._logger, "info"):
            self._write.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that may need an operator's attention."""
        if self._levels.writes(self._logger, "warning"):
            self._write.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        """Logs a failure."""
        self._write.error(event, **fields)

    def named(self, logger: str) -> NodeLog:
        """Returns the log of another package."""
        return NodeLog(self._write, self._levels, logger)

    @property
    def debugs(self) -> bool:
        """True if lines of the level debug are written."""
        return self._levels.writes(self._logger, "debug")

    def follow_levels(self, levels: Mapping[str, str]) -> None:
        """Changes the levels of the loggers, of this log and of all that it has returned."""
        self._levels.follow(levels)


#: gRPC raises this, and logs it as an error, when a client cancels a call at the moment it is answered. It is harmless,
#: and any client could fill the log with it.
_CLIENT_GAVE_UP = "ExecuteBatchError"


class _Forward(logging.Handler):
    """Writes the log records of libraries, including tracebacks, as one line each."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and type(record.exc_info[1]).__name__ == _CLIENT_GAVE_UP:
            return
        fields = {"source": record.name, "message": " ".join(record.getMessage().split())}
        if record.exc_info is not None and record.exc_info[1] is not None:
            fields["exception"] = repr(record.exc_info[1])
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        write("library_message", **fields)


def take_over_library_logs(log: Log) -> None:
    """Sends the log records of gRPC and other libraries to this log; they would write whole tracebacks to stderr."""
    logging.basicConfig(handlers=[_Forward(log)], level=logging.WARNING, force=True)


def open_log(level: str, form: str, node_id: int, stream: TextIO | None = None) -> NodeLog:
    """Returns the log of one node.

    Arguments:
        level: the lowest of ``LEVELS`` that is written, until others are set.
        form: "json", or "console" for readable lines: time, level, event, and then fields as key=value.
        stream: the output; stderr by default.
    """
    return NodeLog(wrapped("debug", form, stream).bind(node=node_id), LogLevels(level))


def wrapped(level: str, form: str, stream: TextIO | None = None) -> Any:
    """Returns a log that is not yet bound to a node; see :func:`open_log`."""
    rendered: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(default=str) if form == "json" else _ReadableLine()
    )
    return structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )


class _ReadableLine:
    """Renders the event first, then its fields: 2026-11-23T05:26:51.861458Z warning isr_shrunk node=1
    partition=orders-0."""

    def __init__(self) -> None:
        self._fields = structlog.processors.LogfmtRenderer(bool_as_flag=False)

    def __call__(self, logger: object, method: str, fields: structlog.typing.EventDict) -> str:
        head = f"{fields.pop('time')} {fields.pop('level')} {fields.pop('event')}"
        rest = self._fields(logger, method, fields)
        return f"{head} {rest}" if rest else head
