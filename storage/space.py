"""Space of the storage: used, still available, and the meaning of a failed commit."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

import lmdb

from quorumlog.storage import rows
from quorumlog.storage.environment import Environment
from quorumlog.storage.interface import DiskFullError, FatalStorageError, StorageEngineError
from quorumlog.storage.meta_pages import META_PAGES, read_meta
from quorumlog.storage.reserve import Reserve
from quorumlog.storage.transaction import Space

#: Upper bound on what a commit writes beside entries and slices: changed tree pages of all databases, and the free
#: list.
COMMIT_OVERHEAD_BYTES = 256 * 1024

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Room:
    """Space of one environment."""

    def __init__(self, environment: Environment, reserve_bytes: int) -> None:
        """Creates the reserve.

        Arguments:
            reserve_bytes: held back for the moment when the disk is full (see ``reserve``).
        """
        self._environment = environment
        self._reserve = Reserve(environment.data_dir, reserve_bytes)
        self._page_bytes = environment.lmdb.stat()["psize"]

    def space(self) -> Space:
        """Returns the current use. Cheap: counts that LMDB keeps, and one statvfs."""
        used, extent = self._pages()
        growth = max(0, self._growth_bytes() - self._reserve.missing_bytes)
        return Space(used * self._page_bytes, (extent - used) * self._page_bytes + growth)

    def require(self, payload_bytes: int) -> None:
        """Refuses a write that would not fit, keeping space for votes and for the deletions that free space.

        Raises:
            DiskFullError: too little space is left.
        """
        needed = _needed(payload_bytes)
        if self._growth_bytes() < needed and self._growth_bytes() + self._free_in_file() < needed:
            raise self._disk_full()

    def make(self, payload_bytes: int) -> bool:
        """Releases the reserve after a commit found too little space. True if there may be enough now."""
        released = self._reserve.release()
        # LMDB reuses pages only from the second commit after the one that freed them: a large transaction that is
        # retried repeatedly would wait forever for pages that a deletion has freed.
        if self._free_in_file() >= payload_bytes:
            with contextlib.suppress(lmdb.Error), self._environment.writing() as txn:
                database = self._environment.databases[rows.FORMAT_DB]
                row = txn.get(rows.FORMAT_KEY, db=database)
                assert row is not None
                txn.put(rows.FORMAT_KEY, row, db=database)
                return True
        return released

    def restore_reserve(self) -> None:
        """Restores a released reserve if there is space. Otherwise costs nothing."""
        if self._reserve.missing_bytes:
            self._reserve.restore(self._growth_bytes())

    def _free_in_file(self) -> int:
        """Returns the bytes of free pages in the file, including those freed just now."""
        used, extent = self._pages()
        return (extent - used) * self._page_bytes

    def failed_commit(self, error: lmdb.Error, payload_bytes: int) -> StorageEngineError:
        """Converts an error of LMDB after a commit was aborted."""
        if isinstance(error, lmdb.MapFullError):
            return DiskFullError(
                f"{self._environment.data_dir} has reached its map size of {self._environment.map_size} bytes:"
                " lower the retention of topics, or restart with a larger map size"
            )
        # A panic follows a meta page that could not be written: that is an error of the disk, not damage.
        damage = self._environment.damage(error)
        if damage is not None and not isinstance(error, lmdb.PanicError):
            return damage
        code = getattr(error, "code", 0)  # errors of the binding itself have none
        if code in _NO_ROOM or (code == errno.EIO and self._was_cut_short(payload_bytes)):
            return self._disk_full()
        # LMDB continues after a failed sync as if the lost pages were on disk: the process must stop.
        return FatalStorageError(f"cannot write {self._environment.data_file}: {error}; check the disk, then restart")

    def _was_cut_short(self, payload_bytes: int) -> bool:
        """True if an I/O error only means that a full disk accepted part of a write, which LMDB reports as EIO.

        Continuing is safe if no meta page has been written: nothing refers to the part of the transaction that reached
        the disk,
        and a retry writes all of it again. If a disk error happened at the same moment, the same would hold.
        """
        return (
            self._growth_bytes() < _needed(payload_bytes)
            and read_meta(self._environment.data_file).transaction == self._environment.lmdb.info()["last_txnid"]
        )

    def _pages(self) -> tuple[int, int]:
        """Returns the number of pages in use, and of pages up to the end of the file's used part."""
        environment = self._environment.lmdb
        main = environment.stat()
        used = META_PAGES + main["branch_pages"] + main["leaf_pages"] + main["overflow_pages"]
        with environment.begin() as txn:
            for database in self._environment.databases.values():
                stat = txn.stat(database)
                used += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            return used, max(used, environment.info()["last_pgno"] + 1)

    def _growth_bytes(self) -> int:
        """Returns how many bytes the file can still grow by: limited by the disk, the map, and ``ulimit -f``."""
        disk = os.statvfs(self._environment.data_dir)
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = self._environment.map_size
        if limit != resource.RLIM_INFINITY:
            most = min(most, limit)
        extent = (self._environment.lmdb.info()["last_pgno"] + 1) * self._page_bytes
        return max(0, min(disk.f_bavail * disk.f_frsize, most - extent))

    def _disk_full(self) -> DiskFullError:
        return DiskFullError(
            f"no space left for {self._environment.data_file}: free some space on its disk, or"
            " lower the retention of topics"
        )


def _needed(payload_bytes: int) -> int:
    return payload_bytes + payload_bytes // 4 + COMMIT_OVERHEAD_BYTES
