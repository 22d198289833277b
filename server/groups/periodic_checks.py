"""Checks that a coordinator makes without a request: topics that have changed, offsets that have expired.

Expired members are a third kind; `member_timers.py` finds them, and `member_changes.py` removes them.
"""

from __future__ import annotations

import dataclasses
from enum import Enum

from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.target_assignment import subscribed_topics


class Review(Enum):
    """A kind of check."""

    TOPICS = "topics that members subscribe to: some may have been created, grown or been deleted"
    RIGHTS = "topics that members may read: some may have been allowed or denied"
    OFFSETS = "committed offsets that have expired"


def topics_changed(draft: Draft, group_id: str) -> bool:
    """Determines the topics of a consumer group, and requests a new assignment if they changed: a pattern matches a new
    topic, a topic has more partitions, or another was deleted. Returns True if they changed."""
    group = draft.group(group_id)
    if group is None:
        return False
    known = group.header.topics
    if group.members:
        topics = subscribed_topics(group, draft.subscriptions)
    else:
        topics = {topic_id: topic for topic_id, topic in known.items() if draft.topics.by_id(topic_id) is not None}
    if topics == known and not _has_what_it_may_not_read(draft, group):
        return False
    edit = draft.edit(group_id)
    if group.members:
        edit.is_unsettled = True
    else:
        edit.put_header(dataclasses.replace(group.header, topics=topics))
    return True


def _has_what_it_may_not_read(draft: Draft, group: ConsumerGroup) -> bool:
    """True if a member's target has partitions that it may not read, while others in the group may."""
    subscriptions = draft.subscriptions
    return any(
        subscriptions.are_beyond_rights(
            member.subscription, {topic_id for topic_id, _ in group.targets.get(member.member_id, ())}
        )
        for member in group.members.values()
    )


def rights_changed(draft: Draft, group_id: str) -> bool:
    """Does the same after a change of ACLs. Returns True if a new assignment is needed.

    Among members with different rights, one may have gained a right that others had already: the group reads the same
    topics, and yet needs a new assignment.
    """
    if topics_changed(draft, group_id):
        return True
    group = draft.group(group_id)
    principals = {member.subscription.principal for member in group.members.values()} if group is not None else set()
    if len(principals) < 2:
        return False
    draft.edit(group_id).is_unsettled = True
    return True


def expire_offsets(draft: Draft, group_id: str, retention_ms: int) -> bool:
    """Removes expired offsets, and deletes a group that is left with neither members nor offsets. Offsets in open
    transactions do not expire, nor do their groups.

    Offsets expire if their topic was deleted; if the consumer group has been empty, without commits, for longer than
    the retention; or if no member subscribes to their topic, for that long after the commit.

    Returns:
        True if anything was removed.
    """
    group = draft.group(group_id)
    if group is None:
        return False
    read = draft.subscriptions.topics_of(group)
    latest = draft.wall_ms - retention_ms
    expired = [
        partition
        for partition, stored in group.offsets.items()
        if draft.topics.by_id(partition[0]) is None
        or (
            read is not None
            and partition[0] not in read
            and partition not in group.unstable
            and max(stored.commit_timestamp_ms, group.header.empty_since_ms) <= latest
        )
    ]
    for partition in sorted(expired):
        draft.edit(group_id).remove_offset(partition)
    is_over = group.is_empty and not group.pending and len(group.offsets) == len(expired)
    if is_over:
        draft.edit(group_id).delete()
    return is_over or bool(expired)
