"""Log messages of a client while nodes do not serve it: the failure, its cause, and its end."""

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

#: A change of leader is shorter; a longer outage concerns an application's owner.
QUIET_S = 5.0
#: The pause between two lines.
REPEATED_AFTER_S = 30.0

#: Texts for errors that report internal state of client and node, whose numbers do not help operators.
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
    """Returns the reason of a failure, in words that the owner of an application can act on."""
    return next((reason for kinds, reason in _REASONS if isinstance(error, kinds)), error.message)


class Outage:
    """An operation that a client retries.

    Arguments:
        doing: its name, such as ``reaching the coordinator of consumer group billing``.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._since_s: float | None = None
        self._next_s: float | None = None

    def failed(self, error: QuorumlogError, now: float) -> None:
        """Records a failure that will be retried."""
        if self._since_s is None:
            self._since_s = now
        if now - self._since_s < QUIET_S or (self._next_s is not None and now < self._next_s):
            return
        self._next_s = now + REPEATED_AFTER_S
        _log.warning("%s has failed for %d s; still trying: %s", self._doing, now - self._since_s, _reason(error))

    def succeeded(self, now: float) -> None:
        """Records a success, which ends the outage."""
        if self._since_s is not None and self._next_s is not None:
            _log.warning("%s works again, after %d s", self._doing, now - self._since_s)
        self._since_s = self._next_s = None


class OutageLog:
    """The partitions that have failed since they were served last: one log line for all of them, at intervals.

    Arguments:
        doing: the operation on partitions, such as ``fetching from``.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        #: Times of each partition's first and last failure, in monotonic seconds.
        self._failing: dict[TopicPartition, tuple[float, float]] = {}
        self._told: set[TopicPartition] = set()
        self._next_s = 0.0

    def failed(self, tp: TopicPartition, error: QuorumlogError, now: float) -> None:
        """Records that a partition could not be served, and will be retried."""
        since, last = self._failing.get(tp, (now, now))
        if now - last > REPEATED_AFTER_S:
            since = now  # An operation that failed long ago was given up.
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
        """Records that a partition was served."""
        if not self._failing:
            return
        since, _ = self._failing.pop(tp, (now, now))
        if tp in self._told:
            self._told.clear()
            self._next_s = 0.0
            _log.warning("%s %s-%d works again, after %d s", self._doing, *tp, now - since)
