"""Ends and growth of partitions, the progress of consumer groups in them, and the progress of moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quorumlog.console.shared_state import Json, Thing
from quorumlog.sdk import (
    GroupDescription,
    GroupKind,
    PartitionReassignment,
    ReplicaCopy,
    TopicPartition,
)
from quorumlog.sdk.cluster.offset_search import lag as lag_of

#: Weight of a new rate in the moving average: otherwise bursts would make it jump.
_NEW_RATE_WEIGHT = 0.5


@dataclass(slots=True)
class _Growth:
    topic_id: str
    end: int
    asked_s: float
    rate: float | None = None
    start: int | None = None
    size_bytes: int | None = None


class PartitionEnds:
    """The known end of each partition, and its records per second."""

    def __init__(self) -> None:
        self._growth: dict[TopicPartition, _Growth] = {}

    def take(self, tp: TopicPartition, topic_id: str, end: int, asked_s: float) -> None:
        """Stores the end of a partition.

        Arguments:
            topic_id: id of its topic: a topic that was created again starts from scratch.
        """
        known = self._growth.get(tp)
        if known is None or known.topic_id != topic_id:
            self._growth[tp] = _Growth(topic_id, end, asked_s)
            return
        passed_s = asked_s - known.asked_s
        if end < known.end or passed_s <= 0:
            return  # An answer that was overtaken by a newer one.
        rate = (end - known.end) / passed_s
        known.rate = rate if known.rate is None else known.rate + _NEW_RATE_WEIGHT * (rate - known.rate)
        known.end, known.asked_s = end, asked_s

    def describe(self, tp: TopicPartition, start: int, size_bytes: int | None) -> None:
        """Stores the start of a log whose end is known, and its size on disk."""
        known = self._growth[tp]
        known.start, known.size_bytes = start, size_bytes

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets all others, which are no longer shown."""
        wanted = set(partitions)
        self._growth = {tp: growth for tp, growth in self._growth.items() if tp in wanted}

    def end(self, tp: TopicPartition) -> int | None:
        """Returns the end of a partition; None if it is not known."""
        known = self._growth.get(tp)
        return None if known is None else known.end

    def start(self, tp: TopicPartition) -> int:
        """The first offset of a partition's log; 0 if it is not known."""
        known = self._growth.get(tp)
        return 0 if known is None or known.start is None else known.start

    def things(self) -> dict[str, Thing]:
        """Returns the ends, for the page."""
        return {
            f"end/{tp.topic}/{tp.partition}": {
                "end": str(growth.end),
                "rate": None if growth.rate is None else _shown_rate(growth.rate),
                **({} if growth.start is None else {"start": str(growth.start)}),
                **({} if growth.size_bytes is None else {"bytes": str(growth.size_bytes)}),
            }
            for tp, growth in self._growth.items()
        }


def _shown_rate(rate: float) -> float:
    """Rounds records per second to significant digits; an idle partition goes to 0."""
    return round(rate) if rate >= 10 else round(rate, 1)


def group_detail(group: GroupDescription, ends: PartitionEnds) -> Thing:
    """Describes a group with its members, and a row for each partition: committed offset, end, lag, owner."""
    committed = group.offsets or {}
    owners = {tp: number for number, member in enumerate(group.members) for tp in member.assignment}
    rows: list[Json] = []
    lags: list[int | None] = []
    for tp in sorted(committed.keys() | owners.keys()):
        at, end, owner = committed.get(tp), ends.end(tp), owners.get(tp)
        if at is not None and end is not None:
            end = max(end, at.offset)  # A commit may be newer than the known end: the log extends at least so far.
        lag = None if at is None or end is None else lag_of(at.offset, ends.start(tp), end)
        lags.append(lag)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": None if at is None else str(at.offset),
                "end": None if end is None else str(end),
                "lag": None if lag is None else str(lag),
                "owner": owner,
            }
        )
    known = [lag for lag in lags if lag is not None]
    members: list[Json] = [
        {
            "id": member.member_id,
            "client": member.client_id,
            "instance": member.instance_id,
            "host": member.host,
            "epoch": member.member_epoch,
            "present": member.present,
            "partitions": len(member.assignment),
            "target": len(member.target),
        }
        for member in group.members
    ]
    return {
        "id": group.group_id,
        "state": group.state.value,
        "kind": group.kind.value,
        "epoch": group.generation if group.kind is GroupKind.CLASSIC else group.group_epoch,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": members,
        "rows": rows,
        "lag": str(sum(known)) if known else None,
        # Number of partitions whose end or committed offset is not known.
        "unknown": len(lags) - len(known),
    }


def move_shown(tp: TopicPartition, move: PartitionReassignment, copies: Iterable[ReplicaCopy]) -> Thing:
    """Describes a partition that is being moved, with the progress of each copy.

    Arguments:
        copies: the copies that leaders report, of any partitions.
    """
    its: dict[str, Json] = {
        str(copy.node_id): {"size": str(copy.size_bytes), "left": str(copy.left_bytes)}
        for copy in copies
        if (copy.topic, copy.partition) == (tp.topic, tp.partition) and copy.node_id in move.adding_replicas
    }
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": [*move.replicas],
        "adding": [*move.adding_replicas],
        "removing": [*move.removing_replicas],
        "throttle": move.throttle_bytes_per_second,
        "copies": its,
    }
