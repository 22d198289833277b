"""A coordinator's decisions for administrators: listing, describing and deleting consumer groups."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.committed_offsets import no_group, offsets_of
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.member import GroupMember, PartitionId
from quorumlog.server.groups.records import partition_lists
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE


def listing(group: ConsumerGroup) -> groups_pb2.GroupListing:
    """Returns the list entry of a consumer group."""
    return groups_pb2.GroupListing(
        group_id=group.group_id,
        state=group.state,
        members=len(group.members if group.classic is None else group.classic.members),
        kind=group.kind,
        protocol_type=_protocol_type(group),
    )


def describe(
    draft: Draft, group_id: str, coordinator: int, topics: ClientTopics | None = None
) -> groups_pb2.GroupDescription:
    """Returns a consumer group with its members; an error if no group has that id.

    Arguments:
        coordinator: the node that answers.
        topics: as the client sees them; None if it sees all.
    """
    group = draft.group(group_id)
    if group is None:
        return groups_pb2.GroupDescription(
            group_id=group_id, error=no_group(group_id), state=groups_pb2.GROUP_DEAD, coordinator=coordinator
        )
    if group.classic is not None:
        return _described_classic(group, group.classic, coordinator)
    return groups_pb2.GroupDescription(
        group_id=group_id,
        state=group.state,
        kind=group.kind,
        protocol_type=_protocol_type(group),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.header.assignor,
        members=[_described(draft, group, member, topics) for _, member in sorted(group.members.items())],
        coordinator=coordinator,
    )


def add_offsets(
    draft: Draft, described: groups_pb2.GroupDescription, room_bytes: int, topics: ClientTopics | None = None
) -> int:
    """Adds a consumer group's committed offsets to its description, unless they exceed the space left.

    Arguments:
        room_bytes: space left for committed offsets.
        topics: as the client sees them; None if it sees all.

    Returns:
        the number of bytes added.
    """
    group = draft.group(described.group_id)
    if group is None:
        return 0
    taken = 0
    for row in offsets_of(draft, group, group.offsets, topics):
        taken += row.ByteSize()
        if taken > room_bytes:
            del described.offsets[:]
            return 0
        described.offsets.append(row)
    described.has_offsets = True
    return taken


def delete_group(draft: Draft, group_id: str) -> errors_pb2.Error | None:
    """Deletes an empty consumer group with its committed offsets; returns the error if that is impossible."""
    group = draft.group(group_id)
    if group is None:
        return no_group(group_id)
    if not group.is_empty:
        members = len(group.members if group.classic is None else group.classic.members)
        return error(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id} has {members} members, or members are joining: stop them first",
        )
    if group.pending:
        return error(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id} has offsets in {len(group.pending)} open transactions: wait until they are over, or"
            " abort them",
        )
    draft.edit(group_id).delete()
    return None


def _protocol_type(group: ConsumerGroup) -> str:
    """Returns the members' protocol type. A group with nothing but committed offsets has none."""
    if group.classic is not None:
        return group.classic.protocol_type
    return CONSUMER_PROTOCOL_TYPE if group.header.group_epoch else ""


def _described_classic(group: ConsumerGroup, classic: ClassicGroup, coordinator: int) -> groups_pb2.GroupDescription:
    described = groups_pb2.GroupDescription(
        group_id=group.group_id,
        state=group.state,
        coordinator=coordinator,
        kind=group.kind,
        protocol_type=classic.protocol_type,
        protocol=classic.protocol,
        generation=classic.generation,
        leader=classic.leader,
    )
    for member_id, member in sorted(classic.members.items()):
        described.members.add(
            member_id=member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.host,
            member_epoch=classic.generation,
            present=True,
            classic_metadata=member.metadata(classic.protocol),
            classic_assignment=classic.assignments.get(member_id, b""),
        )
    return described


def _described(
    draft: Draft, group: ConsumerGroup, member: GroupMember, topics: ClientTopics | None
) -> groups_pb2.MemberDescription:
    return groups_pb2.MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        host=member.host,
        member_epoch=member.member_epoch,
        topics=[name for name in member.subscription.topics if topics is None or topics.sees(name)],
        topic_pattern=member.subscription.pattern,
        assignment=_named(draft, member.held(), topics),
        target=_named(draft, group.targets.get(member.member_id, ()), topics),
        present=member.is_present,
    )


def _named(
    draft: Draft, partitions: Iterable[PartitionId], topics: ClientTopics | None
) -> list[groups_pb2.TopicPartitions]:
    """Returns partitions with the names of their topics, for topics that a client sees.

    A deleted topic has no name to authorize against, so only a client that sees all topics gets its partitions.
    """
    rows = []
    for row in partition_lists(partitions):
        topic = draft.topics.by_id(row.topic_id)
        row.topic = topic.name if topic is not None else ""
        if topics is None or topics.sees(row.topic):
            rows.append(row)
    return rows
