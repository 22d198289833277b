"""What a consumer subscribes to, and who is told when its group moves partitions."""

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
    """Is told which partitions a consumer of a group gets and gives up: derive from it what is needed.

    Its methods are called inside ``poll`` (or the iteration, ``unsubscribe`` and ``close``) and nowhere else, in the
    thread that calls these; they may commit and seek, and end it all (``unsubscribe``, ``close``). With an
    ``AsyncConsumer`` they may be coroutines. What they raise comes out of the poll; the partitions have changed hands
    all the same.

    Partitions that stay are not mentioned: they are read on, whatever happens to the others.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are about to go to other members. What was handed out of them has been committed if
        ``enable_auto_commit`` is set; nobody else reads them before this has returned."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions have come; they begin where the group has committed unless this seeks elsewhere."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are gone, without notice: this member was thrown out, or out of touch, and others may be reading
        them already. To commit them is refused. Does what :meth:`on_partitions_revoked` does unless it is redefined.
        """
        return self.on_partitions_revoked(lost)


class Rebalance(Enum):
    """What happens to partitions."""

    LOST = "on_partitions_lost"
    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"


class RebalanceStep(NamedTuple):
    """Something that the listener is told before the group's business goes on."""

    kind: Rebalance
    partitions: frozenset[TopicPartition]


@dataclass(slots=True, frozen=True)
class Subscription:
    """Topics by name, or by a pattern (RE2) that nodes match against whole names, and who is told of partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    listener: ConsumerRebalanceListener | None = None

    def tell(self, step: RebalanceStep) -> Awaitable[None] | None:
        """Calls the listener."""
        if self.listener is None:
            return None
        told: Awaitable[None] | None = getattr(self.listener, step.kind.value)(set(step.partitions))
        return told


def checked_subscription(topics: Iterable[str], pattern: object, listener: object) -> Subscription:
    """A subscription from what a caller gives.

    Raises:
        IllegalArgumentError: both topics and a pattern, neither, or something that is none.
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
