"""Raft groups of which damage was found while the node ran, kept beside the data: the next opening looks at all of it.

Not in the data: the engine that has just come upon damage is asked for nothing more.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "SUSPECTS"
#: A file with more than these was not written here.
_MAX_BYTES = 1 << 20


def suspects(data_dir: Path) -> set[int]:
    """The Raft groups that are suspected. What cannot be read suspects nobody."""
    try:
        with (data_dir / FILE_NAME).open("rb") as file:
            lines = file.read(_MAX_BYTES).split()
    except OSError:
        return set()
    return {int(line) for line in lines if line.isdigit() and len(line) <= 10}


def suspect(data_dir: Path, group: int) -> None:
    """Keeps a Raft group for the next opening."""
    if group not in suspects(data_dir):
        with (data_dir / FILE_NAME).open("ab") as file:
            file.write(b"%d\n" % group)
            file.flush()
            os.fsync(file.fileno())


def keep_suspects(data_dir: Path, groups: set[int]) -> None:
    """Forgets all but these: the others were looked at and are sound, or gone."""
    path = data_dir / FILE_NAME
    if groups == suspects(data_dir):
        return
    if not groups:
        path.unlink(missing_ok=True)
        return
    new = path.with_suffix(".new")
    new.write_bytes(b"".join(b"%d\n" % group for group in sorted(groups)))
    os.replace(new, path)
