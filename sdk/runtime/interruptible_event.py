"""An event between threads. The wait may be interrupted at any moment.

``threading.Event``, ``Condition`` and ``concurrent.futures.Future`` are written in Python. If Ctrl-C occurs just after
one of their methods has acquired its inner lock, the lock stays held. Then the thread that sets the event waits
indefinitely, and here that is the thread on which all clients of the process run. A bare lock is one step of the
interpreter.
"""

from __future__ import annotations

import threading


class InterruptibleEvent:
    """An event that any thread sets and one thread waits for; waiting clears it."""

    __slots__ = ("_down",)

    def __init__(self) -> None:
        #: Held while the event is not set.
        self._down = threading.Lock()
        self._down.acquire()

    def set(self) -> None:
        """Wakes the thread that waits now or next. A second call has no effect."""
        try:
            self._down.release()
        except RuntimeError:
            return  # It was already set.

    def clear(self) -> None:
        """Clears the event."""
        self._down.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is set, and clears it; returns False if ``timeout_s`` has passed before."""
        if timeout_s is None:
            return self._down.acquire()
        return self._down.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))
