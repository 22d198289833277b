"""Small files beside the database whose content and names survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(file: Path, line: str) -> None:
    """Replaces a file by one with a single line: after a crash it has the old or the new one, complete.

    Raises:
        OSError: it cannot be written.
    """
    new = file.with_name(f"{file.name}.new")
    with new.open("w") as written:
        written.write(f"{line}\n")
        written.flush()
        os.fsync(written.fileno())
    os.replace(new, file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: an fsync of a file does not sync the folder with its name.

    Raises:
        OSError: it cannot be synced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
