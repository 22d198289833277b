"""A member of a consumer group as the coordinator's log has made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quorumlog.v1 import coordinator_log_pb2

#: A partition: its topic's id and its number.
PartitionId = tuple[bytes, int]

#: Special epochs in a heartbeat, which do not name the state of a membership.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

STABLE = coordinator_log_pb2.MEMBER_STABLE
UNREVOKED = coordinator_log_pb2.MEMBER_UNREVOKED
UNRELEASED = coordinator_log_pb2.MEMBER_UNRELEASED


#: Approximate size of a member without its texts.
_MEMBER_BYTES = 64


def kept_bytes(topics: Iterable[str], *texts: str) -> int:
    """Returns the approximate size of a member in bytes: the topics that it subscribes to, and its other texts."""
    return _MEMBER_BYTES + sum(map(len, texts)) + sum(map(len, topics))


@dataclass(slots=True, frozen=True)
class MemberSubscription:
    """The subscription of a member and its principal.

    ``topics`` are sorted; an empty pattern means none, an empty assignor any assignor, an empty principal an unknown
    one.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str = ""
    principal: str = ""


@dataclass(slots=True, frozen=True)
class GroupMember:
    """One member. The mappings are never changed in place.

    Arguments:
        member_epoch: the assignment epoch that it has reached; ``STATIC_LEAVE_EPOCH`` for a static member that has left
            and is expected to return.
        previous_epoch: the epoch before: a member that still has it gets a lost answer again.
        assigned: the partitions that it has, with the epoch since which it has had each without a break.
        revoking: the partitions that it still has to release, likewise. No other member gets them before.
        assignment_version: the version of the consumer group in which its epoch and its partitions last changed. A
            heartbeat that repeats it was sent after the member had received them. 0 if an older node wrote the row.
    """

    member_id: str
    instance_id: str = ""
    rack: str = ""
    client_id: str = ""
    host: str = ""
    rebalance_timeout_ms: int = 0
    session_timeout_ms: int = 0
    subscription: MemberSubscription = MemberSubscription()
    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: coordinator_log_pb2.MemberState.ValueType = STABLE
    assigned: Mapping[PartitionId, int] = field(default_factory=dict)
    revoking: Mapping[PartitionId, int] = field(default_factory=dict)
    assignment_version: int = 0

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        wanted = self.subscription
        return kept_bytes(wanted.topics, wanted.pattern, self.member_id, self.instance_id, self.rack)

    @property
    def is_present(self) -> bool:
        """False for a static member that has left and is expected to return."""
        return self.member_epoch != STATIC_LEAVE_EPOCH

    def held(self) -> Iterator[PartitionId]:
        """Yields the partitions that no other member may have: those it has, and those it still has to release."""
        yield from self.assigned
        yield from self.revoking

    def held_since(self, partition: PartitionId) -> int | None:
        """Returns the epoch since which it has had a partition without a break; None if it does not have it."""
        since = self.assigned.get(partition)
        return since if since is not None else self.revoking.get(partition)
