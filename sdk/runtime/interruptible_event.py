"""A flag at which one thread waits for another one. The wait may be interrupted at any moment.

``threading.Event``, ``Condition`` and ``concurrent.futures.Future`` are written in Python. When Ctrl-C comes just after
one of their methods has taken its inner lock, the lock stays taken. Then the thread that sets the event waits for ever,
and here that is the thread on which all clients of the process run. A bare lock is one step of the interpreter.
"""

from __future__ import annotations

import threading


class InterruptibleEvent:
    """A flag that any thread sets and one waits for, which takes it down again."""

    __slots__ = ("_down",)

    def __init__(self) -> None:
        #: Held while the flag is down.
        self._down = threading.Lock()
        self._down.acquire()

    def set(self) -> None:
        """Wakes the thread that waits now or waits next. A second call makes no difference."""
        try:
            self._down.release()
        except RuntimeError:
            return  # It was set.

    def clear(self) -> None:
        """Forgets that it was set."""
        self._down.acquire(blocking=False)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is set, and clears it; False when ``timeout_s`` has passed before."""
        if timeout_s is None:
            return self._down.acquire()
        return self._down.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))
