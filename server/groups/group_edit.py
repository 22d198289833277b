"""One consumer group as a draft changes it: copies of the changed parts over the state from the log, which is not
modified."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from itertools import chain

from quorumlog.server.deciding.transaction_participants import OpenHere, place_form
from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.classic.classic_records import change_bytes, change_of
from quorumlog.server.groups.group import ConsumerGroup, GroupHeader, PendingOffset, PendingOffsets, StoredOffset
from quorumlog.server.groups.member import GroupMember, PartitionId
from quorumlog.server.groups.records import (
    header_record,
    logged_offset,
    member_record,
    partition_lists,
    pending_record,
    target_record,
)
from quorumlog.v1 import coordinator_log_pb2, groups_pb2
from quorumlog.wire.kafka.control import LogPlace

#: Approximate size of a row in the log without its texts: a partition, a topic's id, an offset, a member.
_PARTITION_BYTES = 3
_TOPIC_BYTES = 24
_OFFSET_BYTES = 48
_MEMBER_BYTES = 64


def _text_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) + 2 for text in texts)


def _partition_bytes(partitions: Collection[PartitionId]) -> int:
    return _PARTITION_BYTES * len(partitions) + _TOPIC_BYTES * len({topic_id for topic_id, _ in partitions})


class OverlaidOffsets(MutableMapping[PartitionId, StoredOffset]):
    """Committed offsets with some changes, without a copy of the rest: there may be a hundred thousand."""

    def __init__(self, base: Mapping[PartitionId, StoredOffset]) -> None:
        self._base = base
        self._count = len(base)
        self.changes: dict[PartitionId, StoredOffset | None] = {}

    def __getitem__(self, partition: PartitionId) -> StoredOffset:
        stored = self.changes[partition] if partition in self.changes else self._base.get(partition)
        if stored is None:
            raise KeyError(partition)
        return stored

    def __setitem__(self, partition: PartitionId, stored: StoredOffset) -> None:
        self._count += partition not in self
        self.changes[partition] = stored

    def __delitem__(self, partition: PartitionId) -> None:
        if partition not in self:
            raise KeyError(partition)
        self._count -= 1
        self.changes[partition] = None

    def __iter__(self) -> Iterator[PartitionId]:
        yield from (partition for partition in self._base if partition not in self.changes)
        yield from (partition for partition, stored in self.changes.items() if stored is not None)

    def __len__(self) -> int:
        return self._count


class GroupEdit:
    """A consumer group that a draft changes.

    Arguments:
        base: state from the log; None if there is no such group.
        version: the versions of a new group start after it.

    ``is_unsettled`` is set when members, subscriptions or topics changed and the targets have not been computed yet.
    """

    def __init__(self, group_id: str, base: ConsumerGroup | None, version: int = 0) -> None:
        self._base = base if base is not None else ConsumerGroup(group_id, version)
        self._is_new = base is None
        self._offsets = OverlaidOffsets(self._base.offsets)
        self._touched: dict[str, None] = {}
        #: Members of the log that were removed, even if a member of the same id has joined since.
        self._removed: set[str] = set()
        self._has_copies = False
        #: True if the classic group of the log has ended, even if another one has started since.
        self._has_ended_classic = False
        #: Producers whose pending offsets changed, and the transactions of the log that have ended.
        self._producers: dict[int, None] = {}
        self._ended: list[coordinator_log_pb2.EndedOffsets] = []
        self.group = ConsumerGroup(
            group_id, self._base.version, self._base.header, self._base.members, self._base.targets, self._offsets,
            self._base.holders, self._base.instances, self._base.classic, self._base.pending, self._base.unstable,
        )  # fmt: skip
        self.is_deleted = False
        self.is_unsettled = False
        self.size_bytes = 0

    @property
    def is_changed(self) -> bool:
        """True if anything differs from the state in the log."""
        return bool(
            self._touched
            or self._offsets.changes
            or self._producers
            or self.group.header is not self._base.header
            or self.group.classic is not self._base.classic
            or self.is_unsettled
            or self.is_deleted
        )

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_header(self, header: GroupHeader) -> None:
        """Sets the state of the group other than members and offsets."""
        topics = chain(header.topics.values(), header.unread_topics.values())
        self.size_bytes += _MEMBER_BYTES + sum(_MEMBER_BYTES + len(topic.name) for topic in topics)
        self.group.put_header(header)

    def begin_empty(self, now_ms: int) -> None:
        """Records since when a group that is created without members is empty."""
        self.put_header(dataclasses.replace(self.group.header, empty_since_ms=now_ms))

    def put_member(self, member: GroupMember) -> None:
        """Adds or replaces a member."""
        if self.group.members.get(member.member_id) == member:
            return
        self._touch(member.member_id)
        subscription = member.subscription
        texts = (member.member_id, member.instance_id, member.rack, member.client_id, member.host, subscription.pattern)
        self.size_bytes += _MEMBER_BYTES + _text_bytes((*texts, *subscription.topics))
        self.size_bytes += _partition_bytes(member.assigned) + _partition_bytes(member.revoking)
        self.group.put_members([member])

    def remove_member(self, member_id: str) -> None:
        """Removes a member and its target."""
        self._touch(member_id)
        self.size_bytes += len(member_id)
        self.group.remove_member(member_id)
        if member_id in self._base.members:
            self._removed.add(member_id)

    def put_targets(self, targets: Mapping[str, frozenset[PartitionId]]) -> None:
        """Sets every member's part of the newest assignment."""
        changed = {member: target for member, target in targets.items() if self.group.targets.get(member) != target}
        for member_id, target in changed.items():
            self._touch(member_id)
            self.size_bytes += len(member_id) + _partition_bytes(target)
        self.group.put_targets(changed)

    def put_classic(self, classic: ClassicGroup | None) -> None:
        """Sets the classic state; None ends the classic group."""
        if classic is not None:
            classic.check()
            self.size_bytes += change_bytes(self.group.classic, classic)
        else:
            self._has_ended_classic = self._base.classic is not None
        self.group.put_classic(classic)

    def put_offset(self, partition: PartitionId, stored: StoredOffset) -> None:
        """Stores a committed offset. The pending ones of the partition are overtaken, except for a later one of the
        same committer."""
        self._store(partition, stored)
        for producer_id in self.group.unstable.get(partition, ()):
            pending = self.group.pending[producer_id].offsets[partition].stored
            if not pending.follows(stored):
                self._overtake(producer_id, partition)

    def _store(self, partition: PartitionId, stored: StoredOffset) -> None:
        self.size_bytes += _OFFSET_BYTES + _text_bytes((stored.metadata,))
        self._offsets[partition] = stored

    def remove_offset(self, partition: PartitionId) -> None:
        """Removes a committed offset, and the pending ones of the partition."""
        if partition in self._offsets:
            self.size_bytes += _OFFSET_BYTES
            del self._offsets[partition]
        for producer_id in self.group.unstable.get(partition, ()):
            self._overtake(producer_id, partition)

    # -- offsets in transactions --------------------------------------------------------------------------------------

    def put_pending(self, transaction: OpenHere, partition: PartitionId, stored: StoredOffset) -> None:
        """Stores an offset that takes effect if its transaction is committed."""
        producer_id, epoch = transaction.identity
        self._touch_producer(producer_id)
        self.size_bytes += _OFFSET_BYTES + _text_bytes((stored.metadata,))
        self.group.begin_pending(producer_id, PendingOffsets(epoch, transaction.place, transaction.coordinator))
        self.group.put_pending(producer_id, partition, PendingOffset(stored, self._base.version + 1))

    def end_pending(self, producer_id: int, decided: LogPlace, *, commit: bool) -> None:
        """Ends the transaction of a producer, whose pending offsets take effect or are dropped. Those that were stored
        later than the committed ones, in other transactions, remain."""
        self._touch_producer(producer_id)
        known = self._base.pending.get(producer_id)
        transaction = self.group.end_pending(producer_id)
        self.size_bytes += _OFFSET_BYTES
        if known is not None and known.place == transaction.place:
            self._ended.append(
                coordinator_log_pb2.EndedOffsets(
                    producer_id=producer_id,
                    place=place_form(transaction.place),
                    decided=place_form(decided),
                    commit=commit,
                )
            )
        for partition, pending in transaction.offsets.items() if commit else ():
            self._store(partition, pending.stored)
            for other in self.group.unstable.get(partition, ()):
                if self.group.pending[other].offsets[partition].version < pending.version:
                    self._overtake(other, partition)

    def _overtake(self, producer_id: int, partition: PartitionId) -> None:
        self._touch_producer(producer_id)
        self.size_bytes += _OFFSET_BYTES
        self.group.overtake(producer_id, partition)

    def _touch_producer(self, producer_id: int) -> None:
        """Copies the pending offsets of a producer before their first change."""
        group = self.group
        if not self._producers:
            group.pending, group.unstable = dict(group.pending), dict(group.unstable)
        if producer_id not in self._producers:
            self._producers[producer_id] = None
            known = group.pending.get(producer_id)
            if known is not None:
                copied = dataclasses.replace(known, offsets=dict(known.offsets))
                group.pending[producer_id] = copied

    def delete(self) -> None:
        """Deletes the consumer group. A later request of the same draft may create it again; its epochs continue."""
        assert self.group.is_empty, "a group ends with members"
        assert not self.group.pending, "a group ends with pending offsets"
        self.put_classic(None)
        for partition in list(self._offsets):
            del self._offsets[partition]
        self.is_deleted = True

    def _touch(self, member_id: str) -> None:
        self._touched[member_id] = None
        if not self._has_copies:
            self._has_copies = True
            group = self.group
            group.members, group.targets = dict(group.members), dict(group.targets)
            group.holders, group.instances = dict(group.holders), dict(group.instances)

    # -- the outcome --------------------------------------------------------------------------------------------------

    def change(self) -> coordinator_log_pb2.GroupChange | None:
        """Returns the changes of the consumer group for the log; None if nothing changed."""
        base, group = self._base, self.group
        if self.is_deleted:
            return None if self._is_new else self._deletion()
        change = self._change(version=base.version + 1)
        if group.header != base.header:
            change.header.CopyFrom(header_record(group.header))
        if self._has_ended_classic:
            self._end_classic(change)
        known = None if self._has_ended_classic else base.classic
        if group.classic is not None and group.classic != known:
            change.classic.CopyFrom(change_of(known, group.classic))
        for member_id in sorted(self._touched):
            self._add_member(change, member_id)
        removed = []
        for partition, stored in sorted(self._offsets.changes.items()):
            before = base.offsets.get(partition)
            if stored is None and before is not None:
                removed.append(partition)
            elif stored is not None and stored != before:
                change.offsets.append(logged_offset(partition, stored))
        change.removed_offsets.extend(partition_lists(removed))
        self._add_pending(change)
        return None if change == self._change(version=base.version + 1) else change

    def _deletion(self) -> coordinator_log_pb2.GroupChange:
        change = self._change(version=0, removed_members=sorted(self._base.members))
        if self._has_ended_classic and self._base.classic is not None and not self._base.classic.is_empty:
            self._end_classic(change)
        change.ended.extend(self._ended)
        return change

    def _add_pending(self, change: coordinator_log_pb2.GroupChange) -> None:
        change.ended.extend(self._ended)
        ended = {row.producer_id for row in self._ended}
        for producer_id in sorted(self._producers):
            now = self.group.pending.get(producer_id)
            if now is None:
                continue
            before = None if producer_id in ended else self._base.pending.get(producer_id)
            known = before.offsets if before is not None else {}
            overtaken = {partition: each for partition, each in known.items() if partition not in now.offsets}
            if overtaken:
                record = pending_record(producer_id, now, {})
                record.offsets.extend(
                    groups_pb2.CommittedOffset(topic_id=topic_id, partition=number)
                    for topic_id, number in sorted(overtaken)
                )
                change.overtaken.append(record)
            stored = {partition: each for partition, each in now.offsets.items() if known.get(partition) != each}
            if stored or before is None:
                change.pending.append(pending_record(producer_id, now, stored))

    def _end_classic(self, change: coordinator_log_pb2.GroupChange) -> None:
        """Ends the classic group. Its members may have left in this very draft, so the log gets all members that it
        still has."""
        change.ends_classic = True
        if self._base.classic is not None:
            change.ended_members.extend(sorted(self._base.classic.members))

    def _add_member(self, change: coordinator_log_pb2.GroupChange, member_id: str) -> None:
        is_other = member_id in self._removed
        before = None if is_other else self._base.members.get(member_id)
        now = self.group.members.get(member_id)
        if is_other:
            change.removed_members.append(member_id)
        if now is None:
            return
        self.group.check_member(now)
        if now != before:
            change.members.append(member_record(now))
        target = self.group.targets[member_id]
        if is_other or target != self._base.targets.get(member_id):
            change.targets.append(target_record(member_id, target))

    def _change(self, version: int, removed_members: Iterable[str] = ()) -> coordinator_log_pb2.GroupChange:
        return coordinator_log_pb2.GroupChange(
            group_id=self.group.group_id,
            base_version=0 if self._is_new else self._base.version,
            version=version,
            removed_members=removed_members,
        )
