"""Cost of a process to the machine, as the Linux kernel counts it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: What the kernel counts processor time in, in seconds: nothing smaller shows.
TICK_S = 1 / _TICKS_PER_S
#: Fields of /proc/PID/stat behind the closing parenthesis of the command: user and system time in ticks.
_UTIME, _STIME = 11, 12


@dataclass(slots=True, frozen=True)
class Memory:
    """Memory of a process in KiB.

    Arguments:
        private: anonymous pages, its own alone: heap and stacks. Pages of a mapped file are the page cache's.
        resident: all pages that it has mapped and that are in memory.
        unshared: pages that it has written and no other process has: without those that a forked process still shares
            with its parent.
    """

    private: int
    resident: int
    unshared: int


def memory_of(pid: int) -> Memory:
    """Returns the memory that a process uses now."""
    fields: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, amount, _ = line.split()
        fields[name.rstrip(":")] = int(amount)
    return Memory(private=fields["Anonymous"], resident=fields["Rss"], unshared=fields["Private_Dirty"])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process since its start, all threads."""
    return sum(processor_time([pid]))


def processor_time(pids: Iterable[int]) -> tuple[float, float]:
    """User and system time of processes since their starts, all together, in seconds."""
    user = system = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[_UTIME])
        system += int(fields[_STIME])
    return user / _TICKS_PER_S, system / _TICKS_PER_S


def wake_ups(pid: int) -> int:
    """Returns how often the threads of a process have gone to sleep since its start: each sleep follows a wake-up."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def machine_busy_seconds() -> float:
    """Time that all cores together have spent on anything since the machine started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / _TICKS_PER_S


@dataclass(slots=True, frozen=True)
class Idleness:
    """Activity of some processes while they had no requests.

    Arguments:
        cpu_percent: of one core, per process.
        wake_ups_per_s: the same order.
        others_percent: of one core, everything else on the machine: what this measurement had to share with.
    """

    seconds: float
    cpu_percent: list[float]
    wake_ups_per_s: list[float]
    others_percent: float


def watch(pids: list[int], seconds: float) -> Idleness:
    """Looks at processes for some time."""
    began, busy = time.monotonic(), machine_busy_seconds()
    cpu, woken = [cpu_seconds(pid) for pid in pids], [wake_ups(pid) for pid in pids]
    time.sleep(seconds)
    took, busy = time.monotonic() - began, machine_busy_seconds() - busy
    used = [cpu_seconds(pid) - before for pid, before in zip(pids, cpu, strict=True)]
    woke = [wake_ups(pid) - before for pid, before in zip(pids, woken, strict=True)]
    return Idleness(
        seconds=took,
        cpu_percent=[100 * one / took for one in used],
        wake_ups_per_s=[one / took for one in woke],
        others_percent=max(0.0, 100 * (busy - sum(used)) / took),
    )
