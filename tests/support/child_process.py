"""A child process of a test that does not outlive a failure of the test."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr


class ChildProcess(subprocess.Popen[AnyStr]):
    """``subprocess.Popen`` whose ``with`` block kills the process if the test fails in it.

    The block of ``Popen`` waits for the process instead, without a limit, so that a failed test would never end.
    """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        try:
            super().__exit__(kind, error, trace)
        except BaseException:  # The time of the test is over.
            self.kill()
            raise
