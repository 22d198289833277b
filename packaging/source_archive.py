"""The source distribution as bytes that depend on nothing but its files: not on the clock, the builder or the disk."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path


def write_source_archive(folder: Path, archive: Path, epoch_s: int) -> None:
    """Packs a folder.

    Arguments:
        folder: what is packed; its name is the first part of every path.
        archive: a ``.tar.gz``; overwritten.
        epoch_s: the time that every file gets, in seconds since 1970.
    """
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            member = tarfile.TarInfo(str(path.relative_to(folder.parent)))
            member.mtime = epoch_s
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
                tar.addfile(member)
            elif path.is_file():
                member.size = path.stat().st_size
                member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                with path.open("rb") as content:
                    tar.addfile(member, content)
