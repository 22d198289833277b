"""The target assignment of a consumer group, computed once for all changes of a draft in it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from quorumlog.server.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, AssignmentInput, Reader
from quorumlog.server.groups.group import ConsumerGroup, SubscribedTopic
from quorumlog.server.groups.group_edit import GroupEdit
from quorumlog.server.groups.member import GroupMember, PartitionId
from quorumlog.server.groups.subscriptions import Subscriptions
from quorumlog.server.groups.topic_catalog import TopicCatalog


def assign_anew(edit: GroupEdit, subscriptions: Subscriptions, wall_ms: int) -> None:
    """Advances a consumer group to its next epoch: current topics, and a target for each member.

    A group without members keeps its topics, so that it can tell which partitions are new when it gets members again.

    Arguments:
        wall_ms: milliseconds since the epoch.
    """
    group, header = edit.group, edit.group.header
    edit.is_unsettled = False
    topics = subscribed_topics(group, subscriptions) if group.members else header.topics
    assignor = preferred_assignor(group)
    empty_since_ms = 0 if group.members else header.empty_since_ms or wall_ms
    epoch = header.group_epoch + 1
    edit.put_header(dataclasses.replace(
        header, group_epoch=epoch, assignment_epoch=epoch, assignor=assignor, empty_since_ms=empty_since_ms,
        topics=topics, unread_topics=_unread_topics(group, topics, subscriptions),
    ))  # fmt: skip
    if group.members:
        edit.put_targets(_targets(group, topics, assignor, subscriptions))
        for member in [member for member in group.members.values() if not member.is_present]:
            edit.put_member(_without_lost(member, group.targets[member.member_id]))
    group.check_targets()


def subscribed_topics(group: ConsumerGroup, subscriptions: Subscriptions) -> dict[bytes, SubscribedTopic]:
    """Returns the existing topics that members subscribe to, with their current partitions."""
    topics: dict[bytes, SubscribedTopic] = {}
    for topic_id in sorted(subscriptions.topics_read_by(group.members.values())):
        topic = subscriptions.topics.by_id(topic_id)
        if topic is not None:
            known = group.header.topics.get(topic_id) or group.header.unread_topics.get(topic_id)
            first = known.first_partitions if known is not None else topic.partitions
            topics[topic_id] = SubscribedTopic(topic_id, topic.name, topic.partitions, first)
    return topics


def _unread_topics(
    group: ConsumerGroup, topics: Mapping[bytes, SubscribedTopic], subscriptions: Subscriptions
) -> dict[bytes, SubscribedTopic]:
    """Returns the existing topics that the group no longer reads and of which a member still has partitions."""
    known = {**group.header.unread_topics, **group.header.topics}
    held = {topic_id for topic_id, _ in group.holders} - topics.keys()
    return {
        topic_id: known[topic_id]
        for topic_id in sorted(held & known.keys())
        if subscriptions.topics.by_id(topic_id) is not None
    }


def preferred_assignor(group: ConsumerGroup) -> str:
    """Returns the assignor that most members request; in a tie the present one, then the first by name."""
    if not group.members:
        return ""
    votes = Counter(member.subscription.assignor for member in group.members.values())
    del votes[""]
    if not votes:
        return DEFAULT_ASSIGNOR
    return min(votes, key=lambda name: (-votes[name], name != group.header.assignor, name))


def _targets(
    group: ConsumerGroup, topics: Mapping[bytes, SubscribedTopic], assignor: str, subscriptions: Subscriptions
) -> dict[str, frozenset[PartitionId]]:
    readers = [
        Reader(member.member_id, member.instance_id, member.rack, subscriptions.topic_ids(member.subscription))
        for _, member in sorted(group.members.items())
    ]
    present = {member_id: group.targets.get(member_id, frozenset()) for member_id in group.members}
    racks = _racks(subscriptions.topics, readers, topics)
    problem = AssignmentInput(readers, topics, present, group.holders, racks)
    return {member_id: frozenset(target) for member_id, target in ASSIGNORS[assignor](problem).items()}


def _racks(
    catalog: TopicCatalog, readers: Iterable[Reader], topics: Iterable[bytes]
) -> dict[PartitionId, frozenset[str]]:
    """Returns the racks by partition; empty if no reader has a rack."""
    if not any(reader.rack for reader in readers):
        return {}
    return {(topic_id, number): racks for topic_id in topics for number, racks in enumerate(catalog.racks(topic_id))}


def _without_lost(member: GroupMember, target: frozenset[PartitionId]) -> GroupMember:
    """Returns a static member that has left without the partitions outside its target: it holds nothing, so they are
    free immediately."""
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    return dataclasses.replace(member, assigned=kept)
