"""What an assignor is asked: members, what each may read, and what each is to have at present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorumlog.server.coordinator.group import SubscribedTopic
from quorumlog.server.coordinator.member import PartitionId


@dataclass(slots=True, frozen=True)
class Reader:
    """A member as assignors see it."""

    member_id: str
    instance_id: str
    rack: str
    topics: frozenset[bytes]


@dataclass(slots=True, frozen=True)
class AssignmentInput:
    """A group whose partitions are to be given to its members.

    Arguments:
        readers: in the order of their ids.
        topics: those that somebody subscribes to.
        present: the target as it is, by member.
        holders: who has a partition, or has not released it.
        racks: in which racks a partition has replicas, where that is known and matters.
    """

    readers: Sequence[Reader]
    topics: Mapping[bytes, SubscribedTopic]
    present: Mapping[str, frozenset[PartitionId]]
    holders: Mapping[PartitionId, str]
    racks: Mapping[PartitionId, frozenset[str]]
