"""What a thread waits at for another one, and where it may be interrupted at any moment.

``threading.Event``, ``Condition`` and ``concurrent.futures.Future`` are written in Python: a Ctrl-C that comes when one
of their methods has just taken the lock inside leaves it taken. Whoever sets the event then waits for ever, and here
that is the thread on which all clients of the process run. A bare lock is one step of the interpreter.
"""

from __future__ import annotations

import threading


class Wakeup:
    """A flag that any thread sets and one waits for, which takes it down again."""

    __slots__ = ("_down",)

    def __init__(self) -> None:
        #: Held while the flag is down.
        self._down = threading.Lock()
        self._down.acquire()

    def set(self) -> None:
        """Wakes whoever waits, or will. Once more makes no difference."""
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
