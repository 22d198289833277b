"""How long a client's request may wait in a node."""

from __future__ import annotations

#: When the client does not say, and at most, whatever it says (µs).
DEFAULT_WAIT_US = 30_000_000
MAX_WAIT_US = 300_000_000


def wait_us(timeout_ms: int) -> int:
    """How long a request may take, in microseconds; 0 leaves it to the node."""
    return min(timeout_ms * 1000, MAX_WAIT_US) if timeout_ms else DEFAULT_WAIT_US
