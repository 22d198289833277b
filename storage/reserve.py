"""Disk space held back for the moment when others have filled the disk.

A node without a byte of room cannot store a vote, so it cannot elect or follow a leader, and cannot delete what would
make room. The early refusal of appends keeps room from our own writes, not from another program's. So a file of some
MiB lies beside the data; when a commit finds no room the file goes, and comes back once there is room again.
"""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_FILE = "RESERVE"
RESERVE_BYTES = 16 << 20
#: A small disk gives this part of its room.
_SHARE = 4
#: It is taken again once the disk has this many times as much to spare.
_RESTORE_FACTOR = 2


class Reserve:
    """The reserve of one data directory. The storage thread's, but for reading ``missing_bytes``."""

    def __init__(self, data_dir: Path, wanted_bytes: int) -> None:
        """Takes the reserve, or finds it taken.

        Arguments:
            wanted_bytes: 0 for none.
        """
        self._file = data_dir / RESERVE_FILE
        self._held_bytes = 0
        #: What has been given up and will be taken again: not to be counted as free.
        self.missing_bytes = 0
        if not wanted_bytes:
            self._file.unlink(missing_ok=True)
        elif self._file.exists() and self._file.stat().st_size:
            self._held_bytes = self._file.stat().st_size
        else:
            disk = os.statvfs(data_dir)
            self._take(min(wanted_bytes, disk.f_bavail * disk.f_frsize // _SHARE))

    def restore(self, free_bytes: int) -> None:
        """Takes what was given up, if there is enough to spare."""
        if self.missing_bytes and free_bytes >= _RESTORE_FACTOR * self.missing_bytes:
            self._take(self.missing_bytes)

    def release(self) -> bool:
        """Gives the reserve to the disk; False when there is none to give."""
        if not self._held_bytes:
            return False
        self._file.unlink(missing_ok=True)
        self.missing_bytes, self._held_bytes = self._held_bytes, 0
        return True

    def _take(self, size_bytes: int) -> None:
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(descriptor, 0, max(1, size_bytes))
            finally:
                os.close(descriptor)
        except OSError:  # no room after all, or no such thing on this file system: do without
            self._file.unlink(missing_ok=True)
        else:
            self._held_bytes, self.missing_bytes = size_bytes, 0
