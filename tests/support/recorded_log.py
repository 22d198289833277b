"""A log that tests can look at."""

from __future__ import annotations


class RecordedLog:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def named(self, logger: str) -> RecordedLog:
        return self

    @property
    def debugs(self) -> bool:
        return True
