"""Changes whose response may be lost: repeated until their outcome is known.

When repeated, many changes are refused because the first attempt took effect. The caller receives no error for a change
that was made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import QuorumlogError

Answer = TypeVar("Answer")

#: When all attempts are over: time limit of the check whether one of them took effect.
_LAST_LOOK_S = 5.0


async def change_once(
    cluster: Cluster,
    ask: Callable[[], Awaitable[Answer]],
    find_done: Callable[[], Awaitable[Answer | None]],
    limit_s: float,
    what: str,
) -> Answer:
    """Requests a change until it is answered.

    Arguments:
        ask: sends the request once.
        find_done: returns the response if the cluster is in the desired state, otherwise None.
        limit_s: time limit of all attempts, in seconds.
        what: name of the change for messages.

    Raises:
        QuorumlogError: the change was not made; or it is unknown whether it was: then the error is not definite.
    """
    may_be_done = False

    async def attempt() -> Answer:
        nonlocal may_be_done
        try:
            return await ask()
        except QuorumlogError as error:
            may_be_done = may_be_done or not error.definite
            raise

    try:
        return await cluster.retrying(attempt, limit_s, what)
    except QuorumlogError as error:
        if not may_be_done and error.definite:
            raise
        # A refusal, or no response at all: either may result from an attempt that has made the change.
        try:
            done = await cluster.retrying(find_done, min(limit_s, _LAST_LOOK_S), what)
        except QuorumlogError:
            done = None
        if done is not None:
            return done
        raise error.as_indefinite() from None
