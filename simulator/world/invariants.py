"""Invariants that must hold after every step of any node, checked incrementally: only what the step touched is checked.

The checker keeps one model of the whole cluster: per group the committed log (from the first node that had learned an
entry to be committed), the leader of each term, and every entry's hash by (index, term). Since entries are chained by
hash, equal ids at one place mean equal logs up to there, so single comparisons stand for whole prefixes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quorumlog.raft.membership import after_joint
from quorumlog.raft.quorum import Halves
from quorumlog.raft.types import (
    NO_NODE,
    AppendResponse,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    HardState,
    Message,
    Snapshot,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.records import FIRST_PARTITION_GROUP, METADATA_GROUP, PartitionRecord
from quorumlog.server.metadata.topic_table import TopicTable
from quorumlog.server.partition.partition import META_ROW, Partition, decode_meta
from quorumlog.server.partition.witness import WITNESS_ROW, is_witness
from quorumlog.simulator.models.committed_partition import CommittedBatch, CommittedPartition, Violation
from quorumlog.simulator.models.coordinator_models import CoordinatorModels
from quorumlog.simulator.models.records import values_of
from quorumlog.simulator.models.transaction_models import TransactionModels
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup
from quorumlog.simulator.world.settings_judge import SettingsJudge
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.wire.entry import parse_envelope


class RaftView(Protocol):
    """The checker's view of one Raft group on one node."""

    @property
    def term(self) -> int:
        """Current term."""

    @property
    def is_leader(self) -> bool:
        """True if it leads its term."""

    @property
    def commit_index(self) -> int:
        """Highest index it has learned to be committed."""

    @property
    def first_index(self) -> int:
        """First index in its log."""

    @property
    def anchor(self) -> EntryId:
        """Id of the entry before the first in its log."""

    @property
    def last_id(self) -> EntryId:
        """Last entry of its log, durable or not."""

    @property
    def configuration(self) -> Configuration:
        """The active configuration."""

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries of its log, durable or not."""


class ReplicaView(Protocol):
    """The container of a Raft group on a node."""

    @property
    def raft(self) -> RaftView:
        """The group."""


@dataclass(slots=True)
class RaftGroupModel:
    """The model of one Raft group over the whole cluster."""

    log: CommittedPartition
    leaders: dict[int, int] = field(default_factory=dict)
    hashes: dict[tuple[int, int], int] = field(default_factory=dict)
    committed: list[EntryId] = field(default_factory=list)
    committed_terms: list[int] = field(default_factory=list)
    configurations: list[Configuration] = field(default_factory=list)

    @property
    def data_quorum(self) -> int:
        """The fewest voters with data in a majority, by the current voters or by those before them."""
        return min(
            len(voters) // 2 + 1 - len({*each.witnesses}.intersection(voters))
            for each in self.configurations[-2:]
            for voters in each.halves
        )

    @property
    def last_committed(self) -> int:
        """Index of the last entry known to be committed."""
        return len(self.committed)


@dataclass(slots=True)
class _Seen:
    """The last observed state of one replica in one life of its process."""

    term: int = 0
    commit: int = 0
    led_term: int = -1


class ClusterInvariants:
    """Judges every step and every sync.

    Arguments:
        disks: every node's disk, running or not.
        unique: returns True if a value may be committed only once (idempotent producers) in the batch with that value.

    ``latest_wall_ms`` is the latest time that any node's clock has shown, ``now_us`` the virtual time.
    """

    def __init__(
        self,
        disks: Mapping[int, SimDisk],
        unique: Callable[[str], bool] = lambda value: True,
        most_producers: int = 1 << 30,
    ) -> None:
        self.groups: dict[int, RaftGroupModel] = {}
        self.images: dict[int, str] = {}
        self.settings = SettingsJudge()
        self.elections = 0
        self.latest_wall_ms = self.now_us = 0
        self.coordinators = CoordinatorModels(self._end_of)
        self.transactions = TransactionModels()
        self._most_producers = most_producers
        self._disks = disks
        self._unique = unique
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._places: dict[tuple[int, str], int] = {}
        self._image_indexes: dict[int, int] = {}
        #: When each entry of the metadata log was first known to be committed.
        self._metadata_commits: list[int] = []
        self._left: set[tuple[int, int]] = set()
        self._newest_table: tuple[int, int, frozenset[int]] = (0, 0, frozenset())

    def topics_at(self, applied: int, table: TopicTable) -> None:
        """Stores the partitions by the metadata of an index: deleted ones are no longer checked."""
        if applied > self._newest_table[0]:
            self._newest_table = (applied, table.next_group, frozenset(table.partitions))

    def apart_at(self, partitions: Iterable[PartitionRecord], machines: Sequence[str]) -> None:
        """Checks that each partition's replicas and its witness are on distinct machines, those that it has and those
        that it should have.

        Arguments:
            machines: of the nodes, the first one's first.

        Raises:
            Violation: two of them share a machine.
        """
        for partition in partitions:
            for nodes in (partition.voters, partition.wanted_voters, partition.intended_voters):
                if len({machines[node - 1] for node in nodes}) < len(nodes):
                    shown = ", ".join(f"{node} on {machines[node - 1]}" for node in nodes)
                    raise Violation(f"two of the nodes of {partition.name} share a machine: {shown}")

    def hosts_at(self, node: int, partitions: Mapping[int, PartitionRecord]) -> None:
        """Stores a node's metadata about the replicas on its disk: it may destroy those that were moved away, even if a
        new one must replace them by now.
        """
        for group, durable in self._disks[node].synced.items():
            record = partitions.get(group)
            if record is None or node in record.voters:
                continue
            if node not in record.hosts or durable.last.index < record.moved_index:
                self._left.add((node, group))

    def is_deleted(self, group: int) -> bool:
        """True if a partition's topic is deleted, by the newest metadata of any node."""
        _, next_group, present = self._newest_table
        return FIRST_PARTITION_GROUP <= group < next_group and group not in present

    def _end_of(self, group: int) -> int | None:
        """Returns the end of a partition's committed log. It is unknown for a deleted topic: a leader that has not
        applied the deletion continues to commit entries that no model follows.
        """
        return None if self.is_deleted(group) else self.model(group).log.next_offset

    def model(self, group: int) -> RaftGroupModel:
        """Returns the model of one group."""
        model = self.groups.get(group)
        if model is None:
            log = CommittedPartition(group, most_producers=self._most_producers)
            model = self.groups[group] = RaftGroupModel(log)
        return model

    def process_started(self, node: int) -> None:
        """Drops the node's volatile state; entries that it had learned to be committed may be reported again."""
        for key in [key for key in self._seen if key[0] == node]:
            del self._seen[key]
        self._image_indexes.pop(node, None)

    # -- after each step ----------------------------------------------------------------------------------------

    def after_step(self, node: int, replicas: Mapping[int, ReplicaView], touched: Iterable[int]) -> None:
        """Checks the changes of a step.

        Arguments:
            touched: the groups that the step may have changed; the others are unchanged.

        Raises:
            Violation: an invariant is violated.
        """
        for group in touched:
            hosted = replicas.get(group)
            if hosted is None or self.is_deleted(group):
                continue
            replica = hosted.raft
            seen = self._seen.get((node, group))
            if seen is None:
                seen = self._seen[(node, group)] = _Seen()
            if replica.term != seen.term:
                if replica.term < seen.term:
                    raise Violation(f"term of group {group} on node {node} went back: {seen.term} → {replica.term}")
                seen.term = replica.term
            if replica.is_leader and seen.led_term != replica.term:
                seen.led_term = replica.term
                self._elected(node, group, replica)
            if replica.commit_index != seen.commit:
                if replica.commit_index < seen.commit:
                    change = f"{seen.commit} → {replica.commit_index}"
                    raise Violation(f"commit index of group {group} on node {node} went back: {change}")
                self._committed(node, group, replica, seen.commit)
                seen.commit = replica.commit_index

    def check_stable(self, node: int, group: int, partition: object) -> None:
        """Checks the last stable offset of a replica of a partition with transactions against the committed log.

        Raises:
            Violation: it is another one, or went back.
        """
        if not isinstance(partition, Partition) or partition.transactions is None or self.is_deleted(group):
            return
        log, applied = self.model(group).log, partition.applied_index
        expected = log.stable_at(max(applied, partition.table_index), applied)
        if partition.last_stable_offset != expected:
            raise Violation(
                f"node {node} has the last stable offset {partition.last_stable_offset} of group {group} at entry"
                f" {applied} (table {partition.table_index}): the log says {expected}"
            )
        if not log.transactions.never_goes_back():
            raise Violation(f"the last stable offset of group {group} went back")

    def _elected(self, node: int, group: int, replica: RaftView) -> None:
        model = self.model(group)
        self.elections += 1
        self.coordinators.elected(group, replica.term, self.now_us)
        other = model.leaders.setdefault(replica.term, node)
        if other != node:
            raise Violation(f"election safety: nodes {other} and {node} both lead group {group} in term {replica.term}")
        # A late winner of an old term may lack entries committed in a newer term; it must have all those of older
        # terms.
        if node in replica.configuration.witnesses:
            raise Violation(f"node {node}, a witness of group {group}, leads term {replica.term}")
        place = model.last_committed
        while place > 0 and model.committed_terms[place - 1] >= replica.term:
            place -= 1
        if place == 0:
            return
        held = self._id_in_log(node, group, replica, place)
        if held != model.committed[place - 1]:
            raise Violation(
                f"leader completeness: node {node} leads group {group} in term {replica.term} with {held} at {place},"
                f" where {model.committed[place - 1]} is committed"
            )

    def _id_in_log(self, node: int, group: int, replica: RaftView, index: int) -> EntryId | None:
        if index > replica.last_id.index:
            return None
        if index < replica.first_index:
            return self.model(group).committed[index - 1]  # Compacted: only committed entries ever are.
        entry = replica.entries_between(index, index, 1)[0]
        return EntryId(entry.index, entry.term, entry.hash)

    def _committed(self, node: int, group: int, replica: RaftView, before: int) -> None:
        model = self.model(group)
        commit = replica.commit_index
        first = max(before + 1, replica.first_index)
        if first > model.last_committed + 1:
            # Committed and compacted away in one step: the entries are still on disks, found by their chain of hashes.
            for entry in self._compacted(group, replica.anchor, model.last_committed):
                self._commit_one(node, group, replica, model, entry)
        while first <= commit:
            for entry in replica.entries_between(first, commit, 1 << 24):
                self._commit_one(node, group, replica, model, entry)
                first = entry.index + 1

    def _compacted(self, group: int, end: EntryId, after: int) -> list[Entry]:
        found: list[Entry] = []
        index, wanted = end.index, end.hash
        while index > after:
            kept = [copy.entry(index) for disk in self._disks.values() for copy in disk.copies_made(group)]
            entry = next((entry for entry in kept if entry is not None and entry.hash == wanted), None)
            if entry is None:
                raise Violation(f"group {group}: entry {index} was compacted away, and is on no disk")
            found.append(entry)
            index, wanted = index - 1, parse_envelope(entry.data).previous_hash
        return found[::-1]

    def _commit_one(self, node: int, group: int, replica: RaftView, model: RaftGroupModel, entry: Entry) -> None:
        identity = EntryId(entry.index, entry.term, entry.hash)
        if entry.index <= model.last_committed:
            if model.committed[entry.index - 1] != identity:
                raise Violation(
                    f"node {node} takes {identity} of group {group} for committed,"
                    f" but {model.committed[entry.index - 1]} is"
                )
            return
        if entry.index != model.last_committed + 1:
            raise Violation(f"group {group}: committed entry {entry.index} follows {model.last_committed}")
        # By the current voters, or by those before them: the committing node may not have applied the last change yet.
        newest = model.configurations[-2:]
        if not any(self._held_by_quorum(each.halves, group, identity) for each in newest):
            holders = [each for each in self._disks if self.holds(each, group, identity)]
            raise Violation(
                f"node {node} takes {identity} of group {group} for committed, but of the voters"
                f" {' or '.join(map(str, newest[-1].halves))} only {holders} have it on disk"
            )
        entry = self._with_payload(group, entry)
        model.committed.append(identity)
        model.committed_terms.append(replica.term)
        if group == METADATA_GROUP:
            self._metadata_commits.append(self.now_us)
        if group in self.coordinators:
            self.coordinators.commit(group, entry, self.now_us)
        elif group in self.transactions:
            self.transactions[group].commit(entry, self.now_us)
        elif group != METADATA_GROUP:
            model.log.commit(entry, self.latest_wall_ms)
        if entry.kind == EntryKind.BATCH:
            self._check_places(group, model.log.batches_in_order[-1])
        elif entry.kind == EntryKind.CONFIG:
            self._change_members(group, model, GroupSealer(group).configuration_of(entry))

    def goes_on(
        self, group: int, before: EntryId, entries: list[Entry], configuration: Configuration, term: int
    ) -> None:
        """Registers a Raft group that is older than this cluster: its initial log counts as committed.

        Arguments:
            before: the anchor of the log.
            entries: the entries after it.
            configuration: its current members.
            term: the term in which its first voter counts as the one that committed them.
        """
        model = self.model(group)
        identities = [EntryId(entry.index, entry.term, entry.hash) for entry in entries]
        model.committed = [before] * before.index + identities
        model.committed_terms = [term] * len(model.committed)
        model.configurations = [configuration]
        model.leaders[term] = configuration.voters[0]
        if group == METADATA_GROUP:
            self._metadata_commits = [self.now_us] * len(model.committed)
            return
        for entry in entries:
            model.log.commit(entry, self.latest_wall_ms)
            if entry.kind == EntryKind.BATCH:
                self._check_places(group, model.log.batches_in_order[-1])

    def _with_payload(self, group: int, entry: Entry) -> Entry:
        """Returns the entry that a witness's trace represents."""
        if entry.kind is not EntryKind.TRACE:
            return entry
        kept = (copy.entry(entry.index) for disk in self._disks.values() for copy in disk.copies_made(group))
        for found in kept:
            if found is not None and found.hash == entry.hash and found.kind is not EntryKind.TRACE:
                return found
        raise Violation(f"group {group}: entry {entry.index} is committed, and only witnesses have it")

    def _held_by_quorum(self, halves: Halves, group: int, identity: EntryId) -> bool:
        return all(2 * sum(self.holds(voter, group, identity) for voter in voters) > len(voters) for voters in halves)

    def _change_members(self, group: int, model: RaftGroupModel, after: Configuration) -> None:
        before = model.configurations[-1]
        left = after_joint(before) if before.is_joint else before
        if (before.is_joint and after != left) or (after.is_joint and after.outgoing != before.voters):
            raise Violation(f"group {group} goes from {before} to {after}")
        if not before.is_joint and not after.is_joint and set(after.voters) != set(before.voters):
            raise Violation(f"group {group} replaces voters without a joint configuration: {before} to {after}")
        model.configurations.append(after)

    def _check_places(self, group: int, batch: CommittedBatch) -> None:
        for place, value in enumerate(batch.values):
            offset = batch.base_offset + place
            first = self._places.setdefault((group, value), offset)
            if first != offset and self._unique(value):
                raise Violation(f"value {value} is committed twice in group {group}: at {first} and at {offset}")

    def place_of(self, group: int, value: str) -> int:
        """Returns the offset at which a value was committed first; -1 if it was not."""
        return self._places.get((group, value), -1)

    def holds(self, node: int, group: int, identity: EntryId) -> bool:
        """True if the node's synced log has that entry (or has compacted it away, or has a snapshot over it).

        A copy on a disk that the node has lost since counts, too: an entry that was durable when it was acknowledged is
        committed, and an acknowledgement may be in flight when the disk is lost. Entries after the loss count on the
        new disk alone. Leader completeness after such a loss is checked elsewhere.
        """
        disk = self._disks.get(node)
        return disk is not None and any(_has(copy, identity) for copy in disk.copies_made(group))

    def has_copy(self, node: int, group: int, identity: EntryId) -> bool:
        """Like ``holds``, but a witness has no copy."""
        return any(_has(e, identity) for e in self._disks[node].copies_made(group) if not is_witness(e.table))

    # -- at each sync -------------------------------------------------------------------------------------------

    def before_sync(self, disk: SimDisk, transaction: StorageTransaction) -> None:
        """Checks a transaction that is about to become durable.

        Raises:
            Violation: an invariant is violated.
        """
        for write in transaction.writes:
            if self.is_deleted(write.group):
                continue
            if write.create is not None and not self.model(write.group).configurations:
                self.model(write.group).configurations.append(write.create)
            if write.destroy:
                if write.group in disk.broken:
                    self._given_up(disk, write.group)
                elif (disk.node_id, write.group) not in self._left:
                    raise Violation(f"node {disk.node_id} destroys group {write.group}, which it must keep")
                self._seen.pop((disk.node_id, write.group), None)
            self._hard_state(disk, write)
            self._truncation(disk, write)
            if self._is_witness(disk, write):
                self._witness_state(disk, write)
            elif write.group in self.coordinators or write.group in self.transactions:
                self._coordinator_state(disk, write)
            elif write.group != METADATA_GROUP:
                self._partition_state(disk, write)
            hashes = self.model(write.group).hashes
            for entry in write.entries:
                if hashes.setdefault((entry.index, entry.term), entry.hash) != entry.hash:
                    raise Violation(
                        f"log matching: node {disk.node_id} writes another entry at index {entry.index}, term"
                        f" {entry.term} of group {write.group} than some node had there"
                    )

    def _given_up(self, disk: SimDisk, group: int) -> None:
        """Checks that a damaged replica is only given up while all committed entries are on another disk."""
        committed = self.model(group).committed
        others = [other.synced.get(group) for other in self._disks.values() if other is not disk]
        with_data = [copy for copy in others if copy is not None and not is_witness(copy.table)]
        if committed and not any(_has(copy, committed[-1]) for copy in with_data):
            raise Violation(
                f"node {disk.node_id} gives up its replica of group {group}: no other node has {committed[-1]}"
            )

    @staticmethod
    def _is_witness(disk: SimDisk, write: RaftGroupWrite) -> bool:
        durable = disk.synced.get(write.group)
        return is_witness(write.table if durable is None else durable.table)

    def _witness_state(self, disk: SimDisk, write: RaftGroupWrite) -> None:
        """Checks that a witness stores no payload, and nothing but its log."""
        whole = any(entry.kind not in (EntryKind.TRACE, EntryKind.CONFIG) for entry in write.entries)
        if whole or write.stage or write.checkpoint or write.table.keys() - {WITNESS_ROW}:
            raise Violation(f"node {disk.node_id} is a witness of group {write.group}, and keeps {write}")

    def _hard_state(self, disk: SimDisk, write: RaftGroupWrite) -> None:
        durable = disk.synced.get(write.group)
        if durable is None or write.hard_state is None:
            return
        old, new = durable.hard_state, write.hard_state
        if new.term < old.term:
            raise Violation(f"node {disk.node_id} persists term {new.term} of group {write.group} after {old.term}")
        if new.term == old.term and old.vote not in (NO_NODE, new.vote):
            raise Violation(
                f"node {disk.node_id} votes twice in term {new.term} of group {write.group}: {old.vote}, {new.vote}"
            )

    def _truncation(self, disk: SimDisk, write: RaftGroupWrite) -> None:
        durable = disk.synced.get(write.group)
        model = self.model(write.group)
        index = write.truncate_from
        if durable is None or index is None or index > model.last_committed:
            return
        committed = model.committed[index - 1]
        entry = durable.entry(index)
        if index <= durable.anchor.index or (entry is not None and entry.hash == committed.hash):
            raise Violation(f"node {disk.node_id} truncates group {write.group} from {index}: {committed} is committed")

    def _partition_state(self, disk: SimDisk, write: RaftGroupWrite) -> None:
        """Checks a replica's stored state and log against the committed log."""
        log = self.model(write.group).log
        durable = disk.synced.get(write.group)
        before = durable.table.get(META_ROW) if durable is not None and write.snapshot is None else None
        meta = write.table.get(META_ROW) or before
        if write.table.get(META_ROW) is not None:
            log.check_meta(disk.node_id, *decode_meta(meta))
        log.compaction.staged.update(piece.data for piece in write.stage)
        snapshot = write.snapshot or write.checkpoint
        if snapshot is not None:
            applied = decode_meta(meta)[0] if write.checkpoint is not None else -1
            log.check_snapshot(disk.node_id, snapshot.last.index, applied, _slices(durable, write, snapshot))
        _check_compaction(disk, write)

    def _coordinator_state(self, disk: SimDisk, write: RaftGroupWrite) -> None:
        """Checks a snapshot of a coordinator against its committed log."""
        snapshot = write.snapshot or write.checkpoint
        if snapshot is not None:
            data = b"".join(_slices(disk.synced.get(write.group), write, snapshot))
            what = f"what node {disk.node_id} keeps of coordinator {write.group}"
            models = self.transactions if write.group in self.transactions else self.coordinators
            models[write.group].check_table(what, snapshot.last.index, data)
        _check_compaction(disk, write)

    # -- replicated state ---------------------------------------------------------------------------------------

    def image_at(self, node: int, applied: int, digest: Callable[[], str]) -> bool:
        """Checks that all metadata images at index ``applied`` are equal.

        Returns:
            True if this is the first image seen at that index.

        Raises:
            Violation: two images differ, or the index went back.
        """
        before = self._image_indexes.get(node, -1)
        if applied == before:
            return False
        if applied < before:
            raise Violation(f"the metadata image of node {node} went back from {before} to {applied}")
        self._image_indexes[node] = applied
        found, known = digest(), self.images.get(applied)
        self.images[applied] = found
        if known not in (None, found):
            raise Violation(f"metadata images differ at index {applied}: node {node} has another than some node had")
        return known is None

    def image_age_told(self, node: int, applied: int, age_us: int) -> None:
        """Checks the age that a node reports for its image at ``applied``.

        Raises:
            Violation: the image lacks entries that were committed before that.
        """
        due = bisect_left(self._metadata_commits, self.now_us - age_us)
        if applied < due:
            behind = (self.now_us - self._metadata_commits[applied]) // 1000
            raise Violation(
                f"node {node} says that its image of the metadata is at most {age_us // 1000} ms old: entry"
                f" {applied + 1}, committed {behind} ms ago, is not in it"
            )

    def decided_by(self, node: int, applied: int, limit_us: int) -> None:
        """Checks the age of the ACLs of an image at ``applied`` by which a node serves records.

        Raises:
            Violation: the image lacks entries committed longer ago than ACLs may be old.
        """
        if applied < bisect_left(self._metadata_commits, self.now_us - limit_us):
            behind = (self.now_us - self._metadata_commits[applied]) // 1000
            raise Violation(
                f"node {node} serves records by ACLs that may be {limit_us // 1000} ms old: entry {applied + 1} of the"
                f" metadata, committed {behind} ms ago, is not in them"
            )

    def leader_reported(self, group: int, leader: int, epoch: int) -> None:
        """Checks that a leader named by the metadata has led that epoch.

        Raises:
            Violation: it did not.
        """
        elected = self.model(group).leaders.get(epoch)
        if elected != leader and not self.is_deleted(group):
            raise Violation(
                f"the metadata has node {leader} as leader in epoch {epoch} of group {group}: {elected} was elected"
            )

    def served(self, node: int, group: int, epoch: int) -> None:
        """Checks that a node that serves a read has committed an entry in its own term: only then its commit index is
        reliable (Raft §8).

        Raises:
            Violation: no entry of that term, or of a later one, is committed.
        """
        committed = self.model(group).committed
        if self.is_deleted(group):
            return  # A node that has not applied it yet continues for a moment.
        if not committed or committed[-1].term < epoch:
            newest = committed[-1].term if committed else 0
            raise Violation(
                f"node {node} serves group {group} in epoch {epoch}, but what is committed ends in term {newest}"
            )

    def acknowledged(
        self, node: int, group: int, offset: int, epoch: int, values: list[str], copies: int, acks_all: bool
    ) -> None:
        """Checks a batch that a node is about to acknowledge.

        Raises:
            Violation: it is not committed there, or has fewer durable copies than ``copies``; with acks=1, it is not on
                the node's own disk.
        """
        model = self.model(group)
        if self.is_deleted(group):
            return
        if epoch not in model.leaders:
            raise Violation(f"node {node} acknowledges {values} in epoch {epoch} of group {group}, which no node led")
        if not acks_all:
            if offset >= model.log.log_start:
                self._on_own_disk(node, group, offset, values)
            return
        if offset < 0:
            # The duplicate of a batch that is too old for its offset to be remembered.
            offset = self.place_of(group, values[0])
        batch = model.log.batches.get(offset)
        if batch is None or batch.values != values:
            found = "nothing" if batch is None else str(batch.values)
            raise Violation(f"node {node} acknowledges {values} at {offset} of group {group}; committed is {found}")
        identity = EntryId(batch.entry.index, batch.entry.term, batch.entry.hash)
        holders = [number for number in sorted(self._disks) if self.has_copy(number, group, identity)]
        if len(holders) < copies:
            raise Violation(
                f"node {node} acknowledges {values} of group {group}, but only {holders} have it on disk,"
                f" {copies} copies are promised"
            )

    def _on_own_disk(self, node: int, group: int, offset: int, values: list[str]) -> None:
        durable = self._disks[node].synced[group]
        index = durable.find_offset(offset)
        entry = durable.entry(index) if index is not None else None
        if entry is None or values_of(entry.data) != values:
            raise Violation(f"node {node} acknowledges {values} at {offset} of group {group}, but its disk lacks it")


def _has(durable: DurableRaftGroup, identity: EntryId) -> bool:
    if durable.anchor.index >= identity.index:
        return True
    entry = durable.entry(identity.index)
    return entry is not None and entry.term == identity.term and entry.hash == identity.hash


def _slices(durable: DurableRaftGroup | None, write: RaftGroupWrite, snapshot: Snapshot) -> list[bytes]:
    """Returns the slices of a snapshot that a transaction switches to: staged before, or with it."""
    staged = dict(durable.slices.get(snapshot.data.stage, {})) if durable is not None else {}
    staged |= {piece.number: piece.data for piece in write.stage if piece.stage == snapshot.data.stage}
    return [staged[number] for number in range(snapshot.data.slices)]


def _check_compaction(disk: SimDisk, write: RaftGroupWrite) -> None:
    if write.compact_to is not None and (write.checkpoint is None or write.checkpoint.last != write.compact_to):
        raise Violation(
            f"node {disk.node_id} gives up group {write.group} up to {write.compact_to} without a snapshot of that"
        )


# -- claims of a node about its own disk ---------------------------------------------------------------------------


def check_promise(group: int, message: Message, state: HardState | None, last: EntryId) -> None:
    """Checks that a message claims no vote, acknowledgement or term that a crash of its sender could undo.

    A cluster usually survives a broken promise: only a crash at the right moment, and a rival, would reveal it. The
    promise itself is therefore checked whenever a message is sent.

    Arguments:
        state: the sender's synced hard state; None if it has no replica on its disk.
        last: end of the sender's synced log.

    Raises:
        Violation: the message claims more than is on the disk.
    """
    if isinstance(message, VoteRequest | VoteResponse) and message.pre_vote:
        return  # It promises nothing.
    if state is None or message.term > state.term:
        raise Violation(f"{_said(group, message)}, but its disk has {state}")
    if message.term < state.term:
        return  # Its promise was for a term that is over on its disk.
    if isinstance(message, VoteRequest):
        # A request that waited for its link until the term had a leader may claim a tail that this one has truncated.
        kept = state.vote == message.sender and (last.index >= message.last_index or last.term == message.term)
    elif isinstance(message, VoteResponse):
        kept = state.vote == message.to or not message.granted
    elif isinstance(message, AppendResponse | SnapshotResponse):
        kept = last.index >= message.index or message.rejected
    else:
        kept = True
    if not kept:
        raise Violation(f"{_said(group, message)}, but its disk has {state} and a log up to {last[:2]}")


def _said(group: int, message: Message) -> str:
    what = f"{type(message).__name__} of term {message.term} to {message.to}"
    return f"node {message.sender} of group {group} says {what}"
