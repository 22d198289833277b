"""Changes that nodes make as a whole or not at all, and that Kafka's clients want each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quorumlog.server.kafka.handlers.handler import Steps
from quorumlog.v1.errors_pb2 import Error, ErrorCode

ItemT = TypeVar("ItemT")
#: A whole change is refused with one of these because of one thing in it, perhaps.
_BECAUSE_OF_ONE = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION))


def each_by_itself(
    items: Sequence[ItemT], change: Callable[[Sequence[ItemT]], Steps[Error | None]]
) -> Steps[list[Error | None]]:
    """Has things changed, all at once where that can be, and says of each why it was not, or None.

    What is refused as a whole is asked for again in halves: one thing of many costs few questions.

    Arguments:
        items: as many as one question takes.
        change: asks for some of them, and comes to why they were refused, all of them.
    """
    outcomes: list[Error | None] = []
    # The halves that come next stand last.
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
