"""A consumer group: members, their parts of the newest assignment, committed offsets, and the holders of partitions.

The same class serves the log and the drafts, so that the invariants are asserted in both places: a partition has one
holder, epochs never decrease, and no member is ahead of the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.member import STABLE, STATIC_LEAVE_EPOCH, GroupMember, PartitionId
from quorumlog.v1 import groups_pb2
from quorumlog.wire.kafka.control import LogPlace

#: Approximate size of a committed offset, and of a transaction with pending offsets, without their texts.
_OFFSET_BYTES = 48
_TRANSACTION_BYTES = 100


@dataclass(slots=True, frozen=True)
class StoredOffset:
    """A committed offset: the next one to read.

    Arguments:
        leader_epoch: epoch of the last record before it; -1 when unknown.
        commit_timestamp_ms: by the coordinator's clock.
        committer: the member that committed it; empty for a client that is not a member.
        number: number of its commit; 0 if the committer does not count them.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    committer: str = ""
    number: int = 0

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        return _OFFSET_BYTES + len(self.metadata) + len(self.committer)

    def follows(self, other: StoredOffset) -> bool:
        """True if a member has committed both, and this one later, in whichever order they arrived."""
        return bool(self.committer) and self.committer == other.committer and self.number > other.number > 0


@dataclass(slots=True, frozen=True)
class PendingOffset:
    """An offset that takes effect if its transaction is committed.

    Arguments:
        version: the version of the group in which it was stored: of two pending offsets of one partition the later one
            counts, whichever transaction ends first.
    """

    stored: StoredOffset
    version: int

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        return self.stored.size_bytes


@dataclass(slots=True)
class PendingOffsets:
    """The offsets that one producer commits in an open transaction.

    Arguments:
        epoch: epoch of the producer in the transaction.
        place: where the transaction started.
        coordinator: number of the transaction's coordinator.
        offsets: without those that a later commit or deletion has overtaken.
    """

    epoch: int
    place: LogPlace
    coordinator: int
    offsets: dict[PartitionId, PendingOffset] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        return _TRANSACTION_BYTES + sum(each.size_bytes for each in self.offsets.values())


@dataclass(slots=True, frozen=True)
class SubscribedTopic:
    """A topic as the consumer group last saw it.

    Arguments:
        first_partitions: number of partitions when the group started to read it. Those added since hold nothing
            that the group could have intended to skip.
    """

    topic_id: bytes
    name: str
    partitions: int
    first_partitions: int


@dataclass(slots=True, frozen=True)
class GroupHeader:
    """The state of a consumer group other than its members and offsets.

    Arguments:
        group_epoch: counts changes of members, subscriptions and topics.
        assignment_epoch: the group epoch for which the targets were computed.
        assignor: the assignor in use; empty without members.
        empty_since_ms: 0 while it has members.
        topics: the topics on which the targets are based; for a group that lost its members, those as of then.
        unread_topics: topics that it no longer reads and of which members had partitions when the targets were
            computed. Answers still name them until the members have released those partitions.
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
        targets: target partitions by member.
        holders: by partition, the member that has it or has not yet released it.
        instances: member ids by static name.
        classic: state of a classic group. It holds the members then, and the fields above are empty except the offsets.
        pending: offsets in open transactions, by producer id.
        unstable: by partition, the producers that have a pending offset of it.
        size_bytes: approximate size of the members' subscriptions and assignments, of either kind, and of the offsets.
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
    pending: dict[int, PendingOffsets] = field(default_factory=dict)
    unstable: dict[PartitionId, tuple[int, ...]] = field(default_factory=dict)
    size_bytes: int = field(default=0, compare=False)

    @property
    def is_empty(self) -> bool:
        """True if it has no members, of either kind, and none is joining."""
        return not self.members and (self.classic is None or self.classic.is_empty)

    @property
    def kind(self) -> groups_pb2.GroupKind.ValueType:
        """Kind of the group; of a group without members, the kind it had last."""
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
        """Empty, Assigning, Reconciling or Stable; for a classic group, Kafka's name of its state."""
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
        """True if a member has exactly the partitions of the newest assignment."""
        return member.state == STABLE and member.member_epoch == self.header.assignment_epoch

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_header(self, header: GroupHeader) -> None:
        """Replaces the header; its epochs must not decrease."""
        assert header.group_epoch >= self.header.group_epoch, "a group epoch went back"
        assert header.assignment_epoch >= self.header.assignment_epoch, "an assignment epoch went back"
        assert header.assignment_epoch <= header.group_epoch, "an assignment is ahead of its group"
        self.header = header

    def put_members(self, members: Iterable[GroupMember]) -> None:
        """Adds or replaces members. A partition that one of them releases may go to another of them."""
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
        """Removes a member and its part of the assignment."""
        member = self.members.pop(member_id)
        self.size_bytes -= member.size_bytes
        self._release(member)
        self.targets.pop(member_id, None)
        if member.instance_id:
            del self.instances[member.instance_id]

    def put_classic(self, classic: ClassicGroup | None) -> None:
        """Sets the classic state; None turns an empty classic group into one of the other kind."""
        assert classic is not None or self.classic is None or self.classic.is_empty, "a classic group ends with members"
        assert classic is None or not self.members, "a classic group has members of the other kind"
        for each, sign in ((self.classic, -1), (classic, 1)):
            self.size_bytes += sign * each.size_bytes if each is not None else 0
        self.classic = classic

    def put_offset(self, partition: PartitionId, stored: StoredOffset) -> None:
        """Stores a committed offset."""
        before = self.offsets.get(partition)
        self.size_bytes += stored.size_bytes - (before.size_bytes if before is not None else 0)
        self.offsets[partition] = stored

    def remove_offset(self, partition: PartitionId) -> None:
        """Removes a committed offset."""
        self.size_bytes -= self.offsets.pop(partition).size_bytes

    def begin_pending(self, producer_id: int, transaction: PendingOffsets) -> None:
        """Adds a transaction without offsets, unless the producer has that transaction here already."""
        known = self.pending.get(producer_id)
        if known is None:
            assert not transaction.offsets, "offsets are added one by one"
            self.pending[producer_id] = transaction
            self.size_bytes += transaction.size_bytes
        else:
            assert known.place == transaction.place, f"producer {producer_id} has two transactions"

    def put_pending(self, producer_id: int, partition: PartitionId, offset: PendingOffset) -> None:
        """Stores a pending offset of a producer that has a transaction here."""
        offsets = self.pending[producer_id].offsets
        before = offsets.get(partition)
        self.size_bytes += offset.size_bytes - (before.size_bytes if before is not None else 0)
        offsets[partition] = offset
        if before is None:
            self.unstable[partition] = tuple(sorted((*self.unstable.get(partition, ()), producer_id)))

    def overtake(self, producer_id: int, partition: PartitionId) -> None:
        """Removes a pending offset: a later commit or deletion has taken its place."""
        self.size_bytes -= self.pending[producer_id].offsets.pop(partition).size_bytes
        self._settle(producer_id, partition)

    def end_pending(self, producer_id: int) -> PendingOffsets:
        """Removes the transaction of a producer with its pending offsets, and returns it."""
        transaction = self.pending.pop(producer_id)
        self.size_bytes -= transaction.size_bytes
        for partition in transaction.offsets:
            self._settle(producer_id, partition)
        return transaction

    def _settle(self, producer_id: int, partition: PartitionId) -> None:
        left = tuple(each for each in self.unstable.pop(partition) if each != producer_id)
        if left:
            self.unstable[partition] = left

    def put_targets(self, targets: Mapping[str, frozenset[PartitionId]]) -> None:
        """Sets parts of the newest assignment. Call ``check_targets`` once all are set."""
        self.targets.update(targets)

    def check_targets(self) -> None:
        """Asserts that each partition has one reader and a topic that the group reads, and that each member has a
        target."""
        assert self.targets.keys() == self.members.keys(), "targets of others than the members"
        topics = self.header.topics
        seen: set[PartitionId] = set()
        for target in self.targets.values():
            assert seen.isdisjoint(target), "a partition is assigned twice"
            seen |= target
        for topic_id, number in seen:
            topic = topics.get(topic_id)
            assert topic is not None and 0 <= number < topic.partitions, "a target of a topic that no member reads"

    def check_member(self, member: GroupMember) -> None:
        """Asserts that a member is not ahead of the assignment, and has its target if it claims so."""
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
