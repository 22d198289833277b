"""Makes a survivor's directory part of the recovered cluster, in one atomic transaction."""

from __future__ import annotations

import hashlib

from quorumlog.raft.types import NO_NODE, ORIGIN, Configuration, Entry, EntryId, HardState, Snapshot
from quorumlog.server.controller.metadata_replica import applied_row
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.directory_identity import CLUSTER_ROW
from quorumlog.server.node.formation import Membership
from quorumlog.server.recovery.plan import PartitionOutcome, RecoveryPlan
from quorumlog.server.recovery.survey import RECOVERY_ROW, RecoveryError, ReplicaKind, Survey, SurveyedGroup
from quorumlog.server.replicas.replica_tombstones import forgotten_replica
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.rows import cut_slice, describe_snapshot
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.v1.partition_log_pb2 import BeginRestore, FinishRestore, PartitionCommand
from quorumlog.wire.topic_names import COORDINATOR_TOPICS

#: First offset of a partition that restarts empty; each earlier recovery adds as much. So no offset that a consumer has
#: stored is ever assigned to another record.
FRESH_OFFSET = 1 << 40
#: Size of the slices of a snapshot: the same that nodes use.
_SLICE_BYTES = 256 << 10


def is_applied(plan: RecoveryPlan, found: Survey) -> bool:
    """True if a directory is the result of the plan, or has continued from there."""
    return found.recovery == plan.plan_id


def check(plan: RecoveryPlan, found: Survey) -> None:
    """Checks that a plan fits a directory in its current state.

    Raises:
        RecoveryError: it does not.
    """
    if found.node_id not in plan.survivors:
        raise RecoveryError(
            f"the plan was made without node {found.node_id}: start that node with an empty data directory, or include"
            " its survey and make a new plan"
        )
    if plan.survivors[found.node_id] != found.fingerprint:
        raise RecoveryError(
            f"the directory of node {found.node_id} has changed since its survey: survey all survivors again, and make"
            " a new plan"
        )


def application(plan: RecoveryPlan, found: Survey, reader: StorageReader) -> StorageTransaction:
    """Returns the transaction that is written to a survivor's directory.

    Arguments:
        found: the directory in its current state.

    Raises:
        RecoveryError: the plan does not fit this directory in its current state.
        DamageError: what is damaged cannot be removed from it.
    """
    check(plan, found)
    writes = [_metadata(plan)]
    rows: dict[bytes, bytes | None] = {
        CLUSTER_ROW: Membership(plan.cluster_id, (plan.voter,)).encode(),
        RECOVERY_ROW: plan.plan_id.encode(),
    }
    for group, held in sorted(found.groups.items()):
        if group == METADATA_GROUP:
            continue
        outcome = plan.outcomes.get(group)
        if outcome is not None and outcome.goes_on.node == found.node_id and not outcome.goes_on.fresh:
            writes.append(_continuation(held, outcome))
            # Nothing that it was waiting for can arrive.
            rows.update(forgotten_replica(group))
        else:
            # Ahead or behind, it is not the chosen replica; it is recreated as a copy of that.
            if held.kind is ReplicaKind.DAMAGED:
                reader.pass_replica(group)
            writes.append(RaftGroupWrite(group, destroy=True))
    for group, outcome in sorted(plan.outcomes.items()):
        if outcome.goes_on.fresh and outcome.goes_on.node == found.node_id:
            writes.append(_beginning(group, outcome, plan))
    return StorageTransaction(0, writes, rows)


def _metadata(plan: RecoveryPlan) -> RaftGroupWrite:
    """Returns the metadata write, which is the same on every survivor: none continues its own log."""
    stage = int.from_bytes(hashlib.blake2b(plan.plan_id.encode(), digest_size=8).digest())
    data = describe_snapshot(stage, plan.snapshot, _SLICE_BYTES)
    return RaftGroupWrite(
        METADATA_GROUP,
        stage=[cut_slice(stage, plan.snapshot, _SLICE_BYTES, number) for number in range(data.slices)],
        snapshot=Snapshot(plan.last, plan.configuration, data),
        hard_state=HardState(plan.last.term, NO_NODE, plan.last.index),
        table={**applied_row(plan.last.index)},
    )


def _continuation(held: SurveyedGroup, outcome: PartitionOutcome) -> RaftGroupWrite:
    """Returns a write that commits all of the log: the lost nodes may have committed it."""
    goes_on = outcome.goes_on
    alone = Configuration((goes_on.node,))
    entry = GroupSealer(held.group).config(goes_on.index, goes_on.term, held.last_hash, alone)
    return RaftGroupWrite(
        held.group,
        entries=[entry],
        hard_state=HardState(goes_on.term, NO_NODE, goes_on.index),
        configuration=alone,
    )


def _beginning(group: int, outcome: PartitionOutcome, plan: RecoveryPlan) -> RaftGroupWrite:
    goes_on = outcome.goes_on
    entries: list[Entry] = []
    if outcome.name.rpartition("-")[0] not in COORDINATOR_TOPICS:
        restore_id = bytes.fromhex(plan.plan_id)
        offset = FRESH_OFFSET * len(MetadataImage.from_snapshot(plan.snapshot).former_cluster_ids)
        begin = BeginRestore(restore_id=restore_id, log_start_offset=offset, next_offset=offset)
        finish = FinishRestore(log_start_offset=offset)
        last = ORIGIN
        for command in (PartitionCommand(begin_restore=begin), PartitionCommand(finish_restore=finish)):
            seal = GroupSealer(group).command(command.SerializeToString(deterministic=True))
            entry = seal(last.index + 1, goes_on.term, last.hash)
            entries.append(entry)
            last = EntryId(entry.index, entry.term, entry.hash)
    return RaftGroupWrite(
        group,
        create=Configuration((goes_on.node,)),
        entries=entries,
        hard_state=HardState(goes_on.term, NO_NODE, len(entries)),
    )
