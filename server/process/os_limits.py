"""Limits of the operating system: those that a node raises at startup (heap memory kept by the C library, descriptors),
and the cores and the memory that it may use; the end of a process with its parent.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

#: For storage, for connections to peers, and for files that libraries open.
RESERVED_DESCRIPTORS = 512


def keep_freed_memory() -> bool:
    """Keeps freed buffers of frames and batches in the heap instead of mapping each again.

    By default, glibc maps every buffer of 128 KiB and more, and unmaps it when it is freed: each frame then pays for
    zeroed pages, which costs more than all of its processing (measured: 1.5 ms instead of 0.08 ms for 400 KB).

    Returns:
        False if the C library does not support it; the node is then only slower.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, 8 << 20) and mallopt(_M_TRIM_THRESHOLD, 64 << 20) and mallopt(_M_TOP_PAD, 4 << 20)
    )


def room_for_connections(wanted: int) -> int:
    """Raises the limit of file descriptors, and returns how many connections this process may hold at once.

    Each connection takes one descriptor; a node without a free descriptor can neither read nor write.

    Arguments:
        wanted: connections of all listeners.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = wanted + RESERVED_DESCRIPTORS
    allowed = max(soft, min(hard, wanted + RESERVED_DESCRIPTORS))
    if allowed > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        except (OSError, ValueError):
            allowed = soft
    return max(1, min(wanted, max(allowed - RESERVED_DESCRIPTORS, allowed // 2)))


#: Request of prctl(2): the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: Limits of this process's control group, where the kernel has them (cgroup v2).
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def end_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends, even if it is paused. Linux only.

    Arguments:
        parent: process id of the parent when it forked; it may have ended since.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def usable_cores() -> int:
    """Returns how many cores this process may use, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _group_limit("cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def usable_memory_bytes() -> int:
    """Returns how much memory this process may use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _group_limit("memory.max")
    return min(memory, int(limit)) if limit.isdecimal() else memory


def _group_limit(name: str) -> str:
    """Returns a limit of this process's control group; empty without one."""
    try:
        own = _GROUP.read_text().strip().rpartition("::/")[2]
        place = _GROUPS / own / name
        return (place if place.exists() else _GROUPS / name).read_text().strip()
    except OSError:
        return ""
