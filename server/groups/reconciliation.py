"""How a member comes from what it has to what it is to have (KIP-848, "Reconciliation").

It first gives up what it is not to have, and stays in its epoch until it has; then it comes to the newest epoch and
gets what nobody holds; the rest follows as others release it. What it keeps is never interrupted.
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
    """The member after one more step; itself when there is none to take.

    Arguments:
        target: what it is to have, as of ``assignment_epoch``.
        owned: what it has not given up, by its own account, and all that it may come to have without being told anew.
        holders: who has a partition, or has not released it.
        version: of the consumer group, once it has the member after the step.
    """
    epoch = member.member_epoch
    if member.state == UNREVOKED:
        if any(partition in owned for partition in member.revoking):
            return member
        # An epoch of its own for each time that it has to give something up: its time for that begins anew.
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
    # Nobody holds it, or the member itself does: as what it has just given up, and is to have again.
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
