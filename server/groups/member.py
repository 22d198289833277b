"""A member of a consumer group as the coordinator's log has made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quorumlog.v1 import coordinator_log_pb2

#: A partition: its topic's id and its number.
PartitionId = tuple[bytes, int]

#: Epochs that a heartbeat does not name a membership's state with.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

STABLE = coordinator_log_pb2.MEMBER_STABLE
UNREVOKED = coordinator_log_pb2.MEMBER_UNREVOKED
UNRELEASED = coordinator_log_pb2.MEMBER_UNRELEASED


#: What a member takes beside its texts.
_MEMBER_BYTES = 64


def kept_bytes(topics: Iterable[str], *texts: str) -> int:
    """About how many bytes are kept of a member: topics that it subscribes to, and its other texts."""
    return _MEMBER_BYTES + sum(map(len, texts)) + sum(map(len, topics))


@dataclass(slots=True, frozen=True)
class MemberSubscription:
    """What a member wants to read, and for whom. ``topics`` are sorted; an empty pattern is none, an empty assignor is
    any, an empty principal is not known."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str = ""
    principal: str = ""


@dataclass(slots=True, frozen=True)
class GroupMember:
    """One member. The mappings are never changed in place.

    Arguments:
        member_epoch: the assignment epoch that it has come to; ``STATIC_LEAVE_EPOCH`` of a static member that has left
            and is expected back.
        previous_epoch: the epoch before: an answer that was lost is repeated to a member that still has it.
        assigned: what it has, with the epoch since which it has had it without a break.
        revoking: what it has still to release, likewise. Nobody else is given it before.
        assignment_version: the version of the consumer group since which its epoch and its partitions are as they are.
            A heartbeat that repeats it was sent after the member had heard of them. 0: an older node made the row.
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
        """About how many bytes it takes."""
        wanted = self.subscription
        return kept_bytes(wanted.topics, wanted.pattern, self.member_id, self.instance_id, self.rack)

    @property
    def is_present(self) -> bool:
        """False of a static member that has left and is expected back."""
        return self.member_epoch != STATIC_LEAVE_EPOCH

    def held(self) -> Iterator[PartitionId]:
        """What nobody else may have: what it has, and what it has still to release."""
        yield from self.assigned
        yield from self.revoking

    def held_since(self, partition: PartitionId) -> int | None:
        """The epoch since which it has had a partition without a break; None when it does not have it."""
        since = self.assigned.get(partition)
        return since if since is not None else self.revoking.get(partition)
