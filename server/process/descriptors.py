"""File descriptors: a connection takes one, and a node that has none left can neither read nor write."""

from __future__ import annotations

import resource

#: For storage, for connections to peers, and for what the libraries open.
RESERVED = 512


def room_for_connections(wanted: int) -> int:
    """How many connections this process may hold at once, after it has asked the system for as many as are wanted.

    Arguments:
        wanted: connections at all listeners together.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = wanted + RESERVED
    allowed = max(soft, min(hard, wanted + RESERVED))
    if allowed > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        except (OSError, ValueError):
            allowed = soft
    return max(1, min(wanted, max(allowed - RESERVED, allowed // 2)))
