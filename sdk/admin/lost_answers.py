"""Changes of which the answer may be lost: asked for again until it is known whether they were made.

Asked a second time, many changes are refused because they were made the first time. Nobody is told of an error for
what was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import QuorumlogError

Answer = TypeVar("Answer")

#: How long it is looked, when all attempts are over, whether one of them has done it after all.
_LAST_LOOK_S = 5.0


async def change_once(
    cluster: Cluster,
    ask: Callable[[], Awaitable[Answer]],
    find_done: Callable[[], Awaitable[Answer | None]],
    limit_s: float,
    what: str,
) -> Answer:
    """Asks for a change until it is answered.

    Arguments:
        ask: asks once.
        find_done: looks whether the cluster is as it is to be; the answer then, or None.
        limit_s: how long all attempts may take, in seconds.
        what: of errors.

    Raises:
        QuorumlogError: it was not done, or it is not known whether it was: then the error is not definite.
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
        # A refusal, or no answer at all: either may come of an attempt that has done it.
        try:
            done = await cluster.retrying(find_done, min(limit_s, _LAST_LOOK_S), what)
        except QuorumlogError:
            done = None
        if done is not None:
            return done
        raise error.as_indefinite() from None
