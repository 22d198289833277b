"""Where partitions end and how fast they grow, how far consumer groups are in them, and how far moves of them are."""

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

#: How much of a new rate counts: a second's look at what comes in bursts would jump.
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
    """The end of each partition that was asked for, and records per second."""

    def __init__(self) -> None:
        self._growth: dict[TopicPartition, _Growth] = {}

    def take(self, tp: TopicPartition, topic_id: str, end: int, asked_s: float) -> None:
        """Takes in where a partition ends.

        Arguments:
            topic_id: of its topic: one that has been created anew begins anew.
        """
        known = self._growth.get(tp)
        if known is None or known.topic_id != topic_id:
            self._growth[tp] = _Growth(topic_id, end, asked_s)
            return
        passed_s = asked_s - known.asked_s
        if end < known.end or passed_s <= 0:
            return  # An answer that was overtaken.
        rate = (end - known.end) / passed_s
        known.rate = rate if known.rate is None else known.rate + _NEW_RATE_WEIGHT * (rate - known.rate)
        known.end, known.asked_s = end, asked_s

    def describe(self, tp: TopicPartition, start: int, size_bytes: int | None) -> None:
        """Takes in where a log begins, of which the end is known, and what it takes on a disk."""
        known = self._growth[tp]
        known.start, known.size_bytes = start, size_bytes

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets all others: nobody looks at them any more."""
        wanted = set(partitions)
        self._growth = {tp: growth for tp, growth in self._growth.items() if tp in wanted}

    def end(self, tp: TopicPartition) -> int | None:
        """Where a partition ends; None if that is not known."""
        known = self._growth.get(tp)
        return None if known is None else known.end

    def start(self, tp: TopicPartition) -> int:
        """The first offset of a partition's log; 0 if it is not known."""
        known = self._growth.get(tp)
        return 0 if known is None or known.start is None else known.start

    def things(self) -> dict[str, Thing]:
        """The ends, for the picture."""
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
    """Records per second, with as many digits as mean something: what stands still goes to 0."""
    return round(rate) if rate >= 10 else round(rate, 1)


def group_detail(group: GroupDescription, ends: PartitionEnds) -> Thing:
    """A group with its members, and a row for each partition: what it has committed, the end, the lag, the owner."""
    committed = group.offsets or {}
    owners = {tp: number for number, member in enumerate(group.members) for tp in member.assignment}
    rows: list[Json] = []
    lags: list[int | None] = []
    for tp in sorted(committed.keys() | owners.keys()):
        at, end, owner = committed.get(tp), ends.end(tp), owners.get(tp)
        if at is not None and end is not None:
            end = max(end, at.offset)  # A commit may be newer than the look at the end: so far it goes at least.
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
        # Of how many of its partitions the end, or what is committed, is not known.
        "unknown": len(lags) - len(known),
    }


def move_shown(tp: TopicPartition, move: PartitionReassignment, copies: Iterable[ReplicaCopy]) -> Thing:
    """A partition that is being moved, with what of each copy is there yet.

    Arguments:
        copies: that leaders tell of, of whichever partitions.
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
