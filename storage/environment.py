"""LMDB environment of a data directory: its lock, checks before it is mapped, databases and format.

Reads while the writer runs: LMDB readers see the last commit before they started and never wait for the writer, but
pages that an open reader might see cannot be reused. So every read here is a separate transaction that ends before the
call returns (``reading``); nothing returned refers into the map. The binding keeps a spare reader transaction and
renews it, so a short read costs no reader slot; ``MAX_READERS`` bounds concurrent ones (the node's thread, the storage
thread, metrics, backup).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import lmdb

from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError, DataDirectoryLockedError, FatalStorageError, StorageEngineError
from quorumlog.storage.meta_pages import DATA_FILE, WHAT_TO_DO
from quorumlog.storage.opening import examine
from quorumlog.storage.reading import LogReading
from quorumlog.storage.recheck_list import are_pages_suspect, keep_suspects, suspects
from quorumlog.storage.synced_files import sync_folder

MAP_SIZE_BYTES = 1 << 40
MAX_READERS = 64
LOCK_FILE = "LOCK"
#: Records, and the keys that verify passwords, must be readable only by the user that runs the node.
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
#: LMDB's engine 0.9: the binding also bundles a newer one with another file format, and would choose either.
LMDB_ENGINE = 0

#: Space for databases that later versions add: after a downgrade, this version can still open the environment.
MAX_DATABASES = 32

#: Exceptions by which the engine reports data that it would not have written. (Bad values: a key or node of impossible
#: size. A bad transaction: one that has found damage. A full cursor: a tree that continues below its leaves, in a
#: circle. Incompatible: a database's name that leads to something else.)
_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
)

EngineTransaction: TypeAlias = "lmdb.Transaction[bytes]"


class DirectoryLock:
    """Lock of a data directory for this process, held until it is closed or the process ends."""

    def __init__(self, data_dir: Path, *, create: bool) -> None:
        """Acquires the lock.

        Raises:
            DataDirectoryLockedError: another process, or another object in this one, has it.
        """
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        self._descriptor = os.open(data_dir / LOCK_FILE, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StorageEngineError(f"cannot lock {data_dir}: {error.strerror}") from error
            by = f" by process {holder}" if holder else ""
            raise DataDirectoryLockedError(
                f"data directory {data_dir} is in use{by}: stop that node, or use another directory for this one"
            ) from None
        if create:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Releases the directory. May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class EngineSource:
    """A transaction as a source of reads."""

    __slots__ = ("_databases", "_txn")

    def __init__(self, environment: Environment, txn: EngineTransaction) -> None:
        self._txn = txn
        self._databases = environment.databases

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""
        return self._txn.get(key, db=self._databases[database])

    def cursor(self, database: bytes) -> lmdb.Cursor[bytes]:
        """Returns a cursor without a position."""
        return self._txn.cursor(self._databases[database])


class Environment:
    """An open, locked and checked environment."""

    def __init__(
        self,
        data_dir: Path,
        *,
        map_size: int = MAP_SIZE_BYTES,
        may_set_aside: Callable[[int], bool] = lambda group: False,
        may_mend: bool = False,
    ) -> None:
        """Opens the environment, and creates it if the directory is new.

        Arguments:
            may_set_aside, may_mend: as for ``Storage``.
            map_size: address space in bytes, fixed for the life of the process; the file is sparse and grows on use.

        Raises:
            DataDirectoryLockedError: another process has the directory.
            DamageError: the file is not what was written.
            StorageError: the directory cannot be used, or is of a newer version.
        """
        self.data_dir = data_dir
        self.data_file = data_dir / DATA_FILE
        self.map_size = map_size
        self._may_set_aside, self._may_mend = may_set_aside, may_mend
        try:
            data_dir.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = DirectoryLock(data_dir, create=True)
            try:
                self._open()
            except BaseException:
                self._lock.close()
                raise
        except OSError as error:
            raise StorageEngineError(f"cannot use data directory {data_dir}: {error.strerror}") from error

    def _open(self) -> None:
        suspected = suspects(self.data_dir)
        self.found = examine(self.data_file, self._may_set_aside, suspected, may_mend=self._may_mend)
        if suspected or are_pages_suspect(self.data_dir):
            keep_suspects(self.data_dir, suspected.intersection(self.found.damage.replicas if self.found else ()))
        try:
            self.lmdb = lmdb.open(
                str(self.data_dir),
                map_size=self.map_size,
                mode=_FILE_MODE,
                subdir=True,
                metasync=True,
                sync=True,
                writemap=False,
                max_dbs=MAX_DATABASES,
                max_readers=MAX_READERS,
                max_spare_txns=4,
                lib_version=LMDB_ENGINE,
            )
        except lmdb.Error as error:
            raise self._refusal(error) from error
        try:
            self._open_databases()
        except lmdb.Error as error:
            self.lmdb.close()
            raise self._refusal(error) from error

    def _open_databases(self) -> None:
        if self.found is not None:
            self.databases = {name: self.lmdb.open_db(name, create=False) for name in rows.DATABASES}
            return
        with self.lmdb.begin(write=True) as txn:
            self.databases = {name: self.lmdb.open_db(name, txn=txn) for name in rows.DATABASES}
            body = rows.FORMAT.to_bytes(4, "little")
            row = rows.seal_row(rows.FORMAT_DB, rows.FORMAT_KEY, body)
            txn.put(rows.FORMAT_KEY, row, db=self.databases[rows.FORMAT_DB])
        for folder in (self.data_dir, self.data_dir.parent):
            sync_folder(folder)

    def _refusal(self, error: lmdb.Error) -> StorageEngineError:
        if isinstance(error, lmdb.MemoryError):
            return StorageEngineError(
                f"cannot map {self.map_size} bytes for {self.data_dir}: raise the limit of address space (ulimit -v)"
            )
        damage = self.damage(error)
        return damage or FatalStorageError(f"cannot use {self.data_file}: {error}; check the disk, then restart")

    def damage(self, error: lmdb.Error) -> DamageError | None:
        """Returns a report of damage that the engine found; None if ``error`` means something else."""
        if isinstance(error, _DAMAGE):
            return DamageError(f"{self.data_file} is damaged: LMDB says {error}; {WHAT_TO_DO}")
        return None

    @contextmanager
    def reading(self) -> Iterator[LogReading]:
        """Opens a short read transaction.

        Raises:
            DamageError: the engine itself found damage.
        """
        try:
            with self.lmdb.begin(buffers=False) as txn:
                yield LogReading(EngineSource(self, txn), self.data_dir)
        except lmdb.Error as error:
            raise self._refusal(error) from error

    def writing(self) -> EngineTransaction:
        """Returns a write transaction: a context manager that commits with an fsync, or aborts on an exception."""
        return self.lmdb.begin(write=True)

    def close(self) -> None:
        """Closes the environment and releases the directory."""
        self.lmdb.close()
        self._lock.close()
