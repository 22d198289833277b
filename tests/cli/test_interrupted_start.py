"""Ctrl-C at any time of a command's life ends it with status 130, without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from quorumlog.cli.entry import INTERRUPTED

#: Runs the program, which gets Ctrl-C when it is about to import a module.
DURING_IMPORT = """
import os, signal, sys
module = sys.argv.pop(1)

class Interruption:
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
from quorumlog.cli.entry import main
main()
"""

#: Runs the program, which gets Ctrl-C after its command, when the interpreter ends.
AT_THE_END = """
import atexit, os, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from quorumlog.cli.entry import main
main()
"""


def interrupted(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "module", ["typer", "quorumlog.cli.main", "quorumlog.cli.tree", "quorumlog.cli.topics", "quorumlog.sdk", "grpc"]
)
def test_interrupt_while_importing(module: str) -> None:
    """The first three are imported before the command runs, the last ones by it."""
    done = interrupted(DURING_IMPORT, module, "topics", "list", "-b", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_interrupt_at_the_end() -> None:
    """Output that the command has already printed is not lost."""
    done = interrupted(AT_THE_END, "version")
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")
    assert done.stdout.startswith("quorumlog ")


def test_ignored_interrupts_stay_ignored() -> None:
    """A program that a shell has started in the background ignores SIGINT."""
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN){AT_THE_END}"
    done = interrupted(program, "version")
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupts_of_a_caller_are_left() -> None:
    """Within another program Ctrl-C does what that program wants, before and after a command."""
    before = signal.getsignal(signal.SIGINT)
    from quorumlog.cli.main import main

    with pytest.raises(SystemExit):
        main(["version"])
    assert signal.getsignal(signal.SIGINT) is before


#: Runs a command that gets Ctrl-C itself, in the program.
DURING_COMMAND = """
import os, signal, sys, time
from quorumlog.cli import boundary, entry, main

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    finally:
        print("closed")

main.main = lambda: sys.exit(boundary.run(command))
entry.main()
"""


def test_interrupted_commands_clean_up() -> None:
    """Within a command Ctrl-C is an exception: clients are closed, and nodes that it has started are stopped."""
    done = interrupted(DURING_COMMAND)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "closed\n", "")
