"""The consumer groups of one coordinator, as its log has made them. Pure, and the same on every replica.

Applying stores values. The leader decided what they are, from the state after the preceding entries (``Draft``); the
version of each consumer group identifies that state.
"""

from __future__ import annotations

from quorumlog.raft.types import ORIGIN, EntryId
from quorumlog.server.groups.classic import classic_records
from quorumlog.server.groups.group import ConsumerGroup, PendingOffset
from quorumlog.server.groups.records import header_of, member_of, offset_of, partitions_of, pending_of, whole_group
from quorumlog.v1 import coordinator_log_pb2


class GroupTable:
    """Consumer groups by id.

    Attributes:
        metadata_index: index of the metadata log that the decisions were based on; a leader needs at least that much.
        with_pending: the ids of the consumer groups with offsets in open transactions.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.with_pending: dict[str, None] = {}
        self.metadata_index = 0
        #: Approximate size of all consumer groups.
        self.size_bytes = 0

    def apply(self, command: coordinator_log_pb2.GroupCommand, entry: EntryId = ORIGIN) -> set[str]:
        """Applies one committed command; returns the ids of the consumer groups that it changed.

        Arguments:
            entry: its entry in the log, which makes no difference to consumer groups.

        Raises:
            AssertionError: the command is not based on this state, or would break an invariant of the groups. The
                node must stop: continuing would make replicas diverge.
        """
        changed: set[str] = set()
        for change in command.changes:
            assert change.group_id not in changed, f"group {change.group_id} changes twice in one command"
            known = self.groups.get(change.group_id)
            version = known.version if known is not None else 0
            assert change.base_version == version, (
                f"a change of group {change.group_id} is based on version {change.base_version}, not {version}"
            )
            # Versions of a new group start after all versions of a former one of its name.
            follows = change.version in (0, version + 1) if known is not None else change.version > 0
            assert follows, f"group {change.group_id} skips versions"
            self._count(known, change)
            changed.add(change.group_id)
        self.metadata_index = max(self.metadata_index, command.metadata_index)
        return changed

    def _count(self, group: ConsumerGroup | None, change: coordinator_log_pb2.GroupChange) -> None:
        """Changes a group, and updates the size of all."""
        before = group.size_bytes if group is not None else 0
        self._change(group, change)
        after = self.groups.get(change.group_id)
        if after is not None and after.pending:
            self.with_pending[change.group_id] = None
        else:
            self.with_pending.pop(change.group_id, None)
        self.size_bytes += (after.size_bytes if after is not None else 0) - before

    def _change(self, group: ConsumerGroup | None, change: coordinator_log_pb2.GroupChange) -> None:
        if change.ends_classic:
            self._end_classic(group, change)
        if change.version == 0:
            assert group is not None and group.members.keys() == set(change.removed_members), (
                f"group {change.group_id} ends with members"
            )
            assert group.classic is None or group.classic.is_empty, f"group {change.group_id} ends with members"
            ended = {row.producer_id for row in change.ended}
            assert group.pending.keys() == ended, f"group {change.group_id} ends with pending offsets"
            del self.groups[change.group_id]
            return
        if group is None:
            group = self.groups[change.group_id] = ConsumerGroup(change.group_id)
        group.version = change.version
        if change.HasField("header"):
            group.put_header(header_of(change.header))
        for member_id in change.removed_members:
            group.remove_member(member_id)
        if change.HasField("classic"):
            group.put_classic(classic_records.changed(group.classic, change.classic))
        members = [member_of(record) for record in change.members]
        group.put_members(members)
        group.put_targets({row.member_id: frozenset(partitions_of(row.topics)) for row in change.targets})
        if change.targets or change.removed_members or change.HasField("header"):
            group.check_targets()
        for member in members:
            group.check_member(member)
        for partition in partitions_of(change.removed_offsets):
            group.remove_offset(partition)
        for record in change.offsets:
            group.put_offset((record.topic_id, record.partition), offset_of(record))
        if change.ended or change.overtaken or change.pending:
            self._change_pending(group, change)

    @staticmethod
    def _change_pending(group: ConsumerGroup, change: coordinator_log_pb2.GroupChange) -> None:
        for row in change.ended:
            group.end_pending(row.producer_id)
        for record in change.overtaken:
            for offset in record.offsets:
                group.overtake(record.producer.producer_id, (offset.topic_id, offset.partition))
        for record in change.pending:
            producer_id = record.producer.producer_id
            group.begin_pending(producer_id, pending_of(record))
            for offset in record.offsets:
                stored = PendingOffset(offset_of(offset), record.version or change.version)
                group.put_pending(producer_id, (offset.topic_id, offset.partition), stored)

    @staticmethod
    def _end_classic(group: ConsumerGroup | None, change: coordinator_log_pb2.GroupChange) -> None:
        """Ends a classic group. If its last members leave in the same entry, that entry names them."""
        assert group is not None and group.classic is not None, f"group {change.group_id} is not classic"
        assert group.classic.members.keys() == set(change.ended_members), f"group {change.group_id} ends with members"
        group.put_classic(group.classic.emptied())
        group.put_classic(None)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def to_snapshot(self, applied_index: int) -> bytes:
        """Returns the whole state, as of an index of the log."""
        return coordinator_log_pb2.GroupsSnapshot(
            groups=[whole_group(group) for _, group in sorted(self.groups.items())],
            applied_index=applied_index,
            metadata_index=self.metadata_index,
        ).SerializeToString()

    @classmethod
    def from_snapshot(cls, data: bytes) -> tuple[GroupTable, int]:
        """Returns the table that ``to_snapshot`` wrote, and its index.

        Raises:
            google.protobuf.message.DecodeError: the bytes are not a snapshot.
        """
        snapshot = coordinator_log_pb2.GroupsSnapshot.FromString(data)
        table = cls()
        table.metadata_index = snapshot.metadata_index
        for change in snapshot.groups:
            table._count(None, change)
        return table, snapshot.applied_index
