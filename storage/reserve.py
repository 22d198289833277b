"""Disk space held back for the moment when other programs have filled the disk.

A node without free disk space cannot store a vote, so it cannot elect or follow a leader, and cannot delete what would
free space. The early refusal of appends protects from our own writes, not from another program's. So a file of some MiB
is kept beside the data; when a commit finds no space it is deleted, and it is created again once there is space.
"""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_FILE = "RESERVE"
RESERVE_BYTES = 16 << 20
#: A small disk provides at most this fraction of its free space (one in four).
_SHARE = 4
#: It is restored once this many times its size is free.
_RESTORE_FACTOR = 2


class Reserve:
    """The reserve of one data directory. Used by the storage thread only, except for reading ``missing_bytes``."""

    def __init__(self, data_dir: Path, wanted_bytes: int) -> None:
        """Creates the reserve, unless it exists.

        Arguments:
            wanted_bytes: 0 for none.
        """
        self._file = data_dir / RESERVE_FILE
        self._held_bytes = 0
        #: Released space that will be taken again, and must not be counted as free.
        self.missing_bytes = 0
        if not wanted_bytes:
            self._file.unlink(missing_ok=True)
        elif self._file.exists() and self._file.stat().st_size:
            self._held_bytes = self._file.stat().st_size
        else:
            disk = os.statvfs(data_dir)
            self._take(min(wanted_bytes, disk.f_bavail * disk.f_frsize // _SHARE))

    def restore(self, free_bytes: int) -> None:
        """Takes released space again, if enough is free."""
        if self.missing_bytes and free_bytes >= _RESTORE_FACTOR * self.missing_bytes:
            self._take(self.missing_bytes)

    def release(self) -> bool:
        """Releases the reserve; False if it was released already."""
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
        except OSError:  # no space after all, or not supported by this file system: do without
            self._file.unlink(missing_ok=True)
        else:
            self._held_bytes, self.missing_bytes = size_bytes, 0
