"""Cleans up after a local cluster whose owner was killed. A separate program, run by path, without our imports.

Its standard input is a pipe from the owner; each line names a node process ("pid start-time"). If the pipe ends without
the word "done", or the owner (first argument) is no longer its parent, then the owner was killed: the nodes are killed,
and the directory (second argument, if not empty) is removed. Nodes also watch a pipe of their own, but a stopped
process cannot react.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time

#: Time for killed processes to exit (s). They use the directory.
PATIENCE_S = 10.0
POLL_S = 0.02
PARENT_CHECK_S = 1.0


def start_time(pid: int) -> str:
    """Returns the start time of a process, empty if it does not exist. With the pid, it identifies the process."""
    if not os.path.exists("/proc/self/stat"):
        command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        state, _, started = output.strip().partition(" ")
        return "" if state.startswith("Z") else started.strip()
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def watch(owner: int) -> list[tuple[int, str]] | None:
    """Waits until the owner has exited; returns the processes to kill, or None if it has cleaned up itself."""
    processes: list[tuple[int, str]] = []
    rest = b""
    while True:
        # What an exited owner wrote is still in the pipe, whose end a child process of the owner may keep open.
        orphaned = os.getppid() != owner
        readable, _, _ = select.select([0], [], [], 0 if orphaned else PARENT_CHECK_S)
        if not readable:
            if orphaned:
                break
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line == b"done":
                return None
            pid, _, started = line.decode().partition(" ")
            processes.append((int(pid), started))
    return processes


def main(owner: int, directory: str) -> None:
    """Waits for the owner, and cleans up if necessary."""
    processes = watch(owner)
    if processes is None:
        return
    deadline = time.monotonic() + PATIENCE_S
    alive = [(pid, started) for pid, started in processes if start_time(pid) == started]
    for pid, _ in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    while any(start_time(pid) == started for pid, started in alive) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    # A Ctrl-C in the terminal is handled by the owner.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), sys.argv[2])
