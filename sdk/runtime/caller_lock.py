"""Locks of the application's own thread, where a signal handler may raise between any two instructions.

``with lock:`` has moments at which the lock is held and no handler releases it: a trace function can raise there, and
on some versions of Python a signal handler too. A lock that stays held blocks the thread on which all clients of the
process run. So these locks record their owner: a section is wrapped in ``try``, and its ``except BaseException`` calls
:func:`let_go`. Leaving a ``try`` costs nothing, and the owner is checked only after an exception.

The owner also shows that a thread enters a section that it is already in: from a signal handler, ``__del__`` or a
logging handler that uses the client which it has interrupted. A lock without an owner would block that thread
permanently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def held_by_caller(lock: threading.RLock) -> Callable[[], bool]:
    """Returns a function that returns True if the calling thread holds the lock."""
    owned: Any = lock
    is_owned: Callable[[], bool] = owned._is_owned  # threading.Condition relies on it too.
    return is_owned


def let_go(lock: threading.RLock) -> None:
    """Releases a lock that the calling thread may still hold after an exception. Does nothing if it does not."""
    is_held = held_by_caller(lock)
    while is_held():
        lock.release()
