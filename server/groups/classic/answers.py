"""Responses to members of classic groups."""

from __future__ import annotations

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.groups.classic.calls import ClassicRequest
from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def refused(request: ClassicRequest, problem: errors_pb2.Error, member_id: str = "") -> ProtoMessage:
    """Returns the response to a call that is refused as a whole.

    Arguments:
        member_id: the id with which a new member must join.
    """
    match request:
        case groups_pb2.JoinClassicGroupRequest():
            return groups_pb2.JoinClassicGroupResponse(
                error=problem, generation=-1, member_id=member_id or request.member_id
            )
        case groups_pb2.SyncClassicGroupRequest():
            return groups_pb2.SyncClassicGroupResponse(error=problem)
        case groups_pb2.ClassicHeartbeatRequest():
            return groups_pb2.ClassicHeartbeatResponse(error=problem)
        case groups_pb2.LeaveClassicGroupRequest():
            return groups_pb2.LeaveClassicGroupResponse(error=problem)


def joined(classic: ClassicGroup, member_id: str) -> groups_pb2.JoinClassicGroupResponse:
    """Returns the response to a join: the round, with all members if it goes to their leader."""
    response = groups_pb2.JoinClassicGroupResponse(
        generation=classic.generation,
        protocol_type=classic.protocol_type,
        protocol=classic.protocol,
        leader=classic.leader,
        member_id=member_id,
    )
    if classic.leader == member_id:
        for _, member in sorted(classic.members.items()):
            response.members.add(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(classic.protocol),
            )
    return response


def came_back(
    classic: ClassicGroup, member_id: str, former: str, *, can_skip: bool
) -> groups_pb2.JoinClassicGroupResponse:
    """Returns the response to a static member that has returned and keeps its assignment: no member has to assign
    (KIP-814).

    Arguments:
        former: its id before.
        can_skip: True if the client supports `skip_assignment`. Another leader gets the former id of the leader:
            otherwise it would compute an assignment, which would not be accepted.
    """
    response = joined(classic, member_id)
    if classic.leader != member_id:
        return response
    if can_skip:
        response.skip_assignment = True
    else:
        response.leader = former
        del response.members[:]
    return response


def synced(classic: ClassicGroup, member_id: str) -> groups_pb2.SyncClassicGroupResponse:
    """Returns the response to a sync: the member's part of the assignment."""
    return groups_pb2.SyncClassicGroupResponse(
        protocol_type=classic.protocol_type,
        protocol=classic.protocol,
        assignment=classic.assignments.get(member_id, b""),
    )


def rebalancing(group_id: str) -> errors_pb2.Error:
    """Returns the error for a member that must join again."""
    return error(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group_id} rebalances: join again")


def unknown_member(group_id: str, member_id: str) -> errors_pb2.Error:
    """Returns the error for an unknown member."""
    return error(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group_id} has no member {member_id!r}: it has expired; join again",
    )


def fenced_instance(group_id: str, instance_id: str) -> errors_pb2.Error:
    """Returns the error for a static member whose name another process has taken over."""
    return error(
        ErrorCode.FENCED_INSTANCE_ID,
        f"static member {instance_id} of group {group_id} is now another process: stop one of the two",
    )


def other_generation(classic: ClassicGroup, group_id: str, generation: int) -> errors_pb2.Error:
    """Returns the error for a member that is in another generation."""
    return error(
        ErrorCode.ILLEGAL_GENERATION,
        f"group {group_id} is in generation {classic.generation}, not in {generation}: join again",
    )


def check_member(
    classic: ClassicGroup | None, group_id: str, member_id: str, instance_id: str
) -> errors_pb2.Error | None:
    """Returns the error if these ids do not identify a member of the group; None if they do."""
    holder = classic.instances.get(instance_id) if classic is not None and instance_id else None
    if holder is not None and holder != member_id:
        return fenced_instance(group_id, instance_id)
    if classic is None or member_id not in classic.members or (instance_id and holder is None):
        return unknown_member(group_id, member_id)
    return None


def check_committer(
    classic: ClassicGroup, group_id: str, member_id: str, instance_id: str, generation: int
) -> errors_pb2.Error | None:
    """Returns the error if a client may not commit offsets of a classic group; None if it may
    (``ClassicGroup.validateOffsetCommit``).

    Arguments:
        generation: negative for a client that is not a member: it may commit while the group is empty.
    """
    if generation < 0 and classic.is_empty:
        return None
    if generation < 0 and not member_id and not instance_id:
        return error(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has members: only they commit its offsets; stop them first"
        )
    refused = check_member(classic, group_id, member_id, instance_id)
    if refused is not None:
        return refused
    if generation != classic.generation:
        return other_generation(classic, group_id, generation)
    # The members have given up their partitions of the previous generation, and have none of this one yet.
    return rebalancing(group_id) if classic.is_syncing else None
