"""How long to wait before trying again: tenacity's exponential backoff with jitter."""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    wait_combine,
    wait_exponential,
    wait_random,
)

from quorumlog.sdk.errors import NoBrokersAvailableError, QuorumlogError


@dataclass(slots=True, frozen=True)
class Backoff:
    """Waits that grow from ``initial_s`` by half each time to ``longest_s``, with up to ``initial_s`` more as jitter.

    The first is short and the growth slow, because a partition usually has a new leader within a few hundred
    milliseconds, and what is waited too long there is time without acknowledgements.
    """

    initial_s: float = 0.02
    longest_s: float = 0.5

    def _wait(self) -> wait_combine:
        growing = wait_exponential(multiplier=self.initial_s, max=self.longest_s, exp_base=1.5)
        return wait_combine(growing, wait_random(0, self.initial_s))

    def delay_s(self, failures: int) -> float:
        """The wait after the ``failures``-th failure in a row (from 1)."""
        state = RetryCallState(retry_object=_NEVER_RUN, fn=None, args=(), kwargs={})
        state.attempt_number = max(1, failures)
        return self._wait()(state)

    def retrying(self, limit_s: float) -> AsyncRetrying:
        """Runs attempts until one succeeds, fails for good, or ``limit_s`` has passed; then its error is raised."""
        return AsyncRetrying(
            retry=retry_if_exception(_is_retriable), wait=self._wait(), stop=stop_after_delay(limit_s), reraise=True
        )


def _is_retriable(error: BaseException) -> bool:
    # Whoever says that no broker is available has looked for long enough.
    return isinstance(error, QuorumlogError) and error.retriable and not isinstance(error, NoBrokersAvailableError)


_NEVER_RUN = AsyncRetrying()
