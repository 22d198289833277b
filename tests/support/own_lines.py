"""The lines that clients log in the thread of a test."""

from __future__ import annotations

import threading

import pytest


def own_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The clients' lines of this thread. Those that earlier tests have left to a thread of their own may have something
    to say in the meantime, and so may asyncio, of what is collected as garbage just now."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("quorumlog.") and record.thread == threading.get_ident()
    ]
