"""An asyncio event loop in the simulation's time: the shipped coroutines run on it unchanged.

It has no selector, no threads and no signals. Everything that is ready is run in turns, like asyncio's own, and each
turn is one event of the simulation's scheduler. So two runs of one seed run the same callbacks in the same order.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.scheduler import Scheduler, Timer

Result = TypeVar("Result")

#: Delay of a turn after something has become ready (µs): other work of the machine comes in between.
TURN_US = (5, 60)


#: It lacks nearly all of the interface, on purpose: the base class refuses what a client should not use.
_EventLoop: Any = asyncio.AbstractEventLoop


class VirtualLoop(_EventLoop):  # type: ignore[misc]
    """The event loop of one simulated process.

    Arguments:
        rng: determines the times of turns.
        name: name of the process, for messages.
        rate_ppm: deviation of the process's monotonic clock from the simulation's, in millionths.

    Attributes:
        paused: nothing runs, as after SIGSTOP; ready callbacks wait.
    """

    def __init__(self, scheduler: Scheduler, rng: random.Random, name: str, rate_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._rate = 1_000_000 + rate_ppm
        self._offset_us = rng.randrange(0, 1 << 36)
        self._name = name
        self._broken: Violation | None = None
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[asyncio.TimerHandle, Timer] = {}
        self._turn: Timer | None = None
        self._closed = False
        #: Tasks that only the loop may reference: unreferenced ones would be collected at an arbitrary time.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.paused = False

    # -- time -----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Returns the seconds of the process's monotonic clock."""
        return (self._offset_us + self._scheduler.now * self._rate / 1_000_000) / 1e6

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Runs ``callback`` at a time of :meth:`time`."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._closed:
            return handle
        # Rounded up: a timer that fired too early would be set again at once, for the same instant.
        at_us = -int((self._offset_us - when * 1e6) * 1_000_000 // self._rate)
        self._timers[handle] = self._scheduler.at(at_us + 1, lambda: self._due(handle))
        handle._scheduled = True  # type: ignore[attr-defined]  # so that a cancellation wakes the loop
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Runs ``callback`` in ``delay`` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _due(self, handle: asyncio.TimerHandle) -> None:
        self._timers.pop(handle, None)
        self._ready.append(handle)
        self._turn_soon()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        timer = self._timers.pop(handle, None)
        if timer is not None:
            timer.cancel()

    # -- what is ready --------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Runs ``callback`` in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
            self._turn_soon()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Runs ``callback`` in the next turn: there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def _turn_soon(self) -> None:
        if self._turn is None and not self.paused and not self._closed:
            self._turn = self._scheduler.after(self._rng.randint(*TURN_US), self._run_ready)

    def _run_ready(self) -> None:
        self._turn = None
        if self.paused or self._closed:
            return
        asyncio._set_running_loop(self)
        try:
            if self._broken is not None:
                raise self._broken
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
                if self._broken is not None:
                    raise self._broken
                if self._closed:
                    return  # A callback has ended the process.
        finally:
            asyncio._set_running_loop(None)
        if self._ready:
            self._turn_soon()

    def resume(self) -> None:
        """Resumes the process, as after SIGCONT."""
        self.paused = False
        if self._ready:
            self._turn_soon()

    def close(self) -> None:
        """Ends the process: nothing of it runs any longer, not even the cleanup of cancelled coroutines."""
        self._closed = True
        self._ready.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()

    def dispose(self) -> None:
        """Closes the coroutines of a process that has ended. Left to the garbage collector, they would warn at an
        arbitrary time that they were never finished. Their cleanup has no effect.
        """
        assert self._closed
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(Exception, asyncio.CancelledError):
                task.get_coro().close()
        self._tasks.clear()

    # -- interface for asyncio ------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Result], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Result]:
        """Starts a coroutine in the next turn."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Reports an uncaught exception, which asyncio would log, as a finding."""
        error = context.get("exception")
        why = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.fail(Violation(f"{self._name}: {context.get('message')}: {error!r} {why}"))

    def fail(self, finding: Violation) -> None:
        """Ends the simulation with a finding, once the current callback has returned."""
        if not self._closed and self._broken is None:
            self._broken = finding
            self._turn_soon()

    def get_debug(self) -> bool:
        """Returns False."""
        return False

    def is_running(self) -> bool:
        """True if the process is alive."""
        return not self._closed

    def is_closed(self) -> bool:
        """True if the process has ended."""
        return self._closed
