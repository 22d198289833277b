"""A handle for the outcome of a commit."""

from __future__ import annotations

from collections.abc import Callable, Generator

from quorumlog.sdk.errors import QuorumlogError, RequestTimedOutError
from quorumlog.sdk.runtime.completion import Completion


class CommitFuture:
    """A handle for the outcome of a commit, which continues whether or not a caller waits for it."""

    __slots__ = ("_outcome",)

    def __init__(self, outcome: Completion) -> None:
        self._outcome = outcome

    def done(self) -> bool:
        """True once the offsets are stored, or the commit has failed."""
        return self._outcome.done

    def result(self, timeout: float | None = None) -> None:
        """Blocks until the offsets are stored.

        Arguments:
            timeout: in seconds; None waits as long as the consumer retries (``request_timeout_ms``).

        Raises:
            QuorumlogError: the commit failed.
            RequestTimedOutError: ``timeout`` has passed; the consumer continues to retry.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error

    def exception(self, timeout: float | None = None) -> QuorumlogError | None:
        """Blocks until the outcome is known; returns the error, or None on success.

        Raises:
            RequestTimedOutError: ``timeout`` (seconds) has passed; the consumer continues to retry.
        """
        if not self._outcome.wait(timeout):
            raise RequestTimedOutError(
                f"the commit did not complete within {timeout} s; the consumer continues to retry"
            )
        return self._outcome.error

    def add_done_callback(self, callback: Callable[[CommitFuture], object]) -> None:
        """Calls ``callback(self)`` once the outcome is known, on the clients' background thread: do not block there.

        The callback of :meth:`Consumer.commit_async` is called on the application's own thread instead.
        """
        self._outcome.tell(callback, self)

    def __await__(self) -> Generator[object, None, None]:
        yield from self._outcome.wait_async().__await__()
        self.result()
