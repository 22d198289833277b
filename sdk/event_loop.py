"""The background thread on which a synchronous client's asyncio core runs."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from quorumlog.sdk.errors import ClientClosedError, IllegalStateError, RequestTimedOutError
from quorumlog.sdk.fork import ForkGuard

Result = TypeVar("Result")

#: How long clients that were left open may take, together, when the interpreter ends.
_EXIT_TIMEOUT_S = 5.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class BackgroundLoop:
    """An event loop on a daemon thread of its own.

    Arguments:
        client: what to call the owner in errors.
        client_id: names the thread.
    """

    def __init__(self, client: str, client_id: str) -> None:
        self.fork = ForkGuard(client)
        self.loop = new_event_loop()
        self.loop.set_exception_handler(_ignore_poller_race)
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)
        self._thread.start()
        assert self._thread.ident is not None
        self.thread_id: int = self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Runs a coroutine on the loop and blocks for its result.

        Raises:
            RequestTimedOutError: it took longer than ``timeout_s``; it has been cancelled.
        """
        try:
            self.fork.check()
            if self.loop.is_closed():
                raise ClientClosedError("the client is closed")
            if threading.get_ident() == self.thread_id:
                raise IllegalStateError(
                    "this call would block the client's own event loop: not from a callback, please"
                )
        except Exception:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise RequestTimedOutError(f"the call did not complete within {timeout_s} s") from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancels what is left on the loop, stops it and closes it. In a forked child nothing runs, nothing is done."""
        if not self.fork.same_process or self.loop.is_closed():
            return

        async def cancel_rest() -> None:
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        with contextlib.suppress(RequestTimedOutError):
            self.run(cancel_rest(), timeout_s=2.0)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=2.0)
        if not self._thread.is_alive():
            self.loop.close()


def _ignore_poller_race(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """grpc.aio has one poller for all loops of a process: a loop that comes second to an event finds nothing to read.

    It logs that as an error although nothing is wrong; a user with two clients would be shown a traceback.
    """
    if isinstance(context.get("exception"), BlockingIOError):
        return
    loop.default_exception_handler(context)


class _Closable(Protocol):
    def close(self, timeout: float | None = None) -> None: ...


_open_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(client: _Closable) -> None:
    """Has a client closed, within limits, if the interpreter ends before its owner closes it."""
    _open_clients.add(client)


def forget(client: _Closable) -> None:
    """A client was closed."""
    _open_clients.discard(client)


def _close_left_open() -> None:
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    for client in list(_open_clients):
        with contextlib.suppress(Exception):
            client.close(timeout=max(0.0, deadline - time.monotonic()))


atexit.register(_close_left_open)
