"""Creates this node's replicas of partitions: logs of records, and coordinators."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from quorumlog.raft.types import Snapshot
from quorumlog.server.deciding.coordinator_replica import decode_applied
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.hosting.checkpoint_writer import CheckpointWriter
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.partition.partition import META_ROW, Partition, decode_meta
from quorumlog.server.partition.witness import PartitionWitness, applied_of, is_witness
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.storage.rows import read_snapshot
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.wire import topic_names

CoordinatorT = TypeVar("CoordinatorT", GroupShard, TransactionShard)
LocalReplica: TypeAlias = Partition | GroupShard | TransactionShard | PartitionWitness


class ReplicaFactory:
    """Creates replicas from their durable state.

    Arguments:
        raft_groups: creates the Raft replica of each.
        checkpoints: the snapshots that are being written here.
        former: records of replicas that were moved away from here.
    """

    def __init__(
        self,
        raft_groups: RaftGroupFactory,
        checkpoints: CheckpointWriter,
        former: ReplicaTombstones,
        metadata: CurrentImage,
    ) -> None:
        self._raft_groups = raft_groups
        self._checkpoints = checkpoints
        self._former = former
        self._metadata = metadata

    def make(self, now: int, record: PartitionRecord, state: RaftGroupState) -> LocalReplica:
        """Returns a replica of a partition.

        Arguments:
            state: its durable state.
        """
        identity = PartitionId(record.topic.topic_id, record.topic.name, record.number)
        if is_witness(state.table):
            return self._witness(now, identity, state)
        match record.topic.name:
            case topic_names.GROUPS_TOPIC:
                return self._coordinator(now, identity, state, GroupShard)
            case topic_names.TRANSACTIONS_TOPIC:
                return self._coordinator(now, identity, state, TransactionShard)
            case _:
                return self._log(now, identity, state)

    def _witness(self, now: int, identity: PartitionId, state: RaftGroupState) -> PartitionWitness:
        applied = applied_of(state.table)
        raft = self._raft_groups.make(
            now, state, GroupSealer(state.group), applied=applied, committed=applied, snapshot_source=lambda: None,
            votes_from=self._former.votes_from(state.group), is_witness=True,
        )  # fmt: skip
        return PartitionWitness(identity, raft, state.table)

    def _log(self, now: int, identity: PartitionId, state: RaftGroupState) -> Partition:
        group, sealer = state.group, GroupSealer(state.group)

        def offered() -> Snapshot | None:
            # A snapshot that is about to be superseded would be deleted during its transfer.
            return None if self._checkpoints.is_switching(group) else log.snapshot

        applied = decode_meta(state.table.get(META_ROW))[0]
        raft = self._raft_groups.make(
            now, state, sealer, applied=applied, committed=applied, snapshot_source=offered,
            votes_from=self._former.votes_from(group),
        )  # fmt: skip
        log = Partition(
            identity, raft, sealer, self._raft_groups.reader, state.table, self._raft_groups.options.limits,
            lambda: self._metadata.image.named_producers, lambda: self._metadata.image.feature_level,
        )  # fmt: skip
        log.snapshot = state.snapshot
        return log

    def _coordinator(
        self, now: int, identity: PartitionId, state: RaftGroupState, kind: type[CoordinatorT]
    ) -> CoordinatorT:
        group, sealer = state.group, GroupSealer(state.group)

        def offered() -> Snapshot | None:
            return None if self._checkpoints.is_writing(group) else coordinator.snapshot

        def read_state(snapshot: Snapshot) -> bytes:
            return read_snapshot(self._raft_groups.reader, group, snapshot.data)

        raft = self._raft_groups.make(
            now, state, sealer, applied=state.anchor.index, committed=decode_applied(state.table),
            snapshot_source=offered, votes_from=self._former.votes_from(group),
        )  # fmt: skip
        coordinator: CoordinatorT = kind(identity, raft, sealer, state.snapshot, read_state)
        return coordinator
