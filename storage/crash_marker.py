"""How a process ended that could not say it: the signal that killed it, for the one after it.

The engine maps the file and trusts it: on a damaged page it may end the process with SIGBUS, SIGSEGV or SIGABRT, and
nothing of ours runs any more. Python's handler of such signals leaves a few words in a file even then. Whoever opens
the directory next finds them, and looks at every page before the engine does.
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
    """Keeps the words of this process for the next one, while it is entered; an orderly end leaves none."""

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
    """What killed the process before, in a few words; empty where it was nothing of that kind."""
    try:
        with (data_dir / FILE_NAME).open("rb") as file:
            line = file.readline(200)
    except OSError:
        return ""
    return line.removeprefix(_PREFIX).decode(errors="replace").strip() if line.startswith(_PREFIX) else ""


def check_all_pages(data_dir: Path) -> None:
    """Looks at every page that the engine could come to, on a file that nobody writes to. Values are not read.

    Raises:
        DamageError: a page is not what the engine would take it for.
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
