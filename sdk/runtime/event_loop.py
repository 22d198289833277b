"""The background thread for the asyncio cores of all synchronous clients of a process.

All clients share it: grpc.aio has one queue of completed operations for all event loops of a process, and whichever
loop wakes first processes it. If it finds an operation of a loop that has been closed in the meantime, it raises, and
the rest of the queue waits until something else happens. So the loop of a closed client must not be closed while others
exist; and since Python runs one thread at a time anyway, a thread for each client would have no benefit.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from quorumlog.sdk.errors import (
    ClientClosedError,
    IllegalStateError,
    QuorumlogError,
    RequestTimedOutError,
    UnknownServerError,
)
from quorumlog.sdk.runtime.caller_lock import let_go
from quorumlog.sdk.runtime.completion import Completion
from quorumlog.sdk.runtime.fork import ForkGuard
from quorumlog.sdk.runtime.interruptible_event import InterruptibleEvent

# asyncio and uvloop import it late. It registers an exit handler, which Python refuses once the main thread has ended,
# while other threads still run and create clients.
with contextlib.suppress(RuntimeError):
    import concurrent.futures.thread  # noqa: F401

Result = TypeVar("Result")

#: Time limit shared by all clients that are still open when the interpreter exits.
_EXIT_TIMEOUT_S = 5.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's event loop if uvloop is installed, otherwise asyncio's."""
    try:
        import uvloop
    except (ImportError, RuntimeError):  # The latter if this module was first imported after the main thread ended.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Closable(Protocol):
    def close(self, *, timeout: float | None = None) -> None: ...


class _LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self.fork = ForkGuard("event loop")
        self.loop = new_event_loop()
        self.loop.set_exception_handler(_ignore_poller_race)
        self._thread = threading.Thread(target=self._run, name="quorumlog-clients", daemon=True)
        self._thread.start()
        assert self._thread.ident is not None
        self.thread_id: int = self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """Stops the thread; the loop is never closed, see above."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=2.0)


class LoopCall(Generic[Result]):
    """A coroutine that the loop's thread runs for another thread, which waits for it interruptibly."""

    __slots__ = ("_coroutine", "ended", "task")

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._coroutine = coroutine
        self.task: asyncio.Task[Result] | None = None
        #: Set once the task is done.
        self.ended = InterruptibleEvent()

    def start(self) -> None:
        """Starts the coroutine. On the loop."""
        self.task = asyncio.get_running_loop().create_task(self._coroutine)
        self.task.add_done_callback(self._end)

    @property
    def is_over(self) -> bool:
        """True if the coroutine has ended."""
        return self.task is not None and self.task.done()

    def cancel(self) -> None:
        """Cancels the coroutine, whose caller no longer waits. On the loop."""
        if self.task is not None:
            self.task.cancel()
        else:  # The caller was interrupted before it had started the call.
            self._coroutine.close()

    def _end(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled():
            task.exception()  # Otherwise asyncio warns if no caller waits.
        self.ended.set()


class BackgroundLoop:
    """A synchronous client's access to the shared event loop.

    Arguments:
        client: name of the owner in errors.
        holds_lock: True if the calling thread holds a lock that the loop may need.
        limit_s: time limit of calls without their own. The caller may hold a lock of its own that the loop's thread
            waits for, and then no limit of the loop is effective.
    """

    def __init__(
        self, client: str, holds_lock: Callable[[], bool] = lambda: False, limit_s: float | None = None
    ) -> None:
        self.fork = ForkGuard(client)
        self._limit_s = limit_s
        self._holds_lock = holds_lock
        shared = _shared_thread()
        self.loop = shared.loop
        self.thread_id = shared.thread_id
        self._client = client
        self._released = False
        self._finalizer: weakref.finalize[..., Any]

    def run(
        self,
        coroutine: Coroutine[Any, Any, Result],
        timeout_s: float | None = None,
        on_overdue: Callable[[LoopCall[Result]], None] | None = None,
    ) -> Result:
        """Runs a coroutine on the loop and blocks for its result.

        Arguments:
            on_overdue: called with the call when it takes too long; the call then continues instead of being cancelled.

        Raises:
            RequestTimedOutError: it took longer than ``timeout_s``.
            ClientClosedError, ForkedClientError: the client is closed, or belongs to the parent process.
            IllegalStateError: called on the loop's own thread, as from a callback, or by a signal handler that has
                interrupted another call of this thread.
        """
        try:
            self.fork.check()
            if self._released:
                raise ClientClosedError(f"the {self._client.lower()} is closed")
            self.check_may_block()
        except Exception:
            coroutine.close()
            raise
        timeout_s = self._limit_s if timeout_s is None else timeout_s
        call = LoopCall(coroutine)
        try:
            self.loop.call_soon_threadsafe(call.start)
            ended = call.ended.wait(timeout_s)
        except BaseException:  # From a signal handler, of any type.
            self.loop.call_soon_threadsafe(call.cancel)
            raise
        if not ended:
            if on_overdue is None:
                self.loop.call_soon_threadsafe(call.cancel)
            else:
                on_overdue(call)
            raise RequestTimedOutError(
                f"the call did not complete within {timeout_s:g} s: the nodes are not reached, or the clients' own"
                " thread waits for a lock that the caller holds, such as that of a logging handler"
            )
        task = call.task
        assert task is not None, "a task that ended had started"
        if task.cancelled():
            raise self._closed_meanwhile()
        return task.result()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Completion:
        """Runs a coroutine on the loop, and returns at once."""
        outcome = Completion(self.thread_id)

        def ended(task: asyncio.Task[None]) -> None:
            error = self._closed_meanwhile() if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, QuorumlogError):
                error = UnknownServerError(f"the client failed: {error!r}")
            outcome.resolve(error)

        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(coroutine).add_done_callback(ended))
        return outcome

    def _closed_meanwhile(self) -> ClientClosedError:
        return ClientClosedError(f"the {self._client.lower()} was closed during the call")

    def check_may_block(self) -> None:
        """Raises IllegalStateError if the loop would wait for the caller: on its own thread, and under a lock."""
        if threading.get_ident() == self.thread_id:
            raise IllegalStateError("this call would block the clients' own event loop: do not make it in a callback")
        if self._holds_lock():
            raise IllegalStateError(
                f"a signal handler (or __del__) has interrupted another call to this {self._client.lower()}, which this"
                " one would wait for: set a flag here, and make this call later"
            )

    def own(self, client: _Closable, close_core: Callable[[], Coroutine[Any, Any, None]], **at_exit: bool) -> None:
        """Closes a client that its owner never closes.

        When the interpreter exits, ``client.close`` is called, with ``at_exit``, within a time limit. If the object is
        collected before that, see :func:`close_when_dropped`.
        """
        _open_clients[client] = at_exit
        self._finalizer = close_when_dropped(client, self.fork, lambda: self.loop, close_core)
        self._finalizer.atexit = False

    def release(self, client: _Closable) -> None:
        """Notes that the client has been closed."""
        self._released = True
        self._finalizer.detach()
        _open_clients.pop(client, None)


_lock = threading.RLock()
_threads: list[_LoopThread] = []


def _shared_thread() -> _LoopThread:
    try:
        with _lock:
            if not _threads or not _threads[-1].fork.same_process:
                # A parent's loop stays referenced: freeing it here, where it does not run, would crash the child.
                _threads.append(_LoopThread())
            return _threads[-1]
    except BaseException:
        let_go(_lock)
        raise


def _ignore_poller_race(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignores two harmless errors that grpc.aio reports; users would see a traceback.

    If a program has event loops of its own too, the loop that is second at an event finds nothing to read; and events
    for a loop that has ended (``asyncio.run``) cannot be delivered.
    """
    error = context.get("exception")
    if isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "loop is closed" in str(error)):
        return
    loop.default_exception_handler(context)


_open_clients: weakref.WeakKeyDictionary[Any, dict[str, bool]] = weakref.WeakKeyDictionary()


#: Dropped clients that are being closed: asyncio itself keeps no reference to tasks.
_closing: set[asyncio.Task[None]] = set()


def close_when_dropped(
    client: object,
    fork: ForkGuard,
    open_on: Callable[[], asyncio.AbstractEventLoop | None],
    close_core: Callable[[], Coroutine[Any, Any, None]],
) -> weakref.finalize[..., Any]:
    """Closes a client that is collected while still open, or at exit, with a ResourceWarning. Returns the finalizer.

    Arguments:
        open_on: returns the event loop of the client's connections; None if it has none, or is closed.
        close_core: closes the client, on that loop.
        Neither may refer to the client.
    """
    return weakref.finalize(client, _close_dropped, repr(client), fork, open_on, close_core)


def _close_dropped(
    name: str,
    fork: ForkGuard,
    open_on: Callable[[], asyncio.AbstractEventLoop | None],
    close_core: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    loop = open_on()
    if loop is None or not fork.same_process:
        return

    def begin() -> None:
        task = loop.create_task(close_core())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    if not loop.is_closed():
        if _runs_here(loop):
            begin()  # At once: asyncio.run cancels the tasks that it finds when the main task has ended.
        else:
            loop.call_soon_threadsafe(begin)
    warnings.warn(f"unclosed client {name}: call close(), or use it in a with block", ResourceWarning, stacklevel=2)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _close_left_open() -> None:
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    with contextlib.suppress(KeyboardInterrupt):  # A second Ctrl-C: clients that are still open stay open.
        for client, at_exit in list(_open_clients.items()):
            with contextlib.suppress(Exception):
                client.close(timeout=max(0.0, deadline - time.monotonic()), **at_exit)
        for thread in _threads:
            if thread.fork.same_process:
                thread.stop()


atexit.register(_close_left_open)
