"""The partition replicas of a node: created as the metadata say, found by topic and number, reported as led.

Most are logs; those of the internal topic of consumer groups are coordinators. Only what concerns records tells them
apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Iterator

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import NO_NODE, EntryId, HardState, LogServices, RestoredReplica, Snapshot
from quorumlog.server.broker.former_replicas import FormerReplicas
from quorumlog.server.broker.isr import IsrTracker
from quorumlog.server.coordinator.coordinator import Coordinator, decode_applied
from quorumlog.server.hosting.checkpoint_writer import CheckpointWriter
from quorumlog.server.hosting.log_store import DurableLog, check_chain
from quorumlog.server.hosting.partition_replica import PartitionId, PartitionReplica
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import GROUPS_TOPIC, PartitionRecord
from quorumlog.server.options import NodeOptions
from quorumlog.server.partition.partition import META_ROW, Partition, decode_meta
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.snapshot_slices import read_whole
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import peer_pb2


class Partitions:
    """Partition replicas on this node.

    Arguments:
        image: gives the current metadata image.
        checkpoints: the snapshots that are being written here.
        former: creates replicas.

    Attributes:
        logs: those that are logs of records, by group.
        coordinators: those that coordinate consumer groups, by group.
    """

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        reader: StorageReader,
        rng: random.Random,
        image: Callable[[], MetadataImage],
        checkpoints: CheckpointWriter,
        former: FormerReplicas,
    ) -> None:
        self._options = options
        self._host = host
        self._reader = reader
        self._rng = rng
        self._image = image
        self._checkpoints = checkpoints
        self._former = former
        self._by_group: dict[int, PartitionReplica] = {}
        self.logs: dict[int, Partition] = {}
        self.coordinators: dict[int, Coordinator] = {}
        self._by_name: dict[tuple[bytes, int], Partition] = {}
        self._found: dict[int, RaftGroupState] = {}
        self._trackers: dict[int, tuple[int, IsrTracker]] = {}

    def found(self, states: dict[int, RaftGroupState]) -> None:
        """Replicas found on disk at opening. Each begins to take part once the metadata name it."""
        self._found = dict(states)

    def reconcile(self, now: int) -> None:
        """Makes the replicas that the metadata say this node has."""
        for group, record in self._image().partitions.items():
            if group not in self._by_group and self._options.node_id in record.hosts:
                self.ensure(now, group)

    def deleted(self) -> list[int]:
        """Groups of deleted topics of which something is here, be it only on disk. Nothing is taken for deleted because
        the metadata do not show it yet."""
        was_deleted = self._image().topic_table.was_deleted
        return sorted(group for group in {*self._by_group, *self._found} if was_deleted(group))

    def term_of(self, group: int) -> int:
        """The term of a replica that is here, be it only on disk."""
        partition = self._by_group.get(group)
        return partition.raft.term if partition is not None else self._found[group].hard_state.term

    def is_host(self, group: int, node: int) -> bool:
        """Whether the metadata say that a node may have a replica of a partition."""
        record = self._image().partitions.get(group)
        return record is not None and node in record.hosts

    def holds(self, group: int) -> bool:
        """Whether anything of a group is here, be it only on disk."""
        return group in self._by_group or group in self._found

    def remove(self, group: int) -> PartitionReplica | None:
        """Forgets a replica, and what was found on disk of one; returns it if it took part."""
        self._found.pop(group, None)
        self._trackers.pop(group, None)
        self.coordinators.pop(group, None)
        log = self.logs.pop(group, None)
        if log is not None:
            del self._by_name[(log.identity.topic_id, log.identity.number)]
        return self._by_group.pop(group, None)

    def ensure(self, now: int, group: int) -> None:
        """Makes the replica of a group if this node has one by the metadata."""
        record = self._image().partitions.get(group)
        if record is None or self._options.node_id not in record.hosts or group in self._by_group:
            return
        if self._host.is_ending(group):
            self._host.after_durable(lambda: self.ensure(now, group))
            return
        state = self._found.pop(group, None)
        fresh = state is None
        if state is None:
            state = self._former.begin(record)
        make = self._coordinator if record.topic.name == GROUPS_TOPIC else self._log
        hosted = make(now, PartitionId(record.topic.topic_id, record.topic.name, record.number), state)
        hosted.configure(record.topic.configs)
        self._by_group[group] = hosted
        self._host.add(group, HostedReplica(hosted.raft, hosted, lazy_commit=True))
        if fresh and record.replicas[0] == self._options.node_id and not record.is_moving:
            # Nobody leads a new partition: the preferred leader need not wait for an election timeout.
            hosted.raft.campaign(now)

    def _log(self, now: int, identity: PartitionId, state: RaftGroupState) -> PartitionReplica:
        group, sealer = state.group, GroupSealer(state.group)
        applied = decode_meta(state.table.get(META_ROW))[0]
        raft = make_group(
            self._options, state, applied, applied, sealer, self._reader, self._rng, now,
            lambda: None if self._checkpoints.is_switching(group) else self.logs[group].snapshot,
            self._former.votes_from(group),
        )  # fmt: skip
        log = Partition(
            identity, group, raft, sealer, self._reader, state.table, self._options.limits,
            lambda: self._image().named_producers,
        )  # fmt: skip
        log.snapshot = state.snapshot
        self.logs[group] = self._by_name[(identity.topic_id, identity.number)] = log
        return log

    def _coordinator(self, now: int, identity: PartitionId, state: RaftGroupState) -> PartitionReplica:
        group, sealer = state.group, GroupSealer(state.group)
        raft = make_group(
            self._options, state, state.anchor.index, decode_applied(state.table), sealer, self._reader, self._rng, now,
            lambda: None if self._checkpoints.is_writing(group) else self.coordinators[group].snapshot,
            self._former.votes_from(group),
        )  # fmt: skip
        coordinator = Coordinator(
            identity, raft, sealer, state.snapshot, lambda snapshot: read_whole(self._reader, group, snapshot.data)
        )
        self.coordinators[group] = coordinator
        return coordinator

    def __getitem__(self, group: int) -> PartitionReplica:
        return self._by_group[group]

    def get(self, group: int) -> PartitionReplica | None:
        """The replica of a group, if there is one here."""
        return self._by_group.get(group)

    def find(self, topic_id: bytes, number: int) -> Partition | None:
        """The replica of a topic's partition, if there is one here and it is a log."""
        return self._by_name.get((topic_id, number))

    def __iter__(self) -> Iterator[PartitionReplica]:
        return iter(self._by_group.values())

    def __len__(self) -> int:
        return len(self._by_group)

    # -- by the metadata --------------------------------------------------------------------------------------

    def record(self, partition: PartitionReplica) -> PartitionRecord | None:
        """What the metadata say of a partition."""
        return self._image().partitions.get(partition.group)

    def is_fenced(self, node: int) -> bool:
        """Whether a node counts as gone."""
        return self._image().is_fenced(node)

    def known_leader(self, record: PartitionRecord) -> tuple[int, int]:
        """Leader and leader epoch of any partition, as far as this node knows; NO_NODE without one."""
        replica = self._by_group.get(record.group)
        if replica is not None and replica.raft.term > record.leader_epoch and replica.raft.leader_id != NO_NODE:
            # The group's own replica here knows of a leader that has not been reported yet.
            return replica.raft.leader_id, replica.raft.term
        return self._image().available_leader(record), record.leader_epoch

    def named(self, names: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, PartitionRecord | None]]:
        """Partitions by topic name and number, each with its record if it exists; without names all there are."""
        topics = self._image().topics
        chosen = list(names) or [(name, record.number) for name in topics for record in topics[name].partitions]
        for name, number in chosen:
            topic = topics.get(name)
            exists = topic is not None and 0 <= number < len(topic.partitions)
            yield name, number, topic.partitions[number] if topic is not None and exists else None

    # -- reports to the controller ----------------------------------------------------------------------------

    def needs_report(self, partition: PartitionReplica) -> bool:
        """Whether this node leads a partition for good and the metadata do not say so."""
        record = self._image().partitions.get(partition.group)
        return (
            record is not None
            and partition.leads
            and partition.raft.leads_committed
            and record.leader_epoch < partition.raft.term
        )

    def is_settled(self, partition: PartitionReplica, reachable: Container[int]) -> bool:
        """Whether the metadata name this leader, and every replica that it can reach as in sync: only then may the
        group sleep, for nobody looks at the in-sync set of one that does."""
        record = self._image().partitions.get(partition.group)
        return (
            record is not None
            and partition.leads
            and record.leader_epoch >= partition.raft.term
            and not record.is_moving
            and all(
                node in record.isr for node in record.replicas if node == self._options.node_id or node in reachable
            )
        )

    def metadata_changed(self, now: int, group: int) -> None:
        """The metadata of a group changed: its topic's configuration holds from now on, and its leader looks at what
        else is new, also when it slept.

        (Else a replica that the controller took out while it was fenced would stay out until the next append.)
        """
        partition, record = self._by_group.get(group), self._image().partitions.get(group)
        if partition is None or record is None:
            return
        partition.configure(record.topic.configs)
        if partition.raft.is_leader:
            partition.raft.wake(now, {})
            self._host.touch(group)

    def unreported(self) -> list[peer_pb2.LeaderReport]:
        """Leaderships that the metadata do not show yet."""
        return [
            peer_pb2.LeaderReport(group=partition.group, leader_epoch=partition.raft.term)
            for partition in self._awake_led()
            if self.needs_report(partition)
        ]

    def _awake_led(self) -> Iterator[PartitionReplica]:
        """Led partitions whose group is awake. The others are reported, and in sync as far as they can be reached."""
        for group in sorted(self._host.awake_led):
            partition = self._by_group.get(group)
            if partition is not None:
                yield partition

    def isr_changes(self, now: int) -> list[peer_pb2.IsrChange]:
        """In-sync sets that differ from the metadata's, as compare-and-set proposals."""
        image = self._image()
        changes = []
        # Time in which a group slept counts for nobody's lag.
        for group in [group for group in self._trackers if group not in self._host.awake_led]:
            del self._trackers[group]
        for partition in self._awake_led():
            group = partition.group
            record = image.partitions.get(group)
            if record is None or not partition.leads or record.leader_epoch != partition.raft.term:
                self._trackers.pop(group, None)
                continue
            term, tracker = self._trackers.get(group, (0, None))
            if tracker is None or term != partition.raft.term:
                tracker = IsrTracker(now, record.isr)
                self._trackers[group] = (partition.raft.term, tracker)
            matches = {node: progress.match_index for node, progress in partition.raft.progress.items()}
            matches.pop(self._options.node_id, None)
            last = partition.raft.last_id.index
            voting = partition.raft.configuration.electors
            in_sync = tracker.check(now, last, matches, record.isr, self._options.replica_lag_time_max_us)
            members = [
                node
                for node in record.hosts
                if node == self._options.node_id
                or (node in voting and node in in_sync and (node in record.isr or not image.is_fenced(node)))
            ]
            if set(members) != set(record.isr):
                changes.append(
                    peer_pb2.IsrChange(
                        group=group,
                        leader_epoch=partition.raft.term,
                        partition_epoch=record.partition_epoch,
                        isr=[peer_pb2.IsrMember(node_id=node, broker_epoch=_epoch(image, node)) for node in members],
                    )
                )
        return changes


def _epoch(image: MetadataImage, node: int) -> int:
    broker = image.brokers.get(node)
    return broker.epoch if broker is not None else -1


def make_group(
    options: NodeOptions,
    state: RaftGroupState,
    applied: int,
    committed: int,
    sealer: GroupSealer,
    reader: StorageReader,
    rng: random.Random,
    now: int,
    snapshot_source: Callable[[], Snapshot | None] | None = None,
    votes_from: int = 0,
) -> RaftGroup:
    """A group's Raft replica from what is durable of it.

    Arguments:
        applied: entries up to here are in the state machine already.
        committed: entries up to here are known to be committed, whatever the hard state says.
        votes_from: it has a say once it knows that this index is committed.
    """
    hard_state = state.hard_state
    committed = min(max(hard_state.commit, committed), state.last.index)
    restored = RestoredReplica(
        node_id=options.node_id,
        group=state.group,
        configuration=state.configuration,
        hard_state=HardState(hard_state.term, hard_state.vote, committed),
        last=state.last,
        first_index=state.anchor.index + 1,
        anchor=EntryId(*state.anchor),
        applied=max(applied, state.anchor.index),
        votes_from=votes_from,
    )
    services = LogServices(DurableLog(state.group, reader), sealer, snapshot_source, check_chain)
    # One generator for all groups: one of its own would cost each of them 2.5 KiB.
    return RaftGroup(restored, services, options.raft, rng, now)
