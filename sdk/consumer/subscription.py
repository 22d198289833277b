"""Subscriptions, and the listener for rebalances of a group."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from quorumlog.sdk.arguments import checked_topics, is_text
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.types import TopicPartition


class ConsumerRebalanceListener:
    """Callbacks for the partitions that a consumer of a group gains and gives up. Derive from it and override methods.

    Its methods are called only inside ``poll`` (or the iteration, ``unsubscribe`` and ``close``), in the thread that
    calls these. They may commit, seek, ``unsubscribe`` and ``close``. With an ``AsyncConsumer`` they may be coroutines.
    Their exceptions are raised by the poll; the partitions change owners all the same.

    Partitions that stay are not mentioned: the consumer continues to read them during a rebalance.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions go to other members.

        With ``enable_auto_commit``, returned records of them have been committed. No other member reads them before
        this has returned.
        """

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Called with new partitions. They start at the group's committed offsets unless this seeks elsewhere."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions were lost without notice.

        This member was removed from the group or had no contact, and others may already be reading the partitions.
        Commits for them are refused. Calls :meth:`on_partitions_revoked` unless overridden.
        """
        return self.on_partitions_revoked(lost)


class Rebalance(Enum):
    """Kind of a rebalance step; values are names of listener methods."""

    LOST = "on_partitions_lost"
    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"


class RebalanceStep(NamedTuple):
    """A call of the listener that must finish before the rebalance continues."""

    kind: Rebalance
    partitions: frozenset[TopicPartition]


@dataclass(slots=True, frozen=True)
class Subscription:
    """Topics by name, or by a pattern (RE2) that nodes match against whole names, and the listener."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    listener: ConsumerRebalanceListener | None = None

    def tell(self, step: RebalanceStep) -> Awaitable[None] | None:
        """Calls the listener; returns its coroutine, if it is one."""
        if self.listener is None:
            return None
        result: Awaitable[None] | None = getattr(self.listener, step.kind.value)(set(step.partitions))
        return result


def checked_subscription(topics: Iterable[str], pattern: object, listener: object) -> Subscription:
    """Returns a validated subscription.

    Raises:
        IllegalArgumentError: both topics and a pattern, neither, or a value of a wrong type.
    """
    names = checked_topics(topics)
    if isinstance(pattern, re.Pattern):
        pattern = pattern.pattern
    if pattern is not None and (not isinstance(pattern, str) or not pattern or not is_text(pattern)):
        raise IllegalArgumentError(f"pattern is {pattern!r}: give a regular expression as a string")
    if bool(names) == bool(pattern):
        raise IllegalArgumentError("give either topics or a pattern to subscribe to; unsubscribe ends a subscription")
    listens = not isinstance(listener, type) and all(
        callable(getattr(listener, kind.value, None)) for kind in Rebalance
    )
    if listener is not None and not listens:
        raise IllegalArgumentError(f"listener is {listener!r}: give an object derived from ConsumerRebalanceListener")
    return Subscription(names, pattern or "", listener)  # type: ignore[arg-type]
