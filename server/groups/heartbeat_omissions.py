"""Fields that heartbeats omit because they have not changed: Kafka's clients send only changes (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.member import JOIN_EPOCH, GroupMember, PartitionId
from quorumlog.server.groups.records import partitions_of
from quorumlog.v1 import groups_pb2


def filled_in(draft: Draft, request: groups_pb2.GroupHeartbeatRequest) -> groups_pb2.GroupHeartbeatRequest:
    """Returns a heartbeat with all fields that its member has sent before, except the owned partitions (see
    ``owned_by``).

    A rebalance timeout above the limit is reduced to the limit. The omitted fields of an unknown member cannot be
    filled in: it must get the error for unknown members, not one for missing fields.
    """
    is_partial = request.HasField("omitted") and request.member_epoch != JOIN_EPOCH
    if not is_partial and request.session_timeout_ms:
        return request
    whole = groups_pb2.GroupHeartbeatRequest()
    whole.CopyFrom(request)
    if not request.session_timeout_ms:
        whole.session_timeout_ms = draft.limits.usual_session_ms
    if request.HasField("omitted"):
        # Kafka's brokers accept any value: many clients set max.poll.interval.ms to its maximum.
        whole.rebalance_timeout_ms = min(whole.rebalance_timeout_ms, draft.limits.max_rebalance_timeout_ms)
    if not is_partial:
        return whole
    group = draft.group(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    omitted = request.omitted
    if member is None:
        if omitted.rebalance_timeout_ms:
            whole.rebalance_timeout_ms = draft.limits.max_rebalance_timeout_ms
        return whole
    if omitted.instance_id:
        whole.instance_id = member.instance_id
    if omitted.rack:
        whole.rack = member.rack
    if omitted.rebalance_timeout_ms:
        whole.rebalance_timeout_ms = member.rebalance_timeout_ms
    subscription = member.subscription
    if omitted.topics:
        whole.topics[:] = subscription.topics
    if omitted.topic_pattern:
        whole.topic_pattern = subscription.pattern
    if omitted.assignor:
        whole.assignor = subscription.assignor
    return whole


def owned_by(member: GroupMember, request: groups_pb2.GroupHeartbeatRequest) -> Collection[PartitionId]:
    """Returns the partitions that a member has not given up according to a heartbeat; all it may have if the heartbeat
    omits them.

    A Kafka client reports what it has while it is still taking up its new assignment, which is more. So a member keeps
    every partition it has not been asked to revoke, whatever its heartbeat reports.
    """
    if request.omitted.owned:
        return set(member.held())
    named = partitions_of(request.owned)
    return named | member.assigned.keys() if request.HasField("omitted") else named
