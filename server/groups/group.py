"""A consumer group: members, their parts of the newest assignment, committed offsets, and who has which partition.

The same object takes what the log says and what a draft decides, so that the rules which must never break are asserted
in both places: a partition has one holder, epochs do not go back, and nobody is ahead of the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.member import STABLE, STATIC_LEAVE_EPOCH, GroupMember, PartitionId
from quorumlog.v1 import groups_pb2

#: What a committed offset takes beside its texts.
_OFFSET_BYTES = 48


@dataclass(slots=True, frozen=True)
class StoredOffset:
    """A committed offset: the next one to read.

    Arguments:
        leader_epoch: of the last record before it; -1 when unknown.
        commit_timestamp_ms: by the coordinator's clock.
        committer: the member that committed it; empty for a client that is none.
        number: of its commit; 0 where it does not count them.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    committer: str = ""
    number: int = 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes it takes."""
        return _OFFSET_BYTES + len(self.metadata) + len(self.committer)


@dataclass(slots=True, frozen=True)
class SubscribedTopic:
    """A topic as the consumer group last saw it.

    Arguments:
        first_partitions: how many partitions it had when the group began to read it. Those added since hold nothing
            that the group could have meant to skip.
    """

    topic_id: bytes
    name: str
    partitions: int
    first_partitions: int


@dataclass(slots=True, frozen=True)
class GroupHeader:
    """What a consumer group has beside members and offsets.

    Arguments:
        group_epoch: counts changes of members, subscriptions and topics.
        assignment_epoch: the group epoch for which the targets were computed.
        assignor: in use; empty without members.
        empty_since_ms: 0 while it has members.
        topics: on which the targets are based; of a group that lost its members, as they were.
        unread_topics: those that it reads no more and of which members had partitions when the targets were computed.
            Until they have given them up, answers tell of them as before.
    """

    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    empty_since_ms: int = 0
    topics: Mapping[bytes, SubscribedTopic] = field(default_factory=dict)
    unread_topics: Mapping[bytes, SubscribedTopic] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerGroup:
    """One consumer group.

    Arguments:
        version: counts the log's changes of it.
        targets: by member: what it is to have.
        holders: by partition: who has it or has not yet released it.
        instances: by static name: the member of that name.
        classic: what it is if it is a classic group; the members are there then, and all above but the offsets is not.
        size_bytes: about what its members say and have been given takes, of either kind, and its offsets.
    """

    group_id: str
    version: int = 0
    header: GroupHeader = GroupHeader()
    members: dict[str, GroupMember] = field(default_factory=dict)
    targets: dict[str, frozenset[PartitionId]] = field(default_factory=dict)
    offsets: MutableMapping[PartitionId, StoredOffset] = field(default_factory=dict)
    holders: dict[PartitionId, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    classic: ClassicGroup | None = None
    size_bytes: int = field(default=0, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, of either kind, and nobody joins."""
        return not self.members and (self.classic is None or self.classic.is_empty)

    @property
    def kind(self) -> groups_pb2.GroupKind.ValueType:
        """Of which kind it is; without members, of which it was last."""
        return groups_pb2.GROUP_KIND_CONSUMER if self.classic is None else groups_pb2.GROUP_KIND_CLASSIC

    @property
    def group_epoch(self) -> int:
        """Counts changes of members, subscriptions and topics."""
        return self.header.group_epoch

    @property
    def assignment_epoch(self) -> int:
        """The group epoch for which the targets were computed."""
        return self.header.assignment_epoch

    @property
    def state(self) -> groups_pb2.GroupState.ValueType:
        """Empty, Assigning, Reconciling or Stable; of a classic group as Kafka names it."""
        if self.classic is not None:
            return self.classic.state
        if not self.members:
            return groups_pb2.GROUP_EMPTY
        if self.header.assignment_epoch < self.header.group_epoch:
            return groups_pb2.GROUP_ASSIGNING
        if all(self.has_arrived(member) for member in self.members.values() if member.is_present):
            return groups_pb2.GROUP_STABLE
        return groups_pb2.GROUP_RECONCILING

    def has_arrived(self, member: GroupMember) -> bool:
        """Whether a member has all that the newest assignment gives it, and nothing else."""
        return member.state == STABLE and member.member_epoch == self.header.assignment_epoch

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_header(self, header: GroupHeader) -> None:
        """Sets what it has beside members and offsets."""
        assert header.group_epoch >= self.header.group_epoch, "a group epoch went back"
        assert header.assignment_epoch >= self.header.assignment_epoch, "an assignment epoch went back"
        assert header.assignment_epoch <= header.group_epoch, "an assignment is ahead of its group"
        self.header = header

    def put_members(self, members: Iterable[GroupMember]) -> None:
        """Sets members that are new or changed. What one of them releases another of them may have."""
        members = list(members)
        assert not members or self.classic is None, "a classic group has members of the other kind"
        for member in members:
            before = self.members.get(member.member_id)
            if before is not None:
                self._follows(before, member)
                self._release(before)
                self.size_bytes -= before.size_bytes
        for member in members:
            self._hold(member)
            self.members[member.member_id] = member
            self.size_bytes += member.size_bytes
            if member.instance_id:
                holder = self.instances.setdefault(member.instance_id, member.member_id)
                assert holder == member.member_id, f"{holder} and {member.member_id} have the same static name"

    def remove_member(self, member_id: str) -> None:
        """A member is no more, and its part of the assignment with it."""
        member = self.members.pop(member_id)
        self.size_bytes -= member.size_bytes
        self._release(member)
        self.targets.pop(member_id, None)
        if member.instance_id:
            del self.instances[member.instance_id]

    def put_classic(self, classic: ClassicGroup | None) -> None:
        """It is a classic group, or becomes one of the other kind."""
        assert classic is not None or self.classic is None or self.classic.is_empty, "a classic group ends with members"
        assert classic is None or not self.members, "a classic group has members of the other kind"
        for each, sign in ((self.classic, -1), (classic, 1)):
            self.size_bytes += sign * each.size_bytes if each is not None else 0
        self.classic = classic

    def put_offset(self, partition: PartitionId, stored: StoredOffset) -> None:
        """Keeps a committed offset."""
        before = self.offsets.get(partition)
        self.size_bytes += stored.size_bytes - (before.size_bytes if before is not None else 0)
        self.offsets[partition] = stored

    def remove_offset(self, partition: PartitionId) -> None:
        """A committed offset is kept no more."""
        self.size_bytes -= self.offsets.pop(partition).size_bytes

    def put_targets(self, targets: Mapping[str, frozenset[PartitionId]]) -> None:
        """Sets parts of the newest assignment. ``check_targets`` follows when all is set."""
        self.targets.update(targets)

    def check_targets(self) -> None:
        """Each partition is to have one reader, of a topic that the group reads; each member has its part."""
        assert self.targets.keys() == self.members.keys(), "targets of others than the members"
        topics = self.header.topics
        seen: set[PartitionId] = set()
        for target in self.targets.values():
            assert seen.isdisjoint(target), "a partition is assigned twice"
            seen |= target
        for topic_id, number in seen:
            topic = topics.get(topic_id)
            assert topic is not None and 0 <= number < topic.partitions, "a target of a topic that nobody reads"

    def check_member(self, member: GroupMember) -> None:
        """A member is not ahead of the assignment, and has it when it says so."""
        assert member.member_epoch <= self.header.assignment_epoch, f"{member.member_id} is ahead of the assignment"
        if self.has_arrived(member):
            assert member.assigned.keys() == self.targets[member.member_id], f"{member.member_id} is not where it says"
            assert not member.revoking, f"{member.member_id} has arrived with partitions to release"

    def _follows(self, before: GroupMember, member: GroupMember) -> None:
        left = STATIC_LEAVE_EPOCH in (before.member_epoch, member.member_epoch)
        assert left or member.member_epoch >= before.member_epoch, f"the epoch of {member.member_id} went back"
        assert member.instance_id == before.instance_id, f"{member.member_id} changed its static name"

    def _hold(self, member: GroupMember) -> None:
        for partition in member.held():
            holder = self.holders.setdefault(partition, member.member_id)
            assert holder == member.member_id, f"{partition} has two holders: {holder} and {member.member_id}"
        assert member.assigned.keys().isdisjoint(member.revoking), f"{member.member_id} has what it releases"

    def _release(self, member: GroupMember) -> None:
        for partition in member.held():
            del self.holders[partition]
