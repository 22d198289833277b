"""Reconciliation: the steps of a member from its current to its target assignment (KIP-848, "Reconciliation").

It first releases the partitions that are not in its target, and stays in its epoch until it has; then it advances to
the newest epoch and gets the free partitions; the rest follows as others release them. The partitions that it keeps are
never interrupted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from quorumlog.server.groups.member import STABLE, UNRELEASED, UNREVOKED, GroupMember, PartitionId
from quorumlog.v1.coordinator_log_pb2 import MemberState


def reconcile(
    member: GroupMember,
    target: frozenset[PartitionId],
    assignment_epoch: int,
    owned: Collection[PartitionId],
    holders: Mapping[PartitionId, str],
    version: int,
) -> GroupMember:
    """Returns the member after one more step; the same object if no step is left.

    Arguments:
        target: its target, as of ``assignment_epoch``.
        owned: the partitions that it has not given up according to its heartbeat, and all that it may take up without
            another answer.
        holders: the member that has a partition, or has not released it.
        version: version of the consumer group that will contain the member after the step.
    """
    epoch = member.member_epoch
    if member.state == UNREVOKED:
        if any(partition in owned for partition in member.revoking):
            return member
        # Each time that it has to release partitions has an epoch of its own: its timeout starts again.
        epoch += 1
    elif member.state == STABLE and epoch == assignment_epoch:
        return member
    assigned = {partition: since for partition, since in member.assigned.items() if partition in target}
    revoking = {
        partition: since
        for partition, since in member.assigned.items()
        if partition not in target and partition in owned
    }
    if revoking:
        return _moved(member, version, epoch, UNREVOKED, assigned, revoking)
    missing = [partition for partition in target if partition not in assigned]
    # No member holds it, or the member itself does: it has just released it, and gets it again.
    free = [partition for partition in missing if holders.get(partition, member.member_id) == member.member_id]
    assigned.update((partition, assignment_epoch) for partition in sorted(free))
    state = STABLE if len(free) == len(missing) else UNRELEASED
    return _moved(member, version, assignment_epoch, state, assigned, {})


def _moved(
    member: GroupMember,
    version: int,
    epoch: int,
    state: MemberState.ValueType,
    assigned: dict[PartitionId, int],
    revoking: dict[PartitionId, int],
) -> GroupMember:
    if (epoch, state, revoking) == (member.member_epoch, member.state, member.revoking) and assigned == member.assigned:
        return member
    previous = member.member_epoch if epoch != member.member_epoch else member.previous_epoch
    return dataclasses.replace(
        member,
        member_epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=assigned,
        revoking=revoking,
        assignment_version=version,
    )
