"""Offset resets of consumer groups: the plan that is shown, and then executed as it was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from quorumlog.console.shared_state import Json, Thing
from quorumlog.sdk import (
    GroupDescription,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)

#: Maximum number of partitions of one plan.
MOST_PARTITIONS = 2_000


class ResetError(ValueError):
    """Raised if no plan can be made for a request; the message says why."""


class ResetTo(Enum):
    """Targets of a reset, named as by ``groups reset-offsets``."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"


@dataclass(slots=True, frozen=True)
class ResetWish:
    """A request for a reset.

    Arguments:
        to: the kind of target.
        by: the offset, the distance, or the time in milliseconds since the epoch; None where none is needed.
        topic: the only topic; None: all for which the group has committed offsets.
    """

    to: ResetTo
    by: int | None = None
    topic: str | None = None


@dataclass(slots=True, frozen=True)
class ResetStep:
    """The reset of one partition: its committed offset, start and end, the new offset, and a note."""

    tp: TopicPartition
    committed: int | None
    start: int
    end: int
    target: int
    note: str = ""

    def thing(self) -> Json:
        """Returns the step for the page."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "committed": None if self.committed is None else str(self.committed),
            "start": str(self.start),
            "end": str(self.end),
            "target": str(self.target),
            "note": self.note,
        }


class ResetAdmin(Protocol):
    """The methods of an admin client that a plan uses."""

    async def describe_groups(self, group_ids: Iterable[str], *, include_offsets: bool) -> list[GroupDescription]: ...
    async def describe_topics(self, topics: list[str]) -> list[TopicDescription]: ...


class ResetOffsets(Protocol):
    """The methods of a consumer that a plan uses."""

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...


def step(
    tp: TopicPartition, wish: ResetWish, committed: int | None, start: int, end: int, at_time: int | None
) -> ResetStep:
    """Returns the reset of one partition, whose new offset is always within its log.

    Arguments:
        at_time: its first offset at or after the requested time; None past the last record.
    """
    match wish.to:
        case ResetTo.EARLIEST:
            wanted = start
        case ResetTo.LATEST:
            wanted = end
        case ResetTo.TIME:
            wanted = end if at_time is None else at_time
        case ResetTo.OFFSET:
            wanted = wish.by or 0
        case ResetTo.SHIFT:
            if committed is None:
                return ResetStep(tp, None, start, end, start, "no offset is committed: using the start")
            wanted = committed + (wish.by or 0)
    if wanted < start:
        return ResetStep(tp, committed, start, end, start, f"{wanted} lies before the start")
    if wanted > end:
        return ResetStep(tp, committed, start, end, end, f"{wanted} lies beyond the end")
    return ResetStep(tp, committed, start, end, wanted)


async def plan(admin: ResetAdmin, offsets: ResetOffsets, group_id: str, wish: ResetWish) -> Thing:
    """Returns the plan for the page: ``members`` of the group, which must be none, and ``steps``.

    Raises:
        ResetError: there is nothing to plan.
        QuorumlogError: a group or topic does not exist, or no node answers.
    """
    (group,) = await admin.describe_groups([group_id], include_offsets=True)
    committed = group.offsets or {}
    partitions = [tp for tp in committed if wish.topic in (None, tp.topic)]
    if wish.topic is not None:
        (topic,) = await admin.describe_topics([wish.topic])
        partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    if not partitions:
        raise ResetError(f"group {group_id!r} has committed no offsets: name a topic")
    if len(partitions) > MOST_PARTITIONS:
        raise ResetError(f"the plan has {len(partitions)} partitions, more than {MOST_PARTITIONS}: name a topic")
    starts, ends = await asyncio.gather(offsets.beginning_offsets(partitions), offsets.end_offsets(partitions))
    times: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    if wish.to is ResetTo.TIME:
        times = await offsets.offsets_for_times(dict.fromkeys(partitions, wish.by or 0))
    steps = []
    for tp in sorted(partitions):
        at, known = times.get(tp), committed.get(tp)
        before = None if known is None else known.offset
        steps.append(step(tp, wish, before, starts[tp], ends[tp], None if at is None else at.offset).thing())
    return {"group": group_id, "members": len(group.members), "steps": [*steps]}
