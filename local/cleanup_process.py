"""Cleans up after a local cluster whose owner died. A program of its own, run by path: it imports nothing of ours.

Its standard input is a pipe from the owner; each line names a node process ("pid start-time"). When the pipe ends
without the word "done", or the owner (first argument) is no longer its parent, then the owner was killed: the nodes
are killed, and the directory (second argument, if not empty) is removed. Nodes watch a pipe of their own as well,
but one that is stopped cannot act.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time

#: For the death of killed processes. They hold the directory.
PATIENCE_S = 10.0
POLL_S = 0.02
PARENT_CHECK_S = 1.0


def start_time(pid: int) -> str:
    """When a process started, as the system tells it; empty when there is none. With the pid it names a process."""
    if not os.path.exists("/proc/self/stat"):
        command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        state, _, started = told.strip().partition(" ")
        return "" if state.startswith("Z") else started.strip()
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def watch(owner: int) -> list[tuple[int, str]] | None:
    """Waits for the owner's end; the processes to kill, or None when it has cleaned up itself."""
    processes: list[tuple[int, str]] = []
    rest = b""
    while True:
        # What an owner said that is gone already still stands in the pipe, whose end a child of its own may hold open.
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
    """Waits, and cleans up if that is needed."""
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
    # A Ctrl-C at the terminal is the owner's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]), sys.argv[2])
