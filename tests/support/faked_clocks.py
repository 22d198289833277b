"""Nodes whose wall clocks a test sets, each by a file that libfaketime reads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster

_FOLDERS = ("/usr/lib", "/usr/local/lib")
#: The build for programs with threads.
_LIBRARIES = [found for folder in _FOLDERS for found in sorted(Path(folder).glob("**/libfaketimeMT.so.1"))]
needs_faketime = pytest.mark.skipif(
    not _LIBRARIES, reason="libfaketime is not installed (Debian: apt-get install faketime)"
)
#: The monotonic clock must remain the machine's: timeouts, elections and waits count on it.
_OPTIONS = {
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    "FAKETIME_NO_CACHE": "1",
    "NO_FAKE_STAT": "1",
}


class FakedClocks:
    """The wall clocks of a cluster's nodes. Each node is restarted once, under libfaketime.

    Arguments:
        folder: holds the files with the offsets.
        environment: sets the variables of the nodes that start.
    """

    def __init__(self, cluster: LocalCluster, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self._folder = folder
        for name, value in {"LD_PRELOAD": str(_LIBRARIES[0]), **_OPTIONS}.items():
            environment.setenv(name, value)
        for node in cluster.node_ids:
            self.set(node, timedelta(0))
            environment.setenv("FAKETIME_TIMESTAMP_FILE", str(self._file(node)))
            cluster.stop(node)
            cluster.start(node)
        environment.delenv("LD_PRELOAD")
        cluster.wait_ready()

    def set(self, node: int, ahead: timedelta) -> None:
        """Sets a node's wall clock, relative to this machine's."""
        draft = self._folder / "draft"
        draft.write_text(f"{ahead.total_seconds():+.0f}\n")
        draft.replace(self._file(node))  # At once: the node reads the file whenever it looks at its clock.

    def _file(self, node: int) -> Path:
        return self._folder / f"node-{node}"
