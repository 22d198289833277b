"""Moves damaged storage out of the way, where somebody has said so. Nothing is ever deleted."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from quorumlog.storage.environment import DirectoryLock
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.last_words import FILE_NAME as LAST_WORDS
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.suspects import FILE_NAME as SUSPECTS


def move_aside(data_dir: Path) -> Path:
    """Gives a data directory's data another name, so that the next opening finds nothing.

    Returns:
        Where they are: a folder beside them.

    Raises:
        StorageEngineError: a process has the directory, or the data cannot be moved.
    """
    lock = DirectoryLock(data_dir, create=True)
    try:
        for number in itertools.count(1):
            place = data_dir / f"damaged-{number}"
            if not place.exists():
                break
        place.mkdir()
        # The data first: what a crash leaves of the others means nothing without.
        for name in (DATA_FILE, "lock.mdb", SUSPECTS, LAST_WORDS):
            if (data_dir / name).exists():
                os.rename(data_dir / name, place / name)
        for folder in (place, data_dir):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return place
    except OSError as error:
        raise StorageEngineError(f"cannot move the damaged data in {data_dir} aside: {error.strerror}") from error
    finally:
        lock.close()
