"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose coordinator assigns partitions (KIP-848).

Our own clients use the same protocol, so members of both kinds share a group. Members that use Kafka's clients send
only what has changed, and receive assignments with their next heartbeat: heartbeats are not held back, because the
requests sent after one would wait, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from quorumlog.server.kafka.codec.groups.consumer_group_responses import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
    GivenAssignment,
    GivenTopicPartitions,
)
from quorumlog.server.kafka.handlers.allowed_operations import group_operations
from quorumlog.server.kafka.handlers.error_codes import KafkaError, group_code
from quorumlog.server.kafka.handlers.groups import STATES
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.memberships import GROUP_TIMEOUT_MS
from quorumlog.v1 import groups_pb2

_JOINS = 0
_NOT_CHANGED = -1
#: From this version on, members generate their own ids.
_BRINGS_ID = 1
_CONSUMER_MEMBER = 1
_DEAD = "Dead"


def heartbeat(call: KafkaCall[ConsumerGroupHeartbeatRequest]) -> Steps[ConsumerGroupHeartbeatResponse]:
    """Answers ConsumerGroupHeartbeat, immediately."""
    problem = _problem_of(call)
    if problem:
        return ConsumerGroupHeartbeatResponse(error_code=KafkaError.INVALID_REQUEST, error_message=problem)
    reply = yield from ask(_question(call.message), groups_pb2.GroupHeartbeatResponse)
    if reply.HasField("error"):
        return ConsumerGroupHeartbeatResponse(error_code=group_code(reply.error), error_message=reply.error.message)
    assigned = None
    if reply.HasField("assignment"):
        rows = reply.assignment.topics
        assigned = GivenAssignment([GivenTopicPartitions(each.topic_id, list(each.partitions)) for each in rows])
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assigned,
    )


def _problem_of(call: KafkaCall[ConsumerGroupHeartbeatRequest]) -> str:
    """Returns what violates Kafka's rules for a heartbeat, or an empty text. The coordinator checks further rules."""
    request = call.message
    if not request.member_id and (call.version >= _BRINGS_ID or request.member_epoch != _JOINS):
        return "member id missing: generate one and send it with every heartbeat"
    for name, value in (("static name", request.instance_id), ("rack", request.rack_id)):
        if value == "":
            return f"empty {name}: leave it out"
    if request.member_epoch != _JOINS:
        return ""
    if request.rebalance_timeout_ms == _NOT_CHANGED:
        return "rebalance timeout missing: set it when joining the group"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "subscription missing: set topic names or a regular expression when joining the group"
    if request.topic_partitions is None or request.topic_partitions:
        return "a joining member must own no partitions: revoke all of them and send an empty list"
    return ""


def _question(request: ConsumerGroupHeartbeatRequest) -> groups_pb2.GroupHeartbeatRequest:
    joins = request.member_epoch == _JOINS
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    timeout_ms = request.rebalance_timeout_ms
    says_all = timeout_ms != _NOT_CHANGED and owned is not None
    return groups_pb2.GroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id or "",
        rack=request.rack_id or "",
        rebalance_timeout_ms=max(timeout_ms, 0),
        topics=topics or (),
        topic_pattern=request.subscribed_topic_regex or "",
        assignor=request.server_assignor or "",
        owned=[groups_pb2.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in owned or ()],
        full=says_all and (topics is not None or request.subscribed_topic_regex is not None),
        omitted=groups_pb2.HeartbeatOmissions(
            instance_id=request.instance_id is None,
            rack=request.rack_id is None,
            rebalance_timeout_ms=timeout_ms == _NOT_CHANGED,
            topics=topics is None,
            topic_pattern=request.subscribed_topic_regex is None,
            assignor=request.server_assignor is None,
            owned=owned is None,
        )
        if not joins
        else groups_pb2.HeartbeatOmissions(),
    )


def describe(call: KafkaCall[ConsumerGroupDescribeRequest]) -> Steps[ConsumerGroupDescribeResponse]:
    """Answers ConsumerGroupDescribe. For a classic group it returns an error; clients then use DescribeGroups."""
    # A small request that repeats a name must not return many descriptions: each group is described once.
    group_ids = list(dict.fromkeys(call.message.group_ids))
    question = groups_pb2.DescribeGroupsRequest(group_ids=group_ids, timeout_ms=GROUP_TIMEOUT_MS)
    reply = yield from ask(question, groups_pb2.DescribeGroupsResponse)
    if reply.HasField("error"):
        code = group_code(reply.error)
        return ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(code, reply.error.message, each) for each in group_ids]
        )
    groups = [_described(each) for each in reply.groups]
    if call.message.include_authorized_operations:
        described = [each for each in groups if each.error_code == KafkaError.NONE]
        operations = yield from group_operations(each.group_id for each in described)
        for group, allowed in zip(described, operations, strict=True):
            group.authorized_operations = allowed
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(group: groups_pb2.GroupDescription) -> DescribedConsumerGroup:
    if group.HasField("error"):
        return DescribedConsumerGroup(group_code(group.error), group.error.message, group.group_id)
    if group.kind == groups_pb2.GROUP_KIND_CLASSIC:
        other = f"group {group.group_id} is a classic group: describe it with DescribeGroups"
        return DescribedConsumerGroup(KafkaError.GROUP_ID_NOT_FOUND, other, group.group_id)
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=STATES.get(group.state, _DEAD),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            DescribedConsumerMember(
                each.member_id,
                each.instance_id or None,
                each.rack or None,
                each.member_epoch,
                each.client_id,
                f"/{each.host}",
                list(each.topics),
                each.topic_pattern or None,
                _assignment(each.assignment),
                _assignment(each.target),
                _CONSUMER_MEMBER,
            )
            for each in group.members
        ],
    )


def _assignment(rows: Iterable[groups_pb2.TopicPartitions]) -> DescribedAssignment:
    """Converts an assignment, without partitions of deleted topics: these have no name."""
    return DescribedAssignment(
        [DescribedTopicPartitions(each.topic_id, each.topic, list(each.partitions)) for each in rows if each.topic]
    )
