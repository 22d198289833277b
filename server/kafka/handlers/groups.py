"""ListGroups, DescribeGroups and DeleteGroups, for both kinds of group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import TypeVar

from quorumlog.server.kafka.codec.groups.group_requests import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from quorumlog.server.kafka.codec.groups.group_responses import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from quorumlog.server.kafka.codec.primitives import pack_string
from quorumlog.server.kafka.handlers.allowed_operations import group_operations
from quorumlog.server.kafka.handlers.error_codes import KafkaError, group_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.memberships import GROUP_TIMEOUT_MS
from quorumlog.v1 import groups_pb2

K = TypeVar("K")
#: Kafka's names of states.
STATES = {
    groups_pb2.GROUP_EMPTY: "Empty",
    groups_pb2.GROUP_ASSIGNING: "Assigning",
    groups_pb2.GROUP_RECONCILING: "Reconciling",
    groups_pb2.GROUP_STABLE: "Stable",
    groups_pb2.GROUP_DEAD: "Dead",
    groups_pb2.GROUP_PREPARING_REBALANCE: "PreparingRebalance",
    groups_pb2.GROUP_COMPLETING_REBALANCE: "CompletingRebalance",
}
_KINDS = {groups_pb2.GROUP_KIND_CONSUMER: "consumer", groups_pb2.GROUP_KIND_CLASSIC: "classic"}
_DEAD = "Dead"
#: Kafka's protocol type of consumers, which our own clients' groups report.
_CONSUMER = "consumer"
#: From this version on, a missing group is an error; before, it is reported as dead.
_SAYS_NOT_FOUND = 6
_VERSION_0 = Struct(">hi")
_COUNT = Struct(">i")
_NO_USER_DATA = b"\xff\xff\xff\xff"


def list_groups(call: KafkaCall[ListGroupsRequest]) -> Steps[ListGroupsResponse]:
    """Answers ListGroups: the groups that this node coordinates."""
    request = call.message
    states = _named(STATES, request.states_filter)
    kinds = _named(_KINDS, request.types_filter)
    if (request.states_filter and not states) or (request.types_filter and not kinds):
        return ListGroupsResponse()  # No group has an unknown state or kind.
    question = groups_pb2.ListGroupsRequest(timeout_ms=GROUP_TIMEOUT_MS)
    question.states.extend(states)
    question.kinds.extend(kinds)
    reply = yield from ask(question, groups_pb2.ListGroupsResponse)
    if reply.HasField("error"):
        return ListGroupsResponse(error_code=group_code(reply.error))
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                each.group_id,
                each.protocol_type or ("" if each.kind == groups_pb2.GROUP_KIND_CLASSIC else _CONSUMER),
                STATES.get(each.state, _DEAD),
                _KINDS.get(each.kind, _CONSUMER),
            )
            for each in reply.groups
        ]
    )


def describe_groups(call: KafkaCall[DescribeGroupsRequest]) -> Steps[DescribeGroupsResponse]:
    """Answers DescribeGroups."""
    # A small request that repeats a name must not return many descriptions: each group is described once.
    group_ids = list(dict.fromkeys(call.message.groups))
    question = groups_pb2.DescribeGroupsRequest(group_ids=group_ids, timeout_ms=GROUP_TIMEOUT_MS)
    reply = yield from ask(question, groups_pb2.DescribeGroupsResponse)
    if reply.HasField("error"):
        code = group_code(reply.error)
        return DescribeGroupsResponse(
            groups=[DescribedGroup(code, reply.error.message, each, _DEAD) for each in group_ids]
        )
    groups = [_described(call, each) for each in reply.groups]
    if call.message.include_authorized_operations:
        described = [each for each in groups if each.error_code == KafkaError.NONE]
        operations = yield from group_operations(each.group_id for each in described)
        for group, allowed in zip(described, operations, strict=True):
            group.authorized_operations = allowed
    return DescribeGroupsResponse(groups=groups)


def delete_groups(call: KafkaCall[DeleteGroupsRequest]) -> Steps[DeleteGroupsResponse]:
    """Answers DeleteGroups."""
    group_ids = list(call.message.groups_names)
    question = groups_pb2.DeleteGroupsRequest(group_ids=group_ids, timeout_ms=GROUP_TIMEOUT_MS)
    reply = yield from ask(question, groups_pb2.DeleteGroupsResponse)
    if reply.HasField("error"):
        return DeleteGroupsResponse(results=[DeletableGroupResult(each, group_code(reply.error)) for each in group_ids])
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(each.group_id, group_code(each.error)) for each in reply.results]
    )


def _named(names: Mapping[K, str], wanted: Sequence[str]) -> list[K]:
    lowered = {name.lower() for name in wanted}
    return [value for value, name in names.items() if name.lower() in lowered]


def _described(call: KafkaCall[DescribeGroupsRequest], group: groups_pb2.GroupDescription) -> DescribedGroup:
    if group.HasField("error"):
        code = group_code(group.error)
        if code is KafkaError.GROUP_ID_NOT_FOUND and call.version < _SAYS_NOT_FOUND:
            return DescribedGroup(group_id=group.group_id, group_state=_DEAD)
        return DescribedGroup(code, group.error.message, group.group_id, _DEAD)
    is_classic = group.kind == groups_pb2.GROUP_KIND_CLASSIC
    return DescribedGroup(
        group_id=group.group_id,
        group_state=STATES.get(group.state, _DEAD),
        protocol_type=group.protocol_type if is_classic else _CONSUMER,
        protocol_data=group.protocol if is_classic else group.assignor,
        members=[
            DescribedGroupMember(
                each.member_id,
                each.instance_id or None,
                each.client_id,
                f"/{each.host}",
                each.classic_metadata,
                each.classic_assignment if is_classic else _assignment(each),
            )
            for each in group.members
        ],
    )


def _assignment(member: groups_pb2.MemberDescription) -> bytes:
    """Encodes the assignment of our own clients' member as Kafka's consumers do (ConsumerProtocolAssignment)."""
    parts = [_VERSION_0.pack(0, len(member.assignment))]
    for topic in member.assignment:
        parts += [pack_string(topic.topic), _COUNT.pack(len(topic.partitions)), *map(_COUNT.pack, topic.partitions)]
    return b"".join((*parts, _NO_USER_DATA))
