"""The program ``quorumlog``: handles Ctrl-C before it imports the commands, which takes a few tenths of a second."""

from __future__ import annotations

import os
import signal
from types import FrameType

#: Exit status after Ctrl-C, as shells count it: 128 + SIGINT.
INTERRUPTED = 130


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Handles SIGINT while no command runs. Nothing has been started that would have to be stopped, and an exception
    in the middle of an import or of the interpreter's end would be printed with a traceback."""
    os._exit(INTERRUPTED)


def main() -> None:
    """Runs the command line and ends the process with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Otherwise the caller has chosen to ignore it.
        signal.signal(signal.SIGINT, end_at_once)
    from quorumlog.cli.main import main as run_command_line

    run_command_line()
