"""Independent results for changes that nodes apply all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quorumlog.server.kafka.handlers.handler import Steps
from quorumlog.v1.errors_pb2 import Error, ErrorCode

ItemT = TypeVar("ItemT")
#: Errors that may be caused by a single item of a change.
_BECAUSE_OF_ONE = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION))


def each_by_itself(
    items: Sequence[ItemT], change: Callable[[Sequence[ItemT]], Steps[Error | None]]
) -> Steps[list[Error | None]]:
    """Applies changes, all at once if possible, and returns for each the error, or None.

    A batch that is refused is split into halves: with few invalid items it takes few questions.

    Arguments:
        items: at most as many as one question may have.
        change: applies some of them; returns the error for which all of them were refused, or None.
    """
    outcomes: list[Error | None] = []
    # A stack: the part to try next is last.
    waiting = [items] if items else []
    while waiting:
        part = waiting.pop()
        problem = yield from change(part)
        if problem is None or len(part) == 1 or problem.code not in _BECAUSE_OF_ONE:
            outcomes += [problem] * len(part)
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
    return outcomes
