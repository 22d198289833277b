"""What the console itself costs: a page that says what it does to the machine can be left open."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from quorumlog.console.picture import Thing

#: ``ru_maxrss`` is in KiB, on macOS in bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_STATUS = Path("/proc/self/status")


class OwnLoad:
    """The share of a core since the look before, and the most memory so far."""

    def __init__(self) -> None:
        self._cpu_s = time.process_time()
        self._at_s = time.monotonic()

    def look(self, pages: int) -> Thing:
        """The load, for the picture.

        Arguments:
            pages: how many are open.
        """
        cpu_s, at_s = time.process_time(), time.monotonic()
        share = (cpu_s - self._cpu_s) / max(0.001, at_s - self._at_s)
        self._cpu_s, self._at_s = cpu_s, at_s
        # Rounded: a figure that never stands still would be news all the time.
        return {"pages": pages, "cpu_percent": round(share * 100), "memory_mb": round(_most_memory() / 1e6 / 5) * 5}


def _most_memory() -> int:
    """The most that this process had resident, in bytes. What the kernel counts for ``getrusage`` begins with what the
    process had that started it."""
    try:
        peak = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
