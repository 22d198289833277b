"""A coordinator's decisions on heartbeats.

The partitions that a member reports as owned are an upper bound of those it holds, when its heartbeat is decided and
when it is decided again after waiting. That takes three rules on the two sides.

- A client acts only on the answer to the newest heartbeat that it has sent. Otherwise it would take up, from an earlier
  answer, a partition that its newest heartbeat does not name, and that was given to another member because of that.
- Therefore a heartbeat that is sent while another one is unanswered is ``full``: the answer to the other counts as
  lost.
- A heartbeat repeats the version of the assignment that its member has taken up last. The log increments a version with
  each change of a member's partitions. Within one version a member only gives up partitions, so a partition that a
  heartbeat of the newest version does not name is given up, however late the heartbeat arrives and at whichever
  coordinator. An older heartbeat is answered with the newest assignment, and its partitions are ignored.

A member that repeats no version (an older client, and Kafka's) gets no new partitions within an epoch. So within an
epoch it only gives up partitions, too; each partition that others release for it then costs the consumer group an
epoch.

A Kafka client sends only what has changed. Omitted fields are filled in when the heartbeat is decided, from the state
that the heartbeats before it have made of the member. Its heartbeats do not wait for changes: while its member waits
for partitions, the answers request a short heartbeat interval.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits, refuse_growth
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup, SubscribedTopic
from quorumlog.server.groups.heartbeat_omissions import filled_in, owned_by
from quorumlog.server.groups.member import JOIN_EPOCH, STABLE, UNREVOKED, GroupMember, kept_bytes
from quorumlog.server.groups.member_changes import is_of_newest_assignment, join, leave, stay
from quorumlog.server.groups.reconciliation import reconcile
from quorumlog.server.groups.records import numbers_by_topic
from quorumlog.server.groups.request_checks import check_heartbeat
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def heartbeat(
    draft: Draft, request: groups_pb2.GroupHeartbeatRequest, origin: RequestContext
) -> groups_pb2.GroupHeartbeatResponse | None:
    """Decides one heartbeat. Returns the answer, or None if it may wait for changes."""
    return heartbeats(draft, [(request, origin)])[0]


def heartbeats(
    draft: Draft, batch: Sequence[tuple[groups_pb2.GroupHeartbeatRequest, RequestContext]]
) -> list[groups_pb2.GroupHeartbeatResponse | None]:
    """Decides heartbeats together, in their order; each consumer group is assigned at most once for all of them.

    The same heartbeat may be decided again when its group has changed.

    Returns:
        The answers; None for a heartbeat without changes for its member that may wait for some.
    """
    quiet = [_is_quiet(draft, filled_in(draft, request), origin.principal) for request, origin in batch]
    refused = [
        None if is_quiet else _admit(draft, filled_in(draft, request), origin)
        for is_quiet, (request, origin) in zip(quiet, batch, strict=True)
    ]
    answers: list[groups_pb2.GroupHeartbeatResponse | None] = []
    for is_quiet, problem, (request, _) in zip(quiet, refused, batch, strict=True):
        if is_quiet and request.max_wait_ms and not draft.changed(request.group_id):
            answers.append(None)
        elif problem is not None:
            answers.append(_refusal(request, problem))
        else:
            answers.append(_answer(draft, request))
    return answers


def nothing_new(
    group: ConsumerGroup, request: groups_pb2.GroupHeartbeatRequest, limits: ConsumerGroupLimits
) -> groups_pb2.GroupHeartbeatResponse:
    """Returns the answer to a heartbeat that has waited for changes until its deadline."""
    return _response(group.members[request.member_id], request, limits)


def _is_quiet(draft: Draft, request: groups_pb2.GroupHeartbeatRequest, principal: str) -> bool:
    """True if a heartbeat changes nothing and has nothing to report to its member.

    It is the common case, and checked first because a coordinator may have ten thousand members.
    """
    group = draft.group(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if group is None or member is None or request.full:
        return False
    subscription = member.subscription
    return (
        request.member_epoch == member.member_epoch == group.header.assignment_epoch
        and member.state == STABLE
        and is_of_newest_assignment(member, request)
        and request.session_timeout_ms == member.session_timeout_ms
        and request.rebalance_timeout_ms == member.rebalance_timeout_ms
        and request.instance_id == member.instance_id
        and request.rack == member.rack
        and request.topic_pattern == subscription.pattern
        and request.assignor == subscription.assignor
        and principal == subscription.principal
        and tuple(request.topics) == subscription.topics
    )


def _admit(draft: Draft, request: groups_pb2.GroupHeartbeatRequest, origin: RequestContext) -> errors_pb2.Error | None:
    refused = check_heartbeat(request, draft.limits)
    if refused is not None:
        return refused
    if request.member_epoch < JOIN_EPOCH:
        return leave(draft, request)
    refused = _check_growth(draft, request)
    if refused is not None:
        return refused
    if request.member_epoch == JOIN_EPOCH and not _is_of_members(draft, request.group_id):
        return error(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {request.group_id} is classic and has members: stop them first, or join another group",
        )
    return join(draft, request, origin) if request.member_epoch == JOIN_EPOCH else stay(draft, request, origin)


def _check_growth(draft: Draft, request: groups_pb2.GroupHeartbeatRequest) -> errors_pb2.Error | None:
    """Returns the error if the coordinator has no space for what a member sends about itself; None if it adds nothing
    or fits."""
    said = kept_bytes(set(request.topics), request.topic_pattern, request.member_id, request.instance_id, request.rack)
    group = draft.group(request.group_id)
    known = group.members.get(request.member_id) if group is not None else None
    grows = said - (known.size_bytes if known is not None else 0)
    return None if grows <= 0 or draft.has_room_for(grows) else refuse_growth(request.group_id, draft.limits)


def _is_of_members(draft: Draft, group_id: str) -> bool:
    """True if a consumer group is of the kind whose members send heartbeats. An empty classic group becomes one."""
    if draft.classic(group_id) is None:
        return True
    edit = draft.edit(group_id)
    if edit.group.is_empty:
        edit.put_classic(None)
    return edit.group.classic is None


def _answer(draft: Draft, request: groups_pb2.GroupHeartbeatRequest) -> groups_pb2.GroupHeartbeatResponse | None:
    """Advances an admitted member by one step, and returns the answer; None if the heartbeat may wait for changes."""
    draft.settle(request.group_id)
    epoch = request.member_epoch
    if epoch < JOIN_EPOCH:
        return groups_pb2.GroupHeartbeatResponse(
            correlation_id=request.correlation_id, member_id=request.member_id, member_epoch=epoch
        )
    group = draft.group(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if group is None or member is None:
        # Another heartbeat of the same batch has made it leave.
        return groups_pb2.GroupHeartbeatResponse(
            correlation_id=request.correlation_id, member_id=request.member_id, member_epoch=-1
        )
    updated = member
    if epoch == member.member_epoch and is_of_newest_assignment(member, request):
        target = group.targets[member.member_id]
        owned = owned_by(member, request) if not group.has_arrived(member) else ()
        updated = reconcile(member, target, group.assignment_epoch, owned, group.holders, group.version + 1)
        if not request.assignment_version and _is_given_more_in_its_epoch(member, updated):
            # The heartbeats of this epoch that do not name the new partitions would look like their release.
            draft.edit(request.group_id).is_unsettled = True
            updated = member
        if updated is not member:
            draft.edit(request.group_id).put_member(updated)
    # A member that has missed an answer gets its current state again, and advances no further before it has received
    # it: with one more epoch it would be two behind, which fences it. The same holds for a member that joins again: it
    # has not reported its partitions, and a delayed first attempt would release those it is working on.
    is_news = (
        request.full
        or epoch != updated.member_epoch
        or updated.assigned != member.assigned
        or not is_of_newest_assignment(updated, request)
    )
    if not is_news and request.max_wait_ms > 0:
        return None
    response = _response(updated, request, draft.limits)
    if request.HasField("omitted") and updated.state != UNREVOKED and not group.has_arrived(updated):
        # Others must release something for it, or the next epoch gives it what they have released.
        response.heartbeat_interval_ms = min(response.heartbeat_interval_ms, draft.limits.waiting_interval_ms)
    if is_news:
        response.assignment.CopyFrom(_assignment(draft, group, updated))
    return response


def _is_given_more_in_its_epoch(member: GroupMember, updated: GroupMember) -> bool:
    """True if a step gives a member more partitions and leaves it in its epoch."""
    return updated.member_epoch == member.member_epoch and not updated.assigned.keys() <= member.assigned.keys()


def _refusal(request: groups_pb2.GroupHeartbeatRequest, problem: errors_pb2.Error) -> groups_pb2.GroupHeartbeatResponse:
    return groups_pb2.GroupHeartbeatResponse(
        correlation_id=request.correlation_id, member_id=request.member_id, error=problem
    )


def _response(
    member: GroupMember, request: groups_pb2.GroupHeartbeatRequest, limits: ConsumerGroupLimits
) -> groups_pb2.GroupHeartbeatResponse:
    return groups_pb2.GroupHeartbeatResponse(
        correlation_id=request.correlation_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=min(limits.heartbeat_interval_ms, member.session_timeout_ms // 3),
    )


def _assignment(draft: Draft, group: ConsumerGroup, member: GroupMember) -> groups_pb2.GroupAssignment:
    """Returns all partitions of a member: a version always has the same content.

    If topics that the consumer group no longer reads were missing, a member could give such a partition up, be assigned
    it again when the group reads the topic again, and lose it because of a heartbeat it had sent in between.
    """
    assignment = groups_pb2.GroupAssignment(version=member.assignment_version)
    for topic_id, numbers in numbers_by_topic(member.assigned).items():
        # A topic that is no longer read is the next that it has to give up.
        topic = group.header.topics.get(topic_id) or group.header.unread_topics.get(topic_id)
        if topic is None:
            unread = draft.topics.by_id(topic_id)
            if unread is None:
                # A deleted topic's id is never used again.
                continue
            # The header is from an older node. Partitions that were never read must not be skipped.
            topic = SubscribedTopic(topic_id, unread.name, unread.partitions, first_partitions=0)
        assignment.topics.add(
            topic_id=topic_id, topic=topic.name, partitions=numbers, first_partitions=topic.first_partitions
        )
    return assignment
