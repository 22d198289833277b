"""Damage that was found while the node ran, kept beside the data: the next opening looks at all of it.

Of a Raft group's rows, the group is kept; of pages, that there are some, whose ever they are.

Not in the data: the engine that has just come upon damage is asked for nothing more.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_NAME = "SUSPECTS"
#: A file with more than these was not written here.
_MAX_BYTES = 1 << 20
_PAGES = b"pages"


def suspects(data_dir: Path) -> set[int]:
    """The Raft groups that are suspected. What cannot be read suspects nobody."""
    return {int(line) for line in _lines(data_dir) if line.isdigit() and len(line) <= 10}


def are_pages_suspect(data_dir: Path) -> bool:
    """Whether damage was found that is no Raft group's: of pages, or of the order of rows in them."""
    return _PAGES in _lines(data_dir)


def suspect(data_dir: Path, group: int | None) -> None:
    """Keeps a Raft group for the next opening; with None all pages. Where that cannot be written, what has found the
    damage is to go on as it would: the damage will be found again."""
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
    """Forgets all but these: the others were looked at and are sound, or gone."""
    path = data_dir / FILE_NAME
    if groups == suspects(data_dir) and not are_pages_suspect(data_dir):
        return
    if not groups:
        path.unlink(missing_ok=True)
        return
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(b"%d\n" % group for group in sorted(groups)))
    os.replace(new, path)
