"""A coordinator's decisions on committed offsets: storing, reading and deleting them (KIP-1251)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.config.consumer_group_limits import refuse_growth
from quorumlog.server.groups.classic import answers
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup, StoredOffset
from quorumlog.server.groups.member import GroupMember, PartitionId
from quorumlog.server.groups.records import offset_record, partitions_of
from quorumlog.server.groups.request_checks import check_group_id
from quorumlog.server.groups.topic_catalog import TopicInfo
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE

#: Epoch that a client outside the consumer group's assignment sends.
NO_MEMBER_EPOCH = -1


# -- storing ----------------------------------------------------------------------------------------------------------


def commit_offsets(
    draft: Draft, request: groups_pb2.CommitOffsetsRequest, topics: ClientTopics | None = None
) -> groups_pb2.CommitOffsetsResponse:
    """Stores offsets. Each is accepted or refused separately, unless the request as a whole is refused.

    Arguments:
        topics: as the client sees them; None if it may read all.
    """
    group = draft.group(request.group_id)
    refused = check_group_id(request.group_id) or _check_commit(group, request)
    if refused is None and group is None and draft.is_full:
        refused = error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the coordinator of group {request.group_id} has its limit of {draft.limits.groups} groups: delete"
            " unused groups",
        )
    if refused is not None:
        return groups_pb2.CommitOffsetsResponse(error=refused)
    response = groups_pb2.CommitOffsetsResponse()
    for row in request.offsets:
        problem = _refuse_topic(draft, row.topic_id, topics) or _check_offset(draft, request, row)
        response.results.add(topic_id=row.topic_id, partition=row.partition, error=problem)
        if problem is None and not _is_late(draft, request, (row.topic_id, row.partition)):
            edit = draft.edit(request.group_id)
            edit.put_offset((row.topic_id, row.partition), _stored(draft, request, row))
            if edit.group.is_empty and not edit.group.header.empty_since_ms:
                edit.begin_empty(draft.wall_ms)
    return response


def _stored(draft: Draft, request: groups_pb2.CommitOffsetsRequest, row: groups_pb2.CommittedOffset) -> StoredOffset:
    committer = (request.member_id, request.number)
    return StoredOffset(row.offset, row.leader_epoch, row.metadata, draft.wall_ms, *committer)


def _refuse_topic(draft: Draft, topic_id: bytes, topics: ClientTopics | None) -> errors_pb2.Error | None:
    """Returns the error if a client may not read a topic; None otherwise. A topic that does not exist fails
    elsewhere."""
    topic = draft.topics.by_id(topic_id)
    if topic is None or topics is None:
        return None
    return topics.refuse_reading(topic.name, lambda: _no_partition(None, 0))


def _is_late(draft: Draft, request: groups_pb2.CommitOffsetsRequest, partition: PartitionId) -> bool:
    """True if the member has committed the partition again since it sent this commit, which then stores nothing and is
    no error.

    Otherwise a delayed attempt that the client gave up would overwrite the later commit, and the next owner would
    repeat committed work.
    """
    group = draft.group(request.group_id)
    counted = group is not None and request.member_id and request.number
    stored = group.offsets.get(partition) if group is not None and counted else None
    return stored is not None and stored.committer == request.member_id and stored.number > request.number


def _check_commit(group: ConsumerGroup | None, request: groups_pb2.CommitOffsetsRequest) -> errors_pb2.Error | None:
    if group is None or group.classic is None:
        return _check_committer(group, request.member_id, request.member_epoch)
    member = (request.member_id, request.instance_id, request.member_epoch)
    return answers.check_committer(group.classic, group.group_id, *member)


def _check_committer(group: ConsumerGroup | None, member_id: str, member_epoch: int) -> errors_pb2.Error | None:
    """Returns the error if this member may not commit or read; None otherwise. A client without a member may, while the
    group has none."""
    if not member_id and member_epoch == NO_MEMBER_EPOCH:
        if group is None or not group.members:
            return None
        return error(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.group_id} has members: only they commit its offsets; stop them first",
        )
    if group is None or member_id not in group.members:
        return error(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"the group has no member {member_id!r}: it has expired; join again",
        )
    return None


def _check_offset(
    draft: Draft, request: groups_pb2.CommitOffsetsRequest, row: groups_pb2.CommittedOffset
) -> errors_pb2.Error | None:
    topic = draft.topics.by_id(row.topic_id)
    if topic is None or not 0 <= row.partition < topic.partitions:
        return _no_partition(topic, row.partition)
    name = f"{topic.name}-{row.partition}"
    if row.offset < 0 or row.leader_epoch < -1:
        return error(
            ErrorCode.INVALID_REQUEST,
            f"offset {row.offset} of {name}, leader epoch {row.leader_epoch}: offsets start at 0, leader epochs"
            " at -1 for unknown",
        )
    limits, partition = draft.limits, (row.topic_id, row.partition)
    size = len(row.metadata.encode())
    if size > limits.metadata_bytes:
        return error(
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            f"the metadata of the offset of {name} have {size} bytes: send at most {limits.metadata_bytes}",
        )
    group = draft.group(request.group_id)
    before = group.offsets.get(partition) if group is not None else None
    stored = _stored(draft, request, row)
    grows = stored.size_bytes - (before.size_bytes if before is not None else 0)
    if grows > 0 and not draft.has_room_for(grows):
        return refuse_growth(request.group_id, limits)
    if group is None:
        return None
    if before is None and len(group.offsets) >= limits.offsets:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has {limits.offsets} committed offsets and accepts no more: delete some",
        )
    if request.member_id and group.classic is None:
        return _check_epoch(group, group.members[request.member_id], request.member_epoch, partition, name)
    return None


def _check_epoch(
    group: ConsumerGroup, member: GroupMember, epoch: int, partition: PartitionId, name: str
) -> errors_pb2.Error | None:
    """Returns the error if a member may not commit a partition: it must have held it without a break since the epoch it
    sends.

    It may commit a partition without a holder in its present epoch, but never one that another member holds: a delayed
    commit would overwrite that member's.
    """
    since = member.held_since(partition)
    if since is not None and since <= epoch <= member.member_epoch:
        return None
    holder = group.holders.get(partition)
    if since is None and holder is None and epoch == member.member_epoch:
        return None
    held = f"has {name} since epoch {since}" if since is not None else f"does not have {name}"
    return error(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member {member.member_id} commits {name} in epoch {epoch}; it is at epoch {member.member_epoch} and {held}:"
        " commit what is assigned, in the newest epoch",
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def fetch_offsets(
    draft: Draft, request: groups_pb2.FetchOffsetsRequest, topics: ClientTopics | None = None
) -> groups_pb2.FetchOffsetsResponse:
    """Returns the requested committed offsets, of topics that exist. A consumer group that does not exist has none.

    Arguments:
        topics: as the client sees them; None if it sees all.
    """
    group = draft.group(request.group_id)
    refused = check_group_id(request.group_id)
    if refused is None and request.member_id and (group is None or group.classic is None):
        refused = _check_reader(group, request)
    if refused is not None:
        return groups_pb2.FetchOffsetsResponse(error=refused)
    if group is None:
        return groups_pb2.FetchOffsetsResponse()
    wanted = partitions_of(request.topics) if request.topics else group.offsets
    return groups_pb2.FetchOffsetsResponse(offsets=offsets_of(draft, group, wanted, topics))


def offsets_of(
    draft: Draft, group: ConsumerGroup, partitions: Iterable[PartitionId], topics: ClientTopics | None
) -> Iterator[groups_pb2.CommittedOffset]:
    """Yields a consumer group's committed offsets of partitions, in their order, of topics that exist.

    Arguments:
        topics: as the client sees them; None if it sees all.
    """
    for partition in sorted(partitions):
        stored = group.offsets.get(partition)
        topic = draft.topics.by_id(partition[0])
        if stored is not None and topic is not None and (topics is None or topics.sees(topic.name)):
            yield offset_record(partition, stored, topic.name)


def _check_reader(group: ConsumerGroup | None, request: groups_pb2.FetchOffsetsRequest) -> errors_pb2.Error | None:
    refused = _check_committer(group, request.member_id, request.member_epoch)
    if refused is not None or group is None:
        return refused
    member, epoch = group.members[request.member_id], request.member_epoch
    since = (member.held_since(partition) for partition in partitions_of(request.topics))
    if epoch == member.member_epoch:
        return None
    if request.topics and epoch < member.member_epoch and all(then is not None and then <= epoch for then in since):
        return None
    return error(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member {member.member_id} is at epoch {member.member_epoch} of group {group.group_id}, not at {epoch}: retry"
        " in the newest epoch",
    )


# -- deleting ---------------------------------------------------------------------------------------------------------


def delete_offsets(
    draft: Draft, request: groups_pb2.DeleteOffsetsRequest, topics: ClientTopics | None = None
) -> groups_pb2.DeleteOffsetsResponse:
    """Deletes committed offsets of topics to which no member subscribes.

    Offsets that do not exist count as deleted. So do those of topics hidden from the client, but they are kept.

    Arguments:
        topics: as the client sees them; None if it may read all.
    """
    group = draft.group(request.group_id)
    if group is None:
        return groups_pb2.DeleteOffsetsResponse(error=no_group(request.group_id))
    read = draft.subscriptions.topics_of(group)
    classic = group.classic
    if read is None and classic is not None and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        stays = f"group {group.group_id} has members whose subscriptions are not known: stop them first"
        return groups_pb2.DeleteOffsetsResponse(error=error(ErrorCode.NON_EMPTY_GROUP, stays))
    response = groups_pb2.DeleteOffsetsResponse()
    for partition in sorted(partitions_of(request.topics)):
        topic = draft.topics.by_id(partition[0])
        problem = _refuse_topic(draft, partition[0], topics)
        if topic is not None and topics is not None and not topics.sees(topic.name):
            problem = None
        elif problem is None and (read is None or partition[0] in read):
            problem = error(
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                f"members of group {group.group_id} subscribe to topic {topic.name if topic is not None else ''}: stop"
                " them first",
            )
        elif problem is None and partition in group.offsets:
            draft.edit(request.group_id).remove_offset(partition)
        response.results.add(topic_id=partition[0], partition=partition[1], error=problem)
    return response


def no_group(group_id: str) -> errors_pb2.Error:
    """Returns the error for a call about a consumer group that does not exist."""
    return error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


def _no_partition(topic: TopicInfo | None, number: int) -> errors_pb2.Error:
    problem = f"topic {topic.name} has no partition {number}" if topic is not None else "there is no topic of this id"
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
