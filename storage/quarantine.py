"""Moves damaged storage out of the way, where somebody has said so. Nothing is ever deleted.

What was moved is known by its directory id ever after: a node that begins empty may say of that directory, and of no
other, that it has given it up itself. The id stands in a file beside the data, for the data may be past reading.
"""

from __future__ import annotations

import os
from pathlib import Path

from quorumlog.storage.crash_marker import FILE_NAME as LAST_WORDS
from quorumlog.storage.environment import DirectoryLock
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.recheck_list import FILE_NAME as SUSPECTS

#: Says whose data are beside it: a line with the directory id.
ID_FILE = "DIRECTORY_ID"
_PREFIX = "damaged-"
#: Folders that stay in a data directory. A disk that has broken its data so often will do it again.
MAX_MOVED_ASIDE = 8
#: A file with more bytes was not written here.
_MAX_ID_BYTES = 200


def keep_directory_id(data_dir: Path, directory_id: str) -> bool:
    """Writes down whose data a directory has, unless that is there already. False: it cannot be written now; without it
    somebody has to say by hand that the directory is lost, if it ever is."""
    try:
        if _id_in(data_dir) != directory_id:
            _write_synced(data_dir, directory_id)
    except OSError:
        return False
    return True


def moved_aside(data_dir: Path) -> frozenset[str]:
    """The ids of the data directories whose data were moved aside here, as far as they are known."""
    folders = [place for place in data_dir.glob(f"{_PREFIX}*") if (place / DATA_FILE).exists()]
    return frozenset(filter(None, map(_id_in, folders)))


def move_aside(data_dir: Path) -> Path:
    """Gives a data directory's data another name, so that the next opening finds nothing.

    Returns:
        Where they are: a folder beside them.

    Raises:
        StorageEngineError: a process has the directory, the data cannot be moved, or there are ``MAX_MOVED_ASIDE``
            folders already.
    """
    lock = DirectoryLock(data_dir, create=True)
    try:
        places = (data_dir / f"{_PREFIX}{number}" for number in range(1, MAX_MOVED_ASIDE + 1))
        place = next((place for place in places if not place.exists()), None)
        if place is None:
            raise StorageEngineError(
                f"the damaged data in {data_dir} are not moved aside: {MAX_MOVED_ASIDE} folders {_PREFIX}N are there"
                f" from before; replace the disk, or delete those that nobody needs"
            )
        place.mkdir(0o700)
        # The id before the data: a crash between leaves a folder without data, which says nothing.
        directory_id = _id_in(data_dir)
        if directory_id:
            _write_synced(place, directory_id)
        # The data before the rest: what a crash leaves of the others means nothing without.
        for name in (DATA_FILE, "lock.mdb", SUSPECTS, LAST_WORDS):
            if (data_dir / name).exists():
                os.rename(data_dir / name, place / name)
        _sync(place)
        _sync(data_dir)
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


def _write_synced(folder: Path, directory_id: str) -> None:
    new = folder / f"{ID_FILE}.new"
    with new.open("w") as file:
        file.write(f"{directory_id}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, folder / ID_FILE)
    _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
