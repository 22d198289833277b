"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup: membership of classic groups."""

from __future__ import annotations

from quorumlog.server.kafka.codec.groups.membership_requests import (
    FindCoordinatorRequest,
    GroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from quorumlog.server.kafka.codec.groups.membership_responses import (
    FindCoordinatorResponse,
    FoundCoordinator,
    GroupHeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, group_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.v1 import groups_pb2

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
#: Kinds of coordinator that exist, as the nodes call them.
_KINDS = {
    _GROUP: groups_pb2.COORDINATOR_TYPE_GROUP,
    _TRANSACTION: groups_pb2.COORDINATOR_TYPE_TRANSACTION,
}
_REFUSED = {_SHARE: (KafkaError.INVALID_REQUEST, "share groups are not supported: use a consumer group")}
_UNKNOWN_KIND = (
    KafkaError.INVALID_REQUEST,
    "unknown kind of coordinator: set key_type to 0 (groups) or 1",
)
_NOBODY = -1
#: Versions from which on requests and responses name several at once, or have further fields.
_MANY_KEYS, _MANY_LEAVE = 4, 3
_NAMED_FIRST, _NULL_PROTOCOL, _SKIPS_ASSIGNMENT = 4, 7, 9
#: Timeout of a coordinator where the request has none, and timeout of members that wait for their leader's assignment.
GROUP_TIMEOUT_MS = 10_000
_SYNC_TIMEOUT_MS = 300_000


def find_coordinators(call: KafkaCall[FindCoordinatorRequest]) -> Steps[FindCoordinatorResponse]:
    """Answers FindCoordinator."""
    request = call.message
    keys = list(request.coordinator_keys) if call.version >= _MANY_KEYS else [request.key]
    kind = _KINDS.get(request.key_type)
    if kind is None:
        found = [_nobody(key, *_REFUSED.get(request.key_type, _UNKNOWN_KIND)) for key in keys]
    else:
        found = yield from _find(keys, kind)
    if call.version >= _MANY_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find(keys: list[str], kind: groups_pb2.CoordinatorType.ValueType) -> Steps[list[FoundCoordinator]]:
    question = groups_pb2.FindCoordinatorsRequest(group_ids=keys, type=kind)
    reply = yield from ask(question, groups_pb2.FindCoordinatorsResponse)
    if reply.HasField("error"):
        return [_nobody(each, group_code(reply.error), reply.error.message) for each in keys]
    found = []
    for key, each in zip(keys, reply.coordinators, strict=True):
        if each.HasField("error"):
            found.append(_nobody(key, group_code(each.error), each.error.message))
        elif each.node_id == _NOBODY or not each.host:
            found.append(_nobody(key, KafkaError.COORDINATOR_NOT_AVAILABLE, f"{key} has no coordinator at the moment"))
        else:
            found.append(FoundCoordinator(key, each.node_id, each.host, each.port, error_message=None))
    return found


def _nobody(key: str, code: KafkaError, why: str) -> FoundCoordinator:
    return FoundCoordinator(key, _NOBODY, "", _NOBODY, code, why)


def join(call: KafkaCall[JoinGroupRequest]) -> Steps[JoinGroupResponse]:
    """Answers JoinGroup, when the rebalance round is complete."""
    request = call.message
    question = groups_pb2.JoinClassicGroupRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or "",
        protocol_type=request.protocol_type,
        protocols=[groups_pb2.ClassicProtocol(name=each.name, metadata=each.metadata) for each in request.protocols],
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        reason=request.reason or "",
        can_be_named_first=call.version >= _NAMED_FIRST,
        can_skip_assignment=call.version >= _SKIPS_ASSIGNMENT,
    )
    reply = yield from ask(question, groups_pb2.JoinClassicGroupResponse)
    if reply.HasField("error"):
        return JoinGroupResponse(
            error_code=group_code(reply.error),
            protocol_name=None if call.version >= _NULL_PROTOCOL else "",
            member_id=reply.member_id,
        )
    return JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type or None,
        protocol_name=reply.protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(each.member_id, each.instance_id or None, each.metadata) for each in reply.members
        ],
    )


def sync(call: KafkaCall[SyncGroupRequest]) -> Steps[SyncGroupResponse]:
    """Answers SyncGroup, when the leader has assigned partitions."""
    request = call.message
    question = groups_pb2.SyncClassicGroupRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or "",
        protocol_type=request.protocol_type or "",
        protocol=request.protocol_name or "",
        assignments=[
            groups_pb2.ClassicAssignment(member_id=each.member_id, assignment=each.assignment)
            for each in request.assignments
        ],
        timeout_ms=_SYNC_TIMEOUT_MS,
    )
    reply = yield from ask(question, groups_pb2.SyncClassicGroupResponse)
    if reply.HasField("error"):
        code = group_code(reply.error)
        # Brokers never return it for SyncGroup, and Java's consumer stops for it. A member that rejoins gets the same
        # round.
        is_busy = code is KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        return SyncGroupResponse(error_code=KafkaError.REBALANCE_IN_PROGRESS if is_busy else code)
    return SyncGroupResponse(
        protocol_type=reply.protocol_type or None, protocol_name=reply.protocol or None, assignment=reply.assignment
    )


def heartbeat(call: KafkaCall[GroupHeartbeatRequest]) -> Steps[GroupHeartbeatResponse]:
    """Answers Heartbeat."""
    request = call.message
    question = groups_pb2.ClassicHeartbeatRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or "",
        timeout_ms=GROUP_TIMEOUT_MS,
    )
    reply = yield from ask(question, groups_pb2.ClassicHeartbeatResponse)
    code = group_code(reply.error)
    # Members do not expect this error here: aiokafka's stop for it, sarama's rejoin. The next heartbeat reports what
    # there is.
    is_busy = code is KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    return GroupHeartbeatResponse(error_code=KafkaError.NONE if is_busy else code)


def leave(call: KafkaCall[LeaveGroupRequest]) -> Steps[LeaveGroupResponse]:
    """Answers LeaveGroup."""
    request = call.message
    if call.version >= _MANY_LEAVE:
        members = [
            groups_pb2.LeavingClassicMember(
                member_id=each.member_id, instance_id=each.group_instance_id or "", reason=each.reason or ""
            )
            for each in request.members
        ]
    else:
        members = [groups_pb2.LeavingClassicMember(member_id=request.member_id)]
    question = groups_pb2.LeaveClassicGroupRequest(
        group_id=request.group_id, members=members, timeout_ms=GROUP_TIMEOUT_MS
    )
    reply = yield from ask(question, groups_pb2.LeaveClassicGroupResponse)
    if reply.HasField("error"):
        return LeaveGroupResponse(error_code=group_code(reply.error))
    left = [MemberResponse(each.member_id, each.instance_id or None, group_code(each.error)) for each in reply.results]
    if call.version >= _MANY_LEAVE:
        return LeaveGroupResponse(members=left)
    return LeaveGroupResponse(error_code=left[0].error_code)
