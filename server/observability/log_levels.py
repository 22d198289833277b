"""Levels of a node's loggers, which can be changed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LogLevels:
    """The lowest level that each logger writes.

    A logger without a level of its own has that of the closest package around it: ``server.groups`` that of ``server``,
    otherwise the level of all.

    Arguments:
        level: of all loggers.
    """

    def __init__(self, level: str = "info") -> None:
        self._given: Mapping[str, str] = {"": level}
        self._least: dict[str, int] = {}
        self._watching: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` after every change of the levels."""
        self._watching.append(changed)

    def follow(self, levels: Mapping[str, str]) -> None:
        """Replaces the levels.

        Arguments:
            levels: by logger; "" is the level of all.
        """
        self._given = dict(levels)
        self._least = {}
        for changed in self._watching:
            changed()

    def writes(self, logger: str, level: str) -> bool:
        """True if lines of a level are written for a logger."""
        least = self._least.get(logger)
        if least is None:
            least = self._least[logger] = LEVELS[self.level_of(logger)]
        return LEVELS[level] >= least

    def level_of(self, logger: str) -> str:
        """Returns the effective level of a logger."""
        while logger and logger not in self._given:
            logger = logger.rpartition(".")[0]
        return self._given[logger]
