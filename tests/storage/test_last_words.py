"""A process that the engine has killed leaves word of it, and the next one looks at every page first."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, transaction

from quorumlog.storage.crash_marker import FILE_NAME, CrashMarker, check_all_pages, last_words
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage

DYING = """
import os, signal, sys
from pathlib import Path
from quorumlog.storage.crash_marker import CrashMarker
with CrashMarker(Path(sys.argv[1])):
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_the_signal_that_killed_a_process_is_known_to_the_next(tmp_path: Path, number: signal.Signals) -> None:
    ended = subprocess.run([sys.executable, "-c", DYING, str(tmp_path), str(int(number))], check=False, timeout=60)
    assert ended.returncode == -number
    words = {signal.SIGBUS: "Bus error", signal.SIGSEGV: "Segmentation fault", signal.SIGABRT: "Aborted"}
    assert last_words(tmp_path) == words.get(number, "")


def test_an_orderly_end_leaves_no_words(tmp_path: Path) -> None:
    with CrashMarker(tmp_path):
        pass
    assert not (tmp_path / FILE_NAME).exists()
    assert last_words(tmp_path) == ""


def test_a_page_that_opening_does_not_look_at_is_found(tmp_path: Path) -> None:
    entries = LogBuilder(1000).batches(300, 300)
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1000, entries)))
    check_all_pages(tmp_path)
    data_file = tmp_path / "data.mdb"
    place = data_file.read_bytes().index(entries[20].data) // 4096 * 4096
    with data_file.open("r+b") as file:
        file.seek(place)
        file.write(bytes(4096))
    Storage(tmp_path).close()
    with pytest.raises(DamageError, match="is not a tree's page"):
        check_all_pages(tmp_path)
