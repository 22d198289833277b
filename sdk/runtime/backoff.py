"""Exponential backoff with jitter between attempts, run by tenacity."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from tenacity import AsyncRetrying, AttemptManager, RetryCallState, retry_if_exception

from quorumlog.sdk.errors import NoBrokersAvailableError, QuorumlogError, ThrottlingQuotaExceededError
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime

#: Packages whose frames are between a failed attempt and its caller.
_MACHINERY = ("tenacity", "concurrent")
#: Any delay has reached its maximum by then; a larger exponent overflows.
_MAX_EXPONENT = 100


@dataclass(slots=True, frozen=True)
class Backoff:
    """Delays that grow from ``initial_s`` by half each time to ``longest_s``, with up to ``initial_s`` of jitter in
    addition.

    The first is short and the growth slow, because a partition usually has a new leader within a few hundred
    milliseconds, and a longer delay is time without acknowledgements.
    """

    initial_s: float = 0.02
    longest_s: float = 0.5
    runtime: ClientRuntime = SYSTEM_RUNTIME

    def delay_s(self, failures: int, failure: BaseException | None = None) -> float:
        """Returns the delay before the next attempt.

        Arguments:
            failures: failed attempts in a row, from 1.
            failure: the error of the last one. A throttled request waits as long as the node requires in addition.
        """
        growth = 1.5 ** min(max(failures, 1) - 1, _MAX_EXPONENT)
        delay_s = min(self.initial_s * growth, self.longest_s) + self.runtime.rng.uniform(0, self.initial_s)
        if isinstance(failure, ThrottlingQuotaExceededError):
            delay_s += failure.throttle_time_ms / 1000
        return delay_s

    def _wait_s(self, state: RetryCallState) -> float:
        return self.delay_s(state.attempt_number, None if state.outcome is None else state.outcome.exception())

    def retrying(
        self, limit_s: float, brief: tuple[type[QuorumlogError], ...] = (), brief_s: float = 0.0
    ) -> AsyncRetrying:
        """Runs attempts until one succeeds, fails permanently, or ``limit_s`` has passed; then its error is raised.

        Arguments:
            brief: errors that are accepted as final once ``brief_s`` has passed.
        """
        began_s = self.runtime.monotonic_s()

        def is_over(state: RetryCallState) -> bool:
            assert state.outcome is not None, "an attempt has ended"
            is_brief = isinstance(state.outcome.exception(), brief)
            passed_s = self.runtime.monotonic_s() - began_s
            return passed_s >= (min(limit_s, brief_s) if is_brief else limit_s)

        return _Attempts(retry=retry_if_exception(_is_retriable), wait=self._wait_s, stop=is_over, reraise=True)


class _Attempts(AsyncRetrying):
    """Attempts whose last error looks as if it had been the only one.

    A traceback shows the caller's code and that of the attempt, not the dozen frames of tenacity between them.
    """

    async def __anext__(self) -> AttemptManager:
        try:
            return await super().__anext__()
        except QuorumlogError as error:
            raise error.with_traceback(_of_the_attempt(error.__traceback__)) from error.__cause__


def _of_the_attempt(trace: TracebackType | None) -> TracebackType | None:
    """Returns the frames after the last one of tenacity: those of the attempt itself."""
    found, here = trace, trace
    while here is not None:
        if here.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _MACHINERY:
            found = here.tb_next
        here = here.tb_next
    return found


def _is_retriable(error: BaseException) -> bool:
    # The code that raises NoBrokersAvailableError has already searched for its whole time.
    return isinstance(error, QuorumlogError) and error.retriable and not isinstance(error, NoBrokersAvailableError)
