"""An asyncio event loop whose time is the simulation's: the shipped coroutines run on it unchanged.

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

#: How long after something has become ready the loop runs, in µs: other work of the machine comes between.
TURN_US = (5, 60)


#: It lacks nearly all of the interface, on purpose: what a client should not use is refused by the base.
_EventLoop: Any = asyncio.AbstractEventLoop


class VirtualLoop(_EventLoop):  # type: ignore[misc]
    """The event loop of one simulated process.

    Arguments:
        rng: draws when turns happen.
        name: of the process, for messages.
        rate_ppm: how much faster than the simulation's the process's monotonic clock goes, in millionths.

    Attributes:
        paused: nothing runs, as after SIGSTOP; what becomes ready waits.
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
        #: Tasks of which only the loop may know: what nobody refers to would be collected at some moment.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.paused = False

    # -- time -----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds of the process's monotonic clock."""
        return (self._offset_us + self._scheduler.now * self._rate / 1_000_000) / 1e6

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Runs ``callback`` at a time of :meth:`time`."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._closed:
            return handle
        # Rounded up: a timer that fired before its time would be set again at once, at the same moment.
        at_us = -int((self._offset_us - when * 1e6) * 1_000_000 // self._rate)
        self._timers[handle] = self._scheduler.at(at_us + 1, lambda: self._due(handle))
        handle._scheduled = True  # type: ignore[attr-defined]  # so that a cancellation tells the loop
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
        """The same: there is one thread."""
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
        """SIGCONT."""
        self.paused = False
        if self._ready:
            self._turn_soon()

    def close(self) -> None:
        """The process is gone: nothing of it runs any more, not even what a coroutine does when it is cancelled."""
        self._closed = True
        self._ready.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()

    def dispose(self) -> None:
        """Ends the coroutines of a process that is gone. Left to the collector, they would say at some moment, and
        aloud, that they were never finished. What they do at their end reaches nobody."""
        assert self._closed
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(Exception, asyncio.CancelledError):
                task.get_coro().close()
        self._tasks.clear()

    # -- what asyncio asks for ------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Result], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Result]:
        """Begins a coroutine in the next turn."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody has caught, and asyncio would log, is a finding."""
        error = context.get("exception")
        why = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.fail(Violation(f"{self._name}: {context.get('message')}: {error!r} {why}"))

    def fail(self, finding: Violation) -> None:
        """Ends the simulation with a finding, once the callback that runs now has returned."""
        if not self._closed and self._broken is None:
            self._broken = finding
            self._turn_soon()

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """Whether the process lives."""
        return not self._closed

    def is_closed(self) -> bool:
        """Whether the process is gone."""
        return self._closed
