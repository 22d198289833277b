"""Checks of a member that joins a classic group, on its own and against the other members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits, refuse_growth
from quorumlog.server.groups.classic import answers
from quorumlog.server.groups.classic.calls import ClassicCall, ClassicDraft
from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.server.groups.classic.protocol_choice import common_protocols
from quorumlog.server.groups.classic.request_forms import rebalance_timeout_ms
from quorumlog.server.groups.classic.rounds import ClassicRounds
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import JoinClassicGroupRequest

Members: TypeAlias = Mapping[str, ClassicMember]

#: An assignment of up to this size is accepted even if the coordinator is full, so that existing groups continue.
_SMALL_ASSIGNMENT_BYTES = 16 << 10


def member_of_join(
    call: ClassicCall, request: JoinClassicGroupRequest, member_id: str, limits: ConsumerGroupLimits
) -> ClassicMember:
    """Returns the member of a join request. Of several protocols with the same name, the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return ClassicMember(
        member_id,
        request.instance_id,
        call.client.client_id,
        call.client.host,
        call.client.principal,
        request.session_timeout_ms,
        rebalance_timeout_ms(request, limits),
        tuple(protocols.items()),
    )


def holder_of(classic: ClassicGroup, joins: Members, instance_id: str) -> str | None:
    """Returns the member that has a static name; of two, the one that waits in a round, because it is newer."""
    waiting = (member.member_id for member in joins.values() if member.instance_id == instance_id)
    return next(waiting, classic.instances.get(instance_id))


def check_identity(
    request: JoinClassicGroupRequest, classic: ClassicGroup, rounds: ClassicRounds
) -> errors_pb2.Error | None:
    """Returns the error if the ids of a member do not match; None if they do."""
    group_id, member_id, instance_id = request.group_id, request.member_id, request.instance_id
    joins = rounds.joins(group_id)
    if instance_id:
        holder = holder_of(classic, joins, instance_id)
        if holder is not None and holder != member_id:
            return answers.fenced_instance(group_id, instance_id)
        return answers.unknown_member(group_id, member_id) if holder is None else None
    if member_id in classic.members or member_id in joins or member_id in rounds.named(group_id):
        return None
    return answers.unknown_member(group_id, member_id)


def check_group(draft: ClassicDraft, group_id: str) -> errors_pb2.Error | None:
    """Returns the error if there cannot be a classic group of this id now; None if there can."""
    if not draft.has_classic_groups:
        problem = "not all nodes support classic groups yet: upgrade the cluster's features"
        return error(ErrorCode.UNSUPPORTED_VERSION, problem)
    if draft.has_consumers(group_id):
        return error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group_id} has members that the coordinator assigns (group.protocol=consumer): stop them first",
        )
    if not draft.exists(group_id) and draft.is_full:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the coordinator of group {group_id} has its limit of {draft.limits.groups} groups: delete unused groups",
        )
    return None


def check_others(
    request: JoinClassicGroupRequest, common_type: str, member: ClassicMember, others: Iterable[ClassicMember]
) -> errors_pb2.Error | None:
    """Returns the error if a member does not share a protocol with the others; None if it does.

    Arguments:
        common_type: the protocol type of the others; empty without others.
    """
    group_id, protocol_type = request.group_id, request.protocol_type
    if common_type and common_type != protocol_type:
        return error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group_id} is of protocol type {common_type}, not {protocol_type}: join another group",
        )
    common = common_protocols(others)
    if common is not None and common.isdisjoint(member.names):
        return error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of group {group_id} all support {', '.join(sorted(common))}, but this one does not: configure"
            " one of these protocols",
        )
    return None


def check_room(
    draft: ClassicDraft, group_id: str, member: ClassicMember, before: ClassicMember | None, others: Members
) -> errors_pb2.Error | None:
    """Returns the error if a group cannot accept a member; None if it can.

    Arguments:
        before: its former state, or the member whose place it takes; None if it is new.
        others: all members but this one.
    """
    limits = draft.limits
    if len(others) >= limits.members:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group_id} has {limits.members} members and accepts no more: stop others first",
        )
    size = member.size_bytes + sum(each.size_bytes for each in others.values())
    if size > limits.classic_group_bytes:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the metadata of the members of group {group_id} have {size} bytes, and the limit is"
            f" {limits.classic_group_bytes}: stop others first",
        )
    grows = member.size_bytes - (before.size_bytes if before is not None else 0)
    if grows > 0 and not draft.has_room_for(grows):
        return refuse_growth(group_id, limits)
    return None


def check_assignment(
    draft: ClassicDraft, group_id: str, classic: ClassicGroup, parts: Mapping[str, bytes]
) -> errors_pb2.Error | None:
    """Returns the error if a group cannot accept the assignment of its leader; None if it can.

    Arguments:
        parts: assignments by member.
    """
    limits, size = draft.limits, sum(map(len, parts.values()))
    if size > limits.classic_group_bytes:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the assignment has {size} bytes: send at most {limits.classic_group_bytes}",
        )
    grows = size - sum(map(len, classic.assignments.values()))
    if size > _SMALL_ASSIGNMENT_BYTES and not draft.has_room_for(grows):
        return refuse_growth(group_id, limits)
    return None
