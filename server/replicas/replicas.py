"""The registry of this node's partition replicas: created according to the metadata, found by topic and number.

Most are logs; those of the internal topics of consumer groups and transactions are coordinators. They differ only in
the handling of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sortedcontainers import SortedDict

from quorumlog.raft.types import NO_NODE
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.witness import is_witness
from quorumlog.server.replicas.replica_factory import LocalReplica, ReplicaFactory
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.step.request_context import Listener
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.storage.interface import SetAside
from quorumlog.storage.transaction import RaftGroupState


class Replicas:
    """Partition replicas on this node, each by the number of its Raft group.

    Arguments:
        node_id, directory_id: of this node.
        former: creates replicas on disk that are new here.
        factory: creates replicas from their state on disk.

    Attributes:
        logs: those that are logs of records, by Raft group.
        coordinators: those that coordinate consumer groups, by Raft group.
        transaction_coordinators: those that coordinate transactions, by Raft group.
        set_aside: those that are damaged and inactive, by Raft group.
        leaving_aside: of these, those that no longer belong here.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: str,
        host: RaftHost,
        former: ReplicaTombstones,
        factory: ReplicaFactory,
        metadata: CurrentImage,
    ) -> None:
        self._node_id = node_id
        self._directory_id = directory_id
        self._host = host
        self._former = former
        self._factory = factory
        self._metadata = metadata
        self._replicas: dict[int, PartitionReplica] = {}
        self.logs: dict[int, Partition] = {}
        self.coordinators: dict[int, GroupShard] = {}
        self.transaction_coordinators: dict[int, TransactionShard] = {}
        self._logs_by_name: dict[tuple[bytes, int], Partition] = {}
        #: By topic, number and Raft group: if a topic was deleted and created again, both may be here.
        self._logs_in_order: SortedDict[tuple[str, int, int], Partition] = SortedDict()
        self._found: dict[int, RaftGroupState] = {}
        self.set_aside: dict[int, SetAside] = {}
        self.leaving_aside: set[int] = set()

    def found(self, states: dict[int, RaftGroupState], damaged: Mapping[int, SetAside]) -> None:
        """Takes the replicas found on disk at opening. Each becomes active once the metadata name it; a damaged one
        does not."""
        self._found = dict(states)
        self.set_aside = dict(damaged)

    # -- following the metadata -------------------------------------------------------------------------------

    def reconcile(self, now: int) -> None:
        """Creates the replicas that this node has according to the metadata."""
        for raft_group, record in self._metadata.image.partitions.items():
            if raft_group not in self._replicas and self._node_id in record.hosts:
                self.ensure(now, raft_group)

    def ensure(self, now: int, raft_group: int) -> None:
        """Creates the replica of a Raft group if this node has one according to the metadata."""
        record = self._metadata.image.partitions.get(raft_group)
        if record is None or self._node_id not in record.hosts or raft_group in self._replicas:
            return
        if not self._is_registered:
            # These metadata are about another disk of this node id: a replaced node first applies the metadata from
            # before. A replica made for those would vote as if it were the one that was lost.
            return
        if raft_group in self.set_aside:
            return
        if self._host.is_ending(raft_group):
            self._host.after_durable(lambda: self.ensure(now, raft_group))
            return
        on_disk = self._found.get(raft_group)
        if on_disk is not None and is_witness(on_disk.table) != (self._node_id in record.witness_hosts):
            # It is from before the partition was moved away and returned as the other kind: that one ends first.
            return
        state = self._found.pop(raft_group, None)
        fresh = state is None
        replica = self._factory.make(now, record, self._former.begin(record) if state is None else state)
        replica.configure(record.topic.configs)
        self._add(raft_group, replica)
        self._host.add(raft_group, HostedReplica(replica.raft, replica, lazy_commit=True))
        if fresh and record.replicas[0] == self._node_id and not record.is_moving:
            # A new partition has no leader: the preferred leader need not wait for an election timeout.
            replica.raft.campaign(now)

    @property
    def _is_registered(self) -> bool:
        broker = self._metadata.image.brokers.get(self._node_id)
        return broker is not None and broker.registration.directory_id == self._directory_id

    def _add(self, raft_group: int, replica: LocalReplica) -> None:
        self._replicas[raft_group] = replica
        if isinstance(replica, Partition):
            self.logs[raft_group] = replica
            identity = replica.identity
            self._logs_by_name[(identity.topic_id, identity.number)] = replica
            self._logs_in_order[(identity.topic, identity.number, raft_group)] = replica
        elif isinstance(replica, GroupShard):
            self.coordinators[raft_group] = replica
        elif isinstance(replica, TransactionShard):
            self.transaction_coordinators[raft_group] = replica

    def metadata_changed(self, now: int, raft_group: int) -> None:
        """Applies changed metadata of a partition: its topic's configuration, and whatever its leader must compare
        again, for which a sleeping group is woken.

        Otherwise a replica that the controller removed from the ISR while it was fenced would stay out until the next
        append.
        """
        replica, record = self._replicas.get(raft_group), self._metadata.image.partitions.get(raft_group)
        if replica is None or record is None:
            return
        replica.configure(record.topic.configs)
        if replica.raft.is_leader:
            replica.raft.wake(now, {})
            self._host.touch(raft_group)

    def deleted(self) -> list[int]:
        """Returns Raft groups of deleted topics of which this node has data, even if only on disk. A group that the
        metadata do not contain yet does not count as deleted."""
        return [raft_group for raft_group in self.held if self.was_deleted(raft_group)]

    def was_deleted(self, raft_group: int) -> bool:
        """True if a Raft group belonged to a topic that is deleted. False for one that is not known yet."""
        return self._metadata.image.topic_table.was_deleted(raft_group)

    def moved_away(self, raft_group: int) -> PartitionRecord | None:
        """Returns the record of a partition that was moved away from this node and of which there is still data here;
        None otherwise."""
        record = self._metadata.image.partitions.get(raft_group)
        if record is None or not self.holds(raft_group):
            return None
        if self._node_id not in record.hosts:
            return record
        if raft_group in self.set_aside:
            # Its kind is damaged, too. It starts again as the kind in the metadata (`DamagedReplicas`).
            return None
        same_kind = self._holds_witness(raft_group) == (self._node_id in record.witness_hosts)
        return None if same_kind else record

    # -- lookup -----------------------------------------------------------------------------------------------

    def term_of(self, raft_group: int) -> int:
        """Returns the term of a replica that is here, even if only on disk."""
        replica = self._replicas.get(raft_group)
        if replica is None and raft_group in self.set_aside:
            return self.set_aside[raft_group].term or 0
        return replica.raft.term if replica is not None else self._found[raft_group].hard_state.term

    @property
    def held(self) -> list[int]:
        """Raft groups of which there is any data here, even if only on disk."""
        return sorted({*self._replicas, *self._found, *self.set_aside})

    def holds(self, raft_group: int) -> bool:
        """True if there is any data of a Raft group here, even if only on disk."""
        return raft_group in self._replicas or raft_group in self._found or raft_group in self.set_aside

    def _holds_witness(self, raft_group: int) -> bool:
        replica = self._replicas.get(raft_group)
        return replica.raft.is_witness if replica is not None else is_witness(self._found[raft_group].table)

    def remove(self, raft_group: int) -> PartitionReplica | None:
        """Forgets a replica, including one found on disk; returns it if it was active."""
        self._found.pop(raft_group, None)
        self.set_aside.pop(raft_group, None)
        self.leaving_aside.discard(raft_group)
        self.coordinators.pop(raft_group, None)
        self.transaction_coordinators.pop(raft_group, None)
        log = self.logs.pop(raft_group, None)
        if log is not None:
            del self._logs_by_name[(log.identity.topic_id, log.identity.number)]
            del self._logs_in_order[(log.identity.topic, log.identity.number, raft_group)]
        return self._replicas.pop(raft_group, None)

    def __getitem__(self, raft_group: int) -> PartitionReplica:
        return self._replicas[raft_group]

    def get(self, raft_group: int) -> PartitionReplica | None:
        """Returns the replica of a Raft group, if there is one here."""
        return self._replicas.get(raft_group)

    def find(self, topic_id: bytes, number: int) -> Partition | None:
        """Returns the replica of a topic's partition, if there is one here and it is a log."""
        return self._logs_by_name.get((topic_id, number))

    def logs_of(self, topic: str, number: int) -> Iterator[Partition]:
        """Yields the replicas of a partition that are here and are logs."""
        return self._logs_between((topic, number, 0), (topic, number + 1, 0))

    def logs_behind(self, topic: str, number: int) -> Iterator[Partition]:
        """Yields the logs after a partition's, in the order of topics and numbers."""
        return self._logs_between((topic, number + 1, 0), None)

    def _logs_between(self, first: tuple[str, int, int], before: tuple[str, int, int] | None) -> Iterator[Partition]:
        for place in self._logs_in_order.irange(first, before, (True, False)):
            yield self._logs_in_order[place]

    def __iter__(self) -> Iterator[PartitionReplica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    # -- metadata ---------------------------------------------------------------------------------------------

    def record(self, replica: PartitionReplica) -> PartitionRecord | None:
        """Returns the metadata of a replica's partition."""
        return self._metadata.image.partitions.get(replica.group)

    def is_in_sync(self, replica: PartitionReplica) -> bool:
        """True if the metadata name this node's replica of a partition as in sync."""
        record = self.record(replica)
        return record is not None and self._node_id in record.isr

    def replica_in_rack(self, replica: PartitionReplica, rack: str, listener: Listener) -> int | None:
        """Returns a node in a client's rack whose replica of a partition is in sync; None if this node is in that rack,
        or no such node is.

        Of several, partitions use them in turn: all clients of a rack read one partition from one node, whose memory
        has what the first of them has read.

        Arguments:
            listener: the client connects to nodes through this one.
        """
        record, brokers = self.record(replica), self._metadata.image.brokers
        if record is None or self._node_id not in brokers or brokers[self._node_id].rack == rack:
            return None
        near = [
            node
            for node in record.isr
            if node in brokers and brokers[node].rack == rack and brokers[node].endpoint(listener)[0]
        ]
        return near[record.number % len(near)] if near else None

    @property
    def is_anything_moving(self) -> bool:
        """True if any partition of the cluster is being moved."""
        return bool(self._metadata.image.moves.groups())

    def moving(self) -> list[tuple[PartitionRecord, PartitionReplica | None]]:
        """Returns the partitions of the cluster that are being moved, each with its replica here if there is one."""
        image = self._metadata.image
        return [(image.partitions[raft_group], self._replicas.get(raft_group)) for raft_group in image.moves.groups()]

    def is_host(self, raft_group: int, node: int) -> bool:
        """True if a node may have a replica of a partition according to the metadata."""
        record = self._metadata.image.partitions.get(raft_group)
        return record is not None and node in record.hosts

    def is_fenced(self, node: int) -> bool:
        """True if a node counts as down."""
        return self._metadata.image.is_fenced(node)

    def known_leader(self, record: PartitionRecord) -> tuple[int, int]:
        """Returns the leader and leader epoch of any partition, according to this node; NO_NODE without one."""
        replica = self._replicas.get(record.group)
        if replica is not None and replica.raft.term > record.leader_epoch and replica.raft.leader_id != NO_NODE:
            # The partition's own replica here has a leader that has not been reported yet.
            return replica.raft.leader_id, replica.raft.term
        return self._metadata.image.available_leader(record), record.leader_epoch

    def has_lost_leader(self, now: int, record: PartitionRecord) -> bool:
        """True if a partition's own replica here has learned that the leader in the metadata has lost the leadership,
        and has no other one: it is this node and transfers leadership or has stepped down, a term has started that
        has no leader yet, or the connection to it broke a moment ago.

        Only for a moment: a node that is partitioned from a leader that others reach would otherwise report that
        permanently.
        """
        replica = self._replicas.get(record.group)
        if replica is None:
            return False
        raft, leader = replica.raft, record.leader
        if raft.leader_id != NO_NODE:
            return raft.is_transferring
        return raft.term > record.leader_epoch or leader == self._node_id or raft.has_just_lost_leader(now)

    def named(self, names: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, PartitionRecord | None]]:
        """Yields partitions by topic name and number, each with its record if it exists; without names all
        partitions."""
        topics = self._metadata.image.topics
        chosen = list(names) or [(name, record.number) for name in topics for record in topics[name].partitions]
        for name, number in chosen:
            topic = topics.get(name)
            exists = topic is not None and 0 <= number < len(topic.partitions)
            yield name, number, topic.partitions[number] if topic is not None and exists else None
