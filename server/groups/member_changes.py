"""Changes of membership: the effect of a heartbeat on its consumer group before a new assignment is computed."""

from __future__ import annotations

import dataclasses

from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.member import (
    JOIN_EPOCH,
    STABLE,
    STATIC_LEAVE_EPOCH,
    UNREVOKED,
    GroupMember,
    MemberSubscription,
    PartitionId,
)
from quorumlog.server.groups.records import partitions_of
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

# -- membership -------------------------------------------------------------------------------------------------------


def join(draft: Draft, request: groups_pb2.GroupHeartbeatRequest, origin: RequestContext) -> errors_pb2.Error | None:
    """Adds a member, or does so again if the answer to its first attempt was lost. Returns the error, or None."""
    group = draft.group(request.group_id)
    known = group.members.get(request.member_id) if group is not None else None
    if known is not None and known.instance_id != request.instance_id:
        return _renamed(known)
    holder = group.instances.get(request.instance_id) if group is not None else None
    if group is not None and holder is not None and holder != request.member_id:
        if group.members[holder].is_present:
            return error(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"static member {request.instance_id} is in group {group.group_id} already, as {holder}: stop that one"
                " first, or wait until its session ends",
            )
        _take_place(draft, request.group_id, group.members[holder], request.member_id)
    elif known is None:
        refused = _check_room(draft, group, request)
        if refused is not None:
            return refused
        edit = draft.edit(request.group_id)
        edit.put_member(GroupMember(request.member_id, request.instance_id))
        edit.is_unsettled = True
    elif not known.is_present:
        draft.edit(request.group_id).put_member(dataclasses.replace(known, member_epoch=JOIN_EPOCH))
    _update(draft, request, origin)
    return None


def leave(draft: Draft, request: groups_pb2.GroupHeartbeatRequest) -> errors_pb2.Error | None:
    """Removes a member, or marks a static one as expected to return. Returns the error, or None.

    A member that does not exist has left already: its answer may have been lost.
    """
    group = draft.group(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if group is None or member is None:
        return _check_instance(group, request)
    if member.instance_id != request.instance_id:
        return _renamed(member)
    if request.member_epoch != STATIC_LEAVE_EPOCH:
        remove(draft, request.group_id, request.member_id)
    elif member.is_present:
        # Its process has stopped: what it was to release is free, and what it has is kept for its return.
        draft.edit(request.group_id).put_member(
            dataclasses.replace(
                member,
                member_epoch=STATIC_LEAVE_EPOCH,
                previous_epoch=member.member_epoch,
                state=STABLE,
                assigned=_in_target(group, member),
                revoking={},
            )
        )
    return None


def stay(draft: Draft, request: groups_pb2.GroupHeartbeatRequest, origin: RequestContext) -> errors_pb2.Error | None:
    """Updates a member that stays, perhaps with another subscription. Returns the error if it is fenced, or None."""
    group = draft.group(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if group is None or member is None:
        unknown = error(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {request.group_id} has no member {request.member_id}: it has expired; join again",
        )
        return _check_instance(group, request) or unknown
    if member.instance_id != request.instance_id:
        return _renamed(member)
    epoch = request.member_epoch
    if epoch != member.member_epoch and not _has_missed_an_answer(member, request):
        return error(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.member_id} is at epoch {member.member_epoch} of group {group.group_id}, not at {epoch}:"
            " give up all partitions and join again",
        )
    if is_of_newest_assignment(member, request):
        _update(draft, request, origin)
    return None


def is_of_newest_assignment(member: GroupMember, request: groups_pb2.GroupHeartbeatRequest) -> bool:
    """True if a member had received its current assignment when it sent a heartbeat.

    An older heartbeat may have been delayed by a change of coordinator, behind what the member has sent since. For a
    member that does not send versions only the epoch can show that, so ``heartbeat_decisions`` gives it no partitions
    within an epoch.
    """
    return request.assignment_version in (0, member.assignment_version)


def _has_missed_an_answer(member: GroupMember, request: groups_pb2.GroupHeartbeatRequest) -> bool:
    """True if a member is one epoch behind and the answer can be repeated: it has no partition that it may not have."""
    if not member.is_present or request.member_epoch > member.member_epoch:
        return False
    # A member that has missed an answer must send everything: the state of omitted fields is not known.
    if request.member_epoch != member.previous_epoch or request.omitted.owned:
        return False
    return all(member.held_since(partition) is not None for partition in partitions_of(request.owned))


# -- removal ----------------------------------------------------------------------------------------------------------


def remove(draft: Draft, group_id: str, member_id: str) -> None:
    """Removes a member; its partitions are free."""
    edit = draft.edit(group_id)
    edit.remove_member(member_id)
    edit.is_unsettled = True


def expire_session(draft: Draft, group_id: str, member_id: str) -> bool:
    """Removes a member whose session has expired. Returns True if it existed."""
    group = draft.group(group_id)
    if group is None or member_id not in group.members:
        return False
    remove(draft, group_id, member_id)
    return True


def expire_rebalance(draft: Draft, group_id: str, member_id: str, member_epoch: int) -> bool:
    """Removes a member that has not released its partitions within its rebalance timeout.

    Arguments:
        member_epoch: the epoch in which it had to. Each time it must release partitions has an epoch of its own.

    Returns:
        True if it still had to release them, and was removed.
    """
    group = draft.group(group_id)
    member = group.members.get(member_id) if group is not None else None
    if member is None or member.state != UNREVOKED or member.member_epoch != member_epoch:
        return False
    remove(draft, group_id, member_id)
    return True


# -- details ----------------------------------------------------------------------------------------------------------


def wishes(request: groups_pb2.GroupHeartbeatRequest, principal: str) -> MemberSubscription:
    """Returns the subscription in a heartbeat, for a principal."""
    return MemberSubscription(tuple(sorted(set(request.topics))), request.topic_pattern, request.assignor, principal)


def _update(draft: Draft, request: groups_pb2.GroupHeartbeatRequest, origin: RequestContext) -> None:
    group = draft.group(request.group_id)
    assert group is not None
    member = group.members[request.member_id]
    updated = dataclasses.replace(
        member,
        rack=request.rack,
        client_id=origin.client_id,
        host=origin.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        subscription=wishes(request, origin.principal),
    )
    if updated != member:
        edit = draft.edit(request.group_id)
        edit.put_member(updated)
        edit.is_unsettled |= updated.subscription != member.subscription


def _take_place(draft: Draft, group_id: str, former: GroupMember, member_id: str) -> None:
    """Gives a new process of a static member the state of the former one: no new assignment is needed."""
    edit = draft.edit(group_id)
    # None yet if the former one has joined and left in this very draft.
    target = edit.group.targets.get(former.member_id)
    edit.remove_member(former.member_id)
    edit.put_member(
        dataclasses.replace(former, member_id=member_id, member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    )
    if target is not None:
        edit.put_targets({member_id: target})


def _in_target(group: ConsumerGroup, member: GroupMember) -> dict[PartitionId, int]:
    target = group.targets.get(member.member_id, frozenset())
    return {partition: since for partition, since in member.assigned.items() if partition in target}


def _check_room(
    draft: Draft, group: ConsumerGroup | None, request: groups_pb2.GroupHeartbeatRequest
) -> errors_pb2.Error | None:
    if group is None and draft.is_full:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the coordinator of group {request.group_id} has its limit of {draft.limits.groups} groups: delete"
            " unused groups",
        )
    if group is not None and len(group.members) >= draft.limits.members:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {request.group_id} has {draft.limits.members} members and accepts no more: stop others first",
        )
    return None


def _check_instance(group: ConsumerGroup | None, request: groups_pb2.GroupHeartbeatRequest) -> errors_pb2.Error | None:
    holder = group.instances.get(request.instance_id) if group is not None and request.instance_id else None
    if holder is None or holder == request.member_id:
        return None
    return error(
        ErrorCode.FENCED_INSTANCE_ID,
        f"static member {request.instance_id} of group {request.group_id} is now {holder}: another process has the"
        " same name; stop one of the two",
    )


def _renamed(member: GroupMember) -> errors_pb2.Error:
    name = f"has the static name {member.instance_id}" if member.instance_id else "has no static name"
    return error(
        ErrorCode.INVALID_REQUEST,
        f"member {member.member_id} {name}: a member keeps its static name; join with another member id",
    )
