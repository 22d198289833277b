"""Makes a survivor's directory part of the recovered cluster: one transaction, all of it or nothing."""

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
from quorumlog.storage.transaction import RaftGroupWrite, Transaction
from quorumlog.v1.partition_log_pb2 import BeginRestore, FinishRestore, PartitionCommand
from quorumlog.wire.topic_names import GROUPS_TOPIC

#: Offsets of a partition that begins anew begin here, and so much further with each recovery before: none that a
#: consumer has kept is ever given to another record.
FRESH_OFFSET = 1 << 40
#: Of a snapshot's data: as nodes cut them.
_SLICE_BYTES = 256 << 10


def is_applied(plan: RecoveryPlan, found: Survey) -> bool:
    """Whether a directory is what the plan makes of it, or has gone on from there."""
    return found.recovery == plan.plan_id


def check(plan: RecoveryPlan, found: Survey) -> None:
    """Checks that a plan is for a directory as it is.

    Raises:
        RecoveryError: it is not.
    """
    if found.node_id not in plan.survivors:
        raise RecoveryError(
            f"the plan was made without node {found.node_id}: start that node with an empty data directory, or survey"
            " it too and make the plan anew"
        )
    if plan.survivors[found.node_id] != found.fingerprint:
        raise RecoveryError(
            f"the directory of node {found.node_id} is not what was surveyed: survey all survivors again, and make the"
            " plan anew"
        )


def application(plan: RecoveryPlan, found: Survey, reader: StorageReader) -> Transaction:
    """What is to be written into a survivor's directory.

    Arguments:
        found: the directory as it is now.

    Raises:
        RecoveryError: the plan is not for this directory as it is.
        DamageError: what is damaged cannot be taken out of it.
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
            # Nothing that it was told to wait for can come any more.
            rows.update(forgotten_replica(group))
        else:
            # Ahead or behind, it is not what was chosen; it comes back as a copy of that.
            if held.kind is ReplicaKind.DAMAGED:
                reader.pass_replica(group)
            writes.append(RaftGroupWrite(group, destroy=True))
    for group, outcome in sorted(plan.outcomes.items()):
        if outcome.goes_on.fresh and outcome.goes_on.node == found.node_id:
            writes.append(_beginning(group, outcome, plan))
    return Transaction(0, writes, rows)


def _metadata(plan: RecoveryPlan) -> RaftGroupWrite:
    """The same on every survivor: nobody goes on from a log of its own."""
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
    """All that is in the log is committed by this: the lost nodes may have committed it."""
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
    if outcome.name.rpartition("-")[0] != GROUPS_TOPIC:
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
