"""What a client says in the log while nodes do not serve it: that it still tries, why that fails, when it is over."""

from __future__ import annotations

import logging

from quorumlog.sdk.errors import (
    FencedLeaderEpochError,
    InvalidFetchSessionEpochError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    QuorumlogError,
    UnknownLeaderEpochError,
)
from quorumlog.sdk.types import TopicPartition

#: A change of leader takes less; what lasts longer, an application's owner wants to know of.
QUIET_S = 5.0
#: The pause between two lines.
REPEATED_AFTER_S = 30.0

#: What to say instead of an error that reports the state of client and node: its numbers help nobody who operates them.
_REASONS: tuple[tuple[tuple[type[QuorumlogError], ...], str], ...] = (
    (
        (OutOfOrderSequenceNumberError,),
        "earlier batches of the partition have not been acknowledged yet, because the nodes are overloaded or cannot"
        " reach each other: send less, or look at 'quorumlog cluster health'",
    ),
    (
        (
            NotLeaderForPartitionError,
            FencedLeaderEpochError,
            UnknownLeaderEpochError,
            InvalidFetchSessionEpochError,
        ),
        "the leader of the partition keeps changing, or the nodes do not agree on it yet: look at"
        " 'quorumlog cluster health'",
    ),
)

_log = logging.getLogger("quorumlog.sdk")


def _reason(error: QuorumlogError) -> str:
    """Returns why something fails, in words that the owner of an application can act on."""
    return next((reason for kinds, reason in _REASONS if isinstance(error, kinds)), error.message)


class Outage:
    """One thing that a client tries again and again.

    Arguments:
        doing: what, such as ``reaching the coordinator of consumer group billing``.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._since_s: float | None = None
        self._next_s: float | None = None

    def failed(self, error: QuorumlogError, now: float) -> None:
        """It has failed, and will be tried again."""
        if self._since_s is None:
            self._since_s = now
        if now - self._since_s < QUIET_S or (self._next_s is not None and now < self._next_s):
            return
        self._next_s = now + REPEATED_AFTER_S
        _log.warning("%s has failed for %d s; still trying: %s", self._doing, now - self._since_s, _reason(error))

    def succeeded(self, now: float) -> None:
        """It works."""
        if self._since_s is not None and self._next_s is not None:
            _log.warning("%s works again, after %d s", self._doing, now - self._since_s)
        self._since_s = self._next_s = None


class OutageLog:
    """The partitions that have failed since they were served last: one line for all of them, and seldom.

    Arguments:
        doing: what a client does with partitions, such as ``fetching from``.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        #: When each began to fail, and when it failed last, in monotonic seconds.
        self._failing: dict[TopicPartition, tuple[float, float]] = {}
        self._told: set[TopicPartition] = set()
        self._next_s = 0.0

    def failed(self, tp: TopicPartition, error: QuorumlogError, now: float) -> None:
        """A partition could not be served, and will be tried again."""
        since, last = self._failing.get(tp, (now, now))
        if now - last > REPEATED_AFTER_S:
            since = now  # What failed long ago was given up.
        self._failing[tp] = (since, now)
        if now - since < QUIET_S or now < self._next_s:
            return
        self._next_s = now + REPEATED_AFTER_S
        self._told.add(tp)
        others = sum(last >= now - QUIET_S for _, last in self._failing.values()) - 1
        more = f" and {others} more" if others else ""
        _log.warning(
            "%s %s-%d%s has failed for %d s; still trying: %s",
            self._doing, *tp, more, now - since, _reason(error),
        )  # fmt: skip

    def served(self, tp: TopicPartition, now: float) -> None:
        """A partition was served."""
        if not self._failing:
            return
        since, _ = self._failing.pop(tp, (now, now))
        if tp in self._told:
            self._told.clear()
            self._next_s = 0.0
            _log.warning("%s %s-%d works again, after %d s", self._doing, *tp, now - since)
