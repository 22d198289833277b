"""Decisions in one coordinator's committed log: its groups, the owners of partitions, and committed offsets.

A model beside the replicas. It receives each entry as it is committed, judges it by the earlier ones and by members'
actions, and then determines the required content of a replica's table and snapshots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.simulator.models.classic_model import ModelClassic
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.members_heard import HeardMembers, Removal
from quorumlog.simulator.models.pending_model import ModelPending, TopicIdPartition
from quorumlog.v1 import coordinator_log_pb2 as log
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.wire.entry import ENVELOPE_BYTES

#: In a label: a non-member that commits for a group without members.
OUTSIDER = "-"


class CommitLabel(NamedTuple):
    """The label that simulated members store with each committed offset: it identifies the member."""

    member: str
    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.member} {self.epoch} {self.number}"

    @classmethod
    def parse(cls, text: str) -> CommitLabel:
        """Parses a label written by ``str``."""
        member, epoch, number = text.split()
        return cls(member, int(epoch), int(number))


class EndedInGroup(NamedTuple):
    """A transaction that has ended in a consumer group.

    Arguments:
        decided: where the log of its coordinator has the decision.
    """

    group_id: str
    producer_id: int
    decided: tuple[int, int]
    commit: bool


def _given(groups: Iterable[log.EpochPartitions]) -> dict[TopicIdPartition, int]:
    """Returns partitions with the epoch since which a member owns them."""
    return {
        TopicIdPartition(each.topic_id, number): each.assignment_epoch for each in groups for number in each.partitions
    }


def partitions_of(topics: Iterable[pb.TopicPartitions]) -> frozenset[TopicIdPartition]:
    """Returns partitions as a set."""
    return frozenset(TopicIdPartition(each.topic_id, number) for each in topics for number in each.partitions)


@dataclass(slots=True)
class ModelMember:
    """A member by the log. ``revoking_since_us``: since when it has had partitions to revoke, if it has."""

    row: log.GroupMember
    assigned: dict[TopicIdPartition, int]
    revoking: dict[TopicIdPartition, int]
    revoking_since_us: int | None = None

    @property
    def owned(self) -> dict[TopicIdPartition, int]:
        """Its assigned partitions and those to be released, each with the epoch since which it owns it."""
        return {**self.assigned, **self.revoking}


@dataclass(slots=True)
class ModelGroup:
    """A group by the log."""

    version: int = 0
    header: log.GroupHeader = field(default_factory=log.GroupHeader)
    members: dict[str, ModelMember] = field(default_factory=dict)
    targets: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)
    offsets: dict[TopicIdPartition, pb.CommittedOffset] = field(default_factory=dict)
    classic: ModelClassic | None = None
    pending: ModelPending = field(default_factory=ModelPending)

    def apply(self, change: log.GroupChange, now_us: int) -> None:
        """Applies values without a check."""
        self.version = change.version
        if change.HasField("header"):
            self.header = change.header
        for name in change.removed_members:
            self.members.pop(name, None)
            self.targets.pop(name, None)
        for row in change.members:
            before = self.members.get(row.member_id)
            member = ModelMember(row, _given(row.assigned), _given(row.revoking))
            if member.revoking:
                same_epoch = before is not None and before.row.member_epoch == row.member_epoch
                since = before.revoking_since_us if before is not None and same_epoch else None
                member.revoking_since_us = now_us if since is None else since
            self.members[row.member_id] = member
        if change.ends_classic:
            self.classic = None
        for target in change.targets:
            self.targets[target.member_id] = partitions_of(target.topics)
        for partition in partitions_of(change.removed_offsets):
            self.offsets.pop(partition, None)
        for offset in change.offsets:
            self.offsets[TopicIdPartition(offset.topic_id, offset.partition)] = offset
        self.pending.apply(change)

    def digest(self, group_id: str) -> bytes:
        """Returns a digest of its content, independent of the order of writes."""
        rows: list[object] = [group_id, self.version, _header(self.header)]
        for name in sorted(self.members):
            member = self.members[name]
            plain = log.GroupMember()
            plain.CopyFrom(member.row)
            del plain.assigned[:], plain.revoking[:], plain.topics[:]
            rows.append((plain.SerializeToString(deterministic=True), sorted(member.row.topics)))
            rows.append((sorted(member.assigned.items()), sorted(member.revoking.items())))
            rows.append(sorted(self.targets.get(name, ())))
        for partition in sorted(self.offsets):
            offset = self.offsets[partition]
            place = (offset.offset, offset.leader_epoch, offset.metadata, offset.commit_timestamp_ms)
            rows.append((partition, place, offset.committer, offset.commit_number))
        rows.append(self.classic.digest() if self.classic is not None else None)
        rows.append(self.pending.digest())
        return blake2b(repr(rows).encode(), digest_size=16).digest()


def _ends_classic(group: ModelGroup, change: log.GroupChange) -> bool:
    """True if nothing of a classic group is left: it was empty, or its last members left in this very change."""
    if group.classic is None or group.classic.is_empty:
        return True
    return change.ends_classic and group.classic.members.keys() == set(change.ended_members)


def _header(header: log.GroupHeader) -> object:
    topics, unread = (
        sorted((each.topic_id, each.topic, each.partitions, each.first_partitions) for each in rows)
        for rows in (header.topics, header.unread_topics)
    )
    return (header.group_epoch, header.assignment_epoch, header.assignor, header.empty_since_ms, topics, unread)


def groups_in(snapshot: log.GroupsSnapshot) -> dict[str, ModelGroup]:
    """Returns the groups in a snapshot."""
    groups: dict[str, ModelGroup] = {}
    for change in snapshot.groups:
        group = groups[change.group_id] = ModelGroup()
        group.apply(change, 0)
        if change.HasField("classic"):
            group.classic = ModelClassic()
            group.classic.apply(change.classic)
    return groups


def _whole(metadata_index: int, digests: Mapping[str, bytes]) -> bytes:
    """Returns a digest of a whole table from the digests of its groups."""
    whole = blake2b(metadata_index.to_bytes(8, "big"), digest_size=16)
    for name in sorted(digests):
        whole.update(digests[name])
    return whole.digest()


@dataclass(slots=True)
class CoordinatorModel:
    """The committed log of one coordinator.

    Arguments:
        raft_group: its Raft group, for messages.
        heard: members' requests to nodes.
        end_of: returns the end of a partition's committed log; None if the partition is unknown.
        clock_error: maximum deviation of a node's clock, as a share.
        committed: by consumer group and partition: when (µs) each offset was committed; -1 for a deletion.
        outcomes: by the label of a commit in a transaction: whether that was committed.
        ended: the transactions that have ended in a group.
    """

    raft_group: int
    heard: HeardMembers
    end_of: Callable[[TopicIdPartition], int | None]
    clock_error: float = 0.0
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    commands: int = 0
    metadata_index: int = 0
    committed: dict[tuple[str, TopicIdPartition], list[tuple[int, int]]] = field(default_factory=dict)
    outcomes: dict[str, bool] = field(default_factory=dict)
    ended: list[EndedInGroup] = field(default_factory=list)
    _digests: dict[str, bytes] = field(default_factory=dict)
    _history: list[tuple[int, bytes]] = field(default_factory=lambda: [(0, _whole(0, {}))])

    # -- log entries -----------------------------------------------------------------------------------------------

    def commit(self, entry: Entry, now_us: int, elected_us: int) -> None:
        """Applies the next committed entry.

        Arguments:
            now_us: the virtual time.
            elected_us: when the leader that proposed it was elected.

        Raises:
            Violation: no leader should have proposed it.
        """
        if entry.kind is not EntryKind.COMMAND:
            return
        command = log.GroupCommand.FromString(entry.data[ENVELOPE_BYTES:])
        self.commands += 1
        for change in command.changes:
            self._change(entry.index, change, now_us, elected_us)
        if command.metadata_index < self.metadata_index:
            raise Violation(
                f"group {self.raft_group}, entry {entry.index}: it was decided as of metadata entry"
                f" {command.metadata_index}, after {self.metadata_index}"
            )
        self.metadata_index = command.metadata_index
        self._history.append((entry.index, _whole(self.metadata_index, self._digests)))

    def _change(self, index: int, change: log.GroupChange, now_us: int, elected_us: int) -> None:
        name = change.group_id
        where = f"group {self.raft_group}, entry {index}, consumer group {name}"
        before = self.groups.get(name, ModelGroup())
        if change.base_version != before.version:
            raise Violation(f"{where}: it is based on version {change.base_version}, the log has {before.version}")
        for member in change.removed_members:
            if member in before.members:
                self._removed(where, name, before.members[member], change, now_us, elected_us)
        commits = before.pending.judge(where, change)
        for offset in commits:
            self._committed(where, before, offset)
        for record in change.pending:
            for offset in record.offsets:
                self._owned_by_committer(where, before, offset, in_transaction=True)
        self._note_offsets(name, before, change, now_us)
        self._note_ended(name, before, change)
        if change.version == 0:
            self.groups.pop(name, None)
            self._digests.pop(name, None)
            if before.members.keys() - set(change.removed_members) or not _ends_classic(before, change):
                raise Violation(f"{where}: it is deleted with members: {before}")
            return
        if change.ends_classic and not _ends_classic(before, change):
            raise Violation(f"{where}: it ends as a classic group with members: {before.classic}")
        epochs = (before.header.group_epoch, before.header.assignment_epoch)
        changed = [(before.members.get(row.member_id), row) for row in change.members]
        group = self.groups.setdefault(name, before)
        group.apply(change, now_us)
        group.pending.judge_order(where, commits, change.version)
        self._judge_classic(where, group, change)
        self._check_epochs(where, epochs, group)
        self._check_owners(where, group)
        for earlier, row in changed:
            if earlier is not None and row.member_epoch >= 0:
                self._check_version(where, name, earlier, row, change.version)
        self._digests[name] = group.digest(name)

    def _judge_classic(self, where: str, group: ModelGroup, change: log.GroupChange) -> None:
        if not change.HasField("classic"):
            return
        if group.members:
            raise Violation(f"{where}: it has members of both kinds")
        if group.classic is None:
            group.classic = ModelClassic()
        group.classic.judge(where, change.classic)

    def _note_offsets(self, name: str, before: ModelGroup, change: log.GroupChange, now_us: int) -> None:
        removed = before.offsets if change.version == 0 else partitions_of(change.removed_offsets)
        for partition in removed:
            self.committed.setdefault((name, partition), []).append((now_us, -1))
        for each in change.offsets:
            partition = TopicIdPartition(each.topic_id, each.partition)
            self.committed.setdefault((name, partition), []).append((now_us, each.offset))

    def _note_ended(self, name: str, before: ModelGroup, change: log.GroupChange) -> None:
        for ended in change.ended:
            for label in before.pending.open[ended.producer_id].labels:
                self.outcomes[label] = ended.commit
            place = (ended.decided.term, ended.decided.index)
            self.ended.append(EndedInGroup(name, ended.producer_id, place, ended.commit))
        # One entry may store offsets and end their transaction.
        self.outcomes |= {offset.metadata: True for offset in change.offsets}

    def _removed(
        self, where: str, name: str, member: ModelMember, change: log.GroupChange, now_us: int, elected_us: int
    ) -> None:
        """Judges a removal: the member leaves, its name has a new bearer, or it was silent for its session."""
        row = member.row
        if row.instance_id and any(each.instance_id == row.instance_id for each in change.members):
            self.heard.removed(name, row.member_id, now_us, Removal.REPLACED)
            return
        if self.heard.has_left(name, row.member_id):
            self.heard.removed(name, row.member_id, now_us, Removal.LEFT)
            return
        silent_us = now_us - max(self.heard.last_us(name, row.member_id), elected_us)
        if silent_us >= row.session_timeout_ms * 1_000 * (1 - self.clock_error):
            self.heard.removed(name, row.member_id, now_us, Removal.SILENT)
            return
        since_us = member.revoking_since_us
        overdue_us = -1 if since_us is None else now_us - max(since_us, elected_us)
        if overdue_us >= row.rebalance_timeout_ms * 1_000 * (1 - self.clock_error):
            self.heard.removed(name, row.member_id, now_us, Removal.OVERDUE)
            return
        raise Violation(
            f"{where}: {row.member_id} is removed, although its last heartbeat was {silent_us} µs ago (session"
            f" {row.session_timeout_ms} ms) and it has had partitions to revoke for {overdue_us} µs (rebalance time-out"
            f" {row.rebalance_timeout_ms} ms)"
        )

    def _committed(self, where: str, before: ModelGroup, offset: pb.CommittedOffset) -> None:
        """Judges a commit that takes effect at once. A member may replace a commit of its own by a later one, but no
        other's.
        """
        partition = TopicIdPartition(offset.topic_id, offset.partition)
        label = CommitLabel.parse(offset.metadata)
        known = before.offsets.get(partition)
        if known is not None and known.offset > offset.offset and label.member != OUTSIDER:
            earlier = CommitLabel.parse(known.metadata)
            if earlier.member != label.member or earlier.number >= label.number:
                raise Violation(
                    f"{where}: committed of {partition} goes back from {known.offset} ({earlier}) to {offset.offset}"
                    f" ({label})"
                )
        self._owned_by_committer(where, before, offset, in_transaction=False)

    def _owned_by_committer(
        self, where: str, before: ModelGroup, offset: pb.CommittedOffset, *, in_transaction: bool
    ) -> None:
        """Judges who commits: only an owner does, in the epoch that assigned it the partition or a later one of its
        own; a partition without an owner, a member in its present epoch. A producer that names no member may commit in
        a transaction.
        """
        partition, label = TopicIdPartition.of(offset), CommitLabel.parse(offset.metadata)
        end = self.end_of(partition)
        if end is not None and offset.offset > end:
            raise Violation(f"{where}: {offset.offset} of {partition} is committed, its log ends at {end}")
        if before.classic is not None and label.member != OUTSIDER:
            before.classic.judge_commit(where, label.member, label.epoch)
            return
        if label.member == OUTSIDER:
            if in_transaction:
                return
            if before.members or (before.classic is not None and not before.classic.is_empty):
                raise Violation(f"{where}: a non-member commits {offset.offset} of {partition}")
            return
        owners = {name: each for name, each in sorted(before.members.items()) if partition in each.owned}
        member = before.members.get(label.member)
        first = member.row.member_epoch if member is not None and not owners else None
        if label.member in owners:
            first = owners[label.member].owned[partition]
        if member is None or first is None or not first <= label.epoch <= member.row.member_epoch:
            belongs = [
                f"{name} since epoch {each.owned[partition]} (now {each.row.member_epoch})"
                for name, each in owners.items()
            ]
            raise Violation(
                f"{where}: offset {offset.offset} of {partition} is committed by {label.member} in epoch"
                f" {label.epoch}; it belongs to {', '.join(belongs) or 'no member'}"
            )

    def _check_version(self, where: str, name: str, before: ModelMember, row: log.GroupMember, version: int) -> None:
        """Checks that a member's assignment changes only under a new version, and that it is not deprived of partitions
        that it is processing: those that it no longer reports in a heartbeat it has released by then.
        """
        assigned, revoking = _given(row.assigned), _given(row.revoking)
        worked_on = self.heard.works_on(name, row.member_id, before.owned.keys() - assigned.keys() - revoking.keys())
        if worked_on:
            raise Violation(f"{where}: {worked_on} are taken from {row.member_id}, which is processing them")
        same_epoch = before.row.member_epoch == row.member_epoch
        if same_epoch and (before.assigned, before.revoking) == (assigned, revoking):
            return
        if row.assignment_version != version:
            raise Violation(
                f"{where}: what {row.member_id} has changes in version {version} and is of {row.assignment_version}"
            )

    def _check_epochs(self, where: str, before: tuple[int, int], group: ModelGroup) -> None:
        header = group.header
        after = (header.group_epoch, header.assignment_epoch)
        if after[0] < before[0] or after[1] < before[1] or after[1] > after[0]:
            raise Violation(f"{where}: epochs go from {before} to {after} (of the group, of its targets)")
        for name, member in sorted(group.members.items()):
            if member.row.member_epoch > header.assignment_epoch:
                raise Violation(
                    f"{where}: {name} is in epoch {member.row.member_epoch}, the targets in {header.assignment_epoch}"
                )

    def _check_owners(self, where: str, group: ModelGroup) -> None:
        """Checks that ``assigned`` and ``revoking`` of all members are disjoint: only a partition without an owner is
        assigned.
        """
        owners: dict[TopicIdPartition, str] = {}
        for name, partition in self._owned(group):
            other = owners.setdefault(partition, name)
            if other != name:
                raise Violation(f"{where}: {partition} belongs to both {other} and {name}")
        for name, member in sorted(group.members.items()):
            twice = member.assigned.keys() & member.revoking.keys()
            if twice:
                raise Violation(f"{where}: {name} has {sorted(twice)} and must revoke them")

    @staticmethod
    def _owned(group: ModelGroup) -> Iterator[tuple[str, TopicIdPartition]]:
        for name, member in sorted(group.members.items()):
            for partition in sorted(member.owned):
                yield name, partition

    # -- state of replicas -------------------------------------------------------------------------------------------

    def check_table(self, what: str, applied: int, data: bytes) -> None:
        """Judges the table of a replica that has applied the entry at ``applied``.

        Arguments:
            what: description of the table, for the message.
            data: its GroupsSnapshot.

        Raises:
            Violation: it differs from the log.
        """
        snapshot = log.GroupsSnapshot.FromString(data)
        if snapshot.applied_index != applied:
            raise Violation(f"{what} calls itself a state of entry {snapshot.applied_index}; it is of {applied}")
        held = groups_in(snapshot)
        expected = self._history[bisect_right(self._history, applied, key=lambda each: each[0]) - 1][1]
        if _whole(snapshot.metadata_index, {name: group.digest(name) for name, group in held.items()}) != expected:
            raise Violation(f"{what} as of entry {applied} is not what the log says: {self._difference(held)}")

    def _difference(self, held: dict[str, ModelGroup]) -> str:
        """Compares a table with the newest state, which need not be of that entry, for a message."""
        names = [
            name
            for name in sorted(held.keys() | self.groups.keys())
            if name not in held or name not in self.groups or held[name].digest(name) != self.groups[name].digest(name)
        ]
        return "; ".join(f"{name}: held {held.get(name)}, newest {self.groups.get(name)}" for name in names[:2])
