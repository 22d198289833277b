"""Moves damaged storage aside, if an operator has requested it. Nothing is ever deleted.

Moved data remain identified by their directory id: a node that restarts empty may report that directory, and no other,
as given up. The id is in a file beside the data, because the data may be unreadable.
"""

from __future__ import annotations

import os
from pathlib import Path

from quorumlog.storage.crash_marker import FILE_NAME as LAST_WORDS
from quorumlog.storage.environment import DirectoryLock
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.recheck_list import FILE_NAME as SUSPECTS
from quorumlog.storage.synced_files import sync_folder, write_synced

#: File beside the data with one line: their directory id.
ID_FILE = "DIRECTORY_ID"
_PREFIX = "damaged-"
#: Maximum number of such folders in a data directory. A disk that has damaged its data this often will do it again.
MAX_MOVED_ASIDE = 8
#: Larger files were not written here.
_MAX_ID_BYTES = 200


def keep_directory_id(data_dir: Path, directory_id: str) -> bool:
    """Stores the id of a directory's data, unless it is stored already.

    Returns:
        False if it cannot be written now; without it, an operator has to report a lost directory by hand.
    """
    try:
        if _id_in(data_dir) != directory_id:
            write_synced(data_dir / ID_FILE, directory_id)
    except OSError:
        return False
    return True


def moved_aside(data_dir: Path) -> frozenset[str]:
    """Returns the ids of the data that were moved aside in this directory, as far as they are known."""
    folders = [place for place in data_dir.glob(f"{_PREFIX}*") if (place / DATA_FILE).exists()]
    return frozenset(filter(None, map(_id_in, folders)))


def move_aside(data_dir: Path) -> Path:
    """Renames a data directory's data, so that the next opening finds nothing.

    Returns:
        The folder with the data, in the same directory.

    Raises:
        StorageEngineError: a process has the directory, the data cannot be moved, or ``MAX_MOVED_ASIDE`` folders exist.
    """
    lock = DirectoryLock(data_dir, create=True)
    try:
        places = (data_dir / f"{_PREFIX}{number}" for number in range(1, MAX_MOVED_ASIDE + 1))
        place = next((place for place in places if not place.exists()), None)
        if place is None:
            raise StorageEngineError(
                f"the damaged data in {data_dir} are not moved aside: {MAX_MOVED_ASIDE} folders {_PREFIX}N exist"
                f" already; replace the disk, or delete those that are no longer needed"
            )
        place.mkdir(0o700)
        # The id before the data: a crash in between leaves a folder without data, which is ignored.
        directory_id = _id_in(data_dir)
        if directory_id:
            write_synced(place / ID_FILE, directory_id)
        # The data before the rest: after a crash, the other files have no meaning without them.
        for name in (DATA_FILE, "lock.mdb", SUSPECTS, LAST_WORDS):
            if (data_dir / name).exists():
                os.rename(data_dir / name, place / name)
        sync_folder(place)
        sync_folder(data_dir)
        return place
    except OSError as error:
        raise StorageEngineError(f"cannot move the damaged data in {data_dir} aside: {error.strerror}") from error
    finally:
        lock.close()


def _id_in(folder: Path) -> str:
    try:
        with (folder / ID_FILE).open("rb") as file:
            return file.read(_MAX_ID_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
