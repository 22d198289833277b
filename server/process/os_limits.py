"""Limits of the operating system that a node raises at startup: heap memory kept by the C library, and descriptors."""

from __future__ import annotations

import ctypes
import resource

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
