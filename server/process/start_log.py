"""Messages before the log is open, or of a node that does not start, in the configured format."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO, cast

from quorumlog.server.config.settings import ENV_PREFIX
from quorumlog.server.observability.logging_setup import Log, wrapped

_SETTING = "log_format"
_JSON = "json"


def chosen_format(flags: Mapping[str, object], config: Path | None) -> str:
    """Returns the configured log format, even if the settings cannot be read as a whole.

    Arguments:
        flags, config: as in :func:`quorumlog.server.config.settings.load`.
    """
    chosen = flags.get(_SETTING) or os.environ.get(ENV_PREFIX + _SETTING.upper())
    if chosen is None and config is not None:
        try:
            chosen = tomllib.loads(config.read_text()).get(_SETTING)
        except (OSError, ValueError):
            chosen = None
    return _JSON if chosen == _JSON else "console"


class StartLog:
    """Writes startup messages, one line each: as text, or as an object if the log is JSON.

    Arguments:
        form: "json" or "console".
        node_id: if known.
        stream: to write to; stderr by default.
    """

    def __init__(self, form: str, node_id: int | None = None, stream: TextIO | None = None) -> None:
        known = {} if node_id is None else {"node": node_id}
        self._log = cast(Log, wrapped("info", form, stream).bind(**known)) if form == _JSON else None
        self._stream = stream

    def warning(self, text: str) -> None:
        """Reports a problem despite which the node starts."""
        if self._log is None:
            self._say("warning", text)
        else:
            self._log.warning("start_warning", message=_one_line(text))

    def error(self, text: str) -> None:
        """Reports that the node does not start, or has stopped."""
        if self._log is None:
            self._say("error", text)
        else:
            self._log.error("node_failed", message=_one_line(text))

    def _say(self, level: str, text: str) -> None:
        print(f"quorumlog: {level}: {_one_line(text)}", file=self._stream or sys.stderr, flush=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())
