"""Marker of a crash: the signal that killed a process, recorded for the next one.

The engine maps the file and trusts it: on a damaged page it may kill the process with SIGBUS, SIGSEGV or SIGABRT, after
which none of our code runs. Even then, Python's handler of such signals writes a few words to a file. The next process
that opens the directory reads them, and checks every page before the engine does.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path
from types import TracebackType

from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.page_file import PageFile

FILE_NAME = "LAST_WORDS"
_PREFIX = b"Fatal Python error: "


class CrashMarker:
    """Records a fatal signal of this process while it is entered; a regular exit removes the file."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        self._file = self._path.open("wb")

    def __enter__(self) -> CrashMarker:
        faulthandler.enable(self._file, all_threads=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.disable()
        self._file.close()
        self._path.unlink(missing_ok=True)


def last_words(data_dir: Path) -> str:
    """Returns the fatal error of the previous process, in a few words; empty if it had none."""
    try:
        with (data_dir / FILE_NAME).open("rb") as file:
            line = file.readline(200)
    except OSError:
        return ""
    return line.removeprefix(_PREFIX).decode(errors="replace").strip() if line.startswith(_PREFIX) else ""


def check_all_pages(data_dir: Path) -> None:
    """Checks every page that the engine could reach, in a file that has no writer. Values are not read.

    Raises:
        DamageError: a page is not of the expected kind.
    """
    data_file = data_dir / DATA_FILE
    if not data_file.exists() or data_file.stat().st_size == 0:
        return
    with PageFile(data_file) as pages:
        pages.check_size()
        pages.check_free_list()
        for database in pages.databases:
            with pages.cursor(database) as cursor:
                more = cursor.first()
                while more:
                    cursor.pass_item()
                    more = cursor.next()
