"""The janitor cleans up after an owner that was killed, however early that was."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from quorumlog.local import cleanup_process as janitor


def test_an_owner_that_is_gone_before_the_janitor_looks_leaves_no_process(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    directory = tmp_path / "cluster"
    directory.mkdir()
    left = subprocess.Popen(["sleep", "600"])
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", janitor.__file__, gone, str(directory)],
            input=f"{left.pid} {janitor.start_time(left.pid)}\n",
            text=True,
            timeout=60,
            check=True,
        )
        assert left.poll() == -signal.SIGKILL
        assert not directory.exists()
    finally:
        left.kill()
        left.wait()
