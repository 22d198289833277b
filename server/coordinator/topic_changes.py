"""What becomes of a consumer group when topics come, grow or go."""

from __future__ import annotations

import dataclasses

from quorumlog.server.coordinator.draft import Draft
from quorumlog.server.coordinator.target_assignment import subscribed_topics


def topics_changed(draft: Draft, group_id: str) -> bool:
    """Looks again what a group reads, and has it assigned anew when that changed: a pattern matches a new topic, a
    topic has more partitions, another is gone. Returns whether it changed."""
    group = draft.group(group_id)
    if group is None:
        return False
    known = group.header.topics
    if group.members:
        topics = subscribed_topics(group, draft.subscriptions)
    else:
        topics = {topic_id: topic for topic_id, topic in known.items() if draft.topics.by_id(topic_id) is not None}
    if topics == known:
        return False
    edit = draft.edit(group_id)
    if group.members:
        edit.is_unsettled = True
    else:
        edit.put_header(dataclasses.replace(group.header, topics=topics))
    return True
