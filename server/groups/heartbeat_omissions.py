"""What heartbeats leave out because it is as it was: clients of Kafka's say only what has changed (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.member import JOIN_EPOCH, GroupMember, PartitionId
from quorumlog.server.groups.records import partitions_of
from quorumlog.v1 import groups_pb2


def filled_in(draft: Draft, request: groups_pb2.GroupHeartbeatRequest) -> groups_pb2.GroupHeartbeatRequest:
    """A heartbeat with all that its member has said before; but for what it owns, see ``owned_by``. Of the time to
    give partitions up in, no more counts than members may have.

    Of a member that is not there nobody knows what it has said: it is to hear that, and not that it says too little.
    """
    is_partial = request.HasField("omitted") and request.member_epoch != JOIN_EPOCH
    if not is_partial and request.session_timeout_ms:
        return request
    whole = groups_pb2.GroupHeartbeatRequest()
    whole.CopyFrom(request)
    if not request.session_timeout_ms:
        whole.session_timeout_ms = draft.limits.usual_session_ms
    if request.HasField("omitted"):
        # Brokers take any: many set max.poll.interval.ms as large as it can be.
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
    """What a member has not given up, by a heartbeat: all that it may have, if the heartbeat says nothing of that.

    A client of Kafka's says what it has while it is still taking up what it was told, which is more. So what it was not
    told to release it has, whatever it says.
    """
    if request.omitted.owned:
        return set(member.held())
    named = partitions_of(request.owned)
    return named | member.assigned.keys() if request.HasField("omitted") else named
