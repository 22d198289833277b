"""Damage that was found while the node ran, stored beside the data for the next opening to check.

For a Raft group's rows, the group is stored; for pages, only that some are damaged, whatever they belong to. It is not
stored in the data: the engine that has just found damage is not used further.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_NAME = "SUSPECTS"
#: Larger files were not written here.
_MAX_BYTES = 1 << 20
_PAGES = b"pages"


def suspects(data_dir: Path) -> set[int]:
    """Returns the suspected Raft groups. Unreadable lines are ignored."""
    return {int(line) for line in _lines(data_dir) if line.isdigit() and len(line) <= 10}


def are_pages_suspect(data_dir: Path) -> bool:
    """True if damage was found that belongs to no Raft group: to pages, or to the order of rows in them."""
    return _PAGES in _lines(data_dir)


def suspect(data_dir: Path, group: int | None) -> None:
    """Records a Raft group for the next opening; with None, all pages.

    If that cannot be written, the caller continues: the damage will be found again.
    """
    line = _PAGES if group is None else b"%d" % group
    if line in _lines(data_dir):
        return
    with contextlib.suppress(OSError), (data_dir / FILE_NAME).open("ab") as file:
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(data_dir: Path) -> list[bytes]:
    try:
        with (data_dir / FILE_NAME).open("rb") as file:
            return file.read(_MAX_BYTES).split()
    except OSError:
        return []


def keep_suspects(data_dir: Path, groups: set[int]) -> None:
    """Removes all but these: the others were checked and are intact, or removed."""
    path = data_dir / FILE_NAME
    if groups == suspects(data_dir) and not are_pages_suspect(data_dir):
        return
    if not groups:
        path.unlink(missing_ok=True)
        return
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(b"%d\n" % group for group in sorted(groups)))
    os.replace(new, path)
