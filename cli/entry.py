"""Entry point of ``quorumlog``: handles Ctrl-C before it imports the commands, which takes a few tenths of a second."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

#: Exit status after Ctrl-C, by the shells' convention: 128 + SIGINT.
INTERRUPTED = 130
#: New objects after which garbage is collected. With Python's 700, collections are an eighth of the start of a command,
#: and find nothing: what is imported stays.
_GC_THRESHOLD = 100_000


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Handles SIGINT while no command runs. No work has started that would need a cleanup, and an exception in the
    middle of an import or of the interpreter's shutdown would be printed with a traceback.
    """
    os._exit(INTERRUPTED)


def main() -> None:
    """Runs the command line and exits the process with its status."""
    # Otherwise the caller has chosen to ignore SIGINT.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    gc.set_threshold(_GC_THRESHOLD)
    from quorumlog.cli.main import main as run_command_line

    run_command_line()
