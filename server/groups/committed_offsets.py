"""A coordinator's decisions on committed offsets: storing, reading and deleting them (KIP-1251).

Offsets in a transaction pass the same checks when they arrive, and are pending until the decision on the transaction
(KIP-447). The order of the group's log decides between commits: an offset that was stored later stays, whichever
transaction is decided first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.config.consumer_group_limits import refuse_growth
from quorumlog.server.deciding.transaction_participants import OpenHere
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
from quorumlog.wire.kafka.control import LogPlace

#: Epoch that a client outside the consumer group's assignment sends.
NO_MEMBER_EPOCH = -1


# -- storing ----------------------------------------------------------------------------------------------------------


def commit_offsets(
    draft: Draft,
    request: groups_pb2.CommitOffsetsRequest,
    topics: ClientTopics | None = None,
    transaction: OpenHere | None = None,
) -> groups_pb2.CommitOffsetsResponse:
    """Stores offsets. Each is accepted or refused separately, unless the request as a whole is refused.

    Arguments:
        topics: as the client sees them; None if it may read all.
        transaction: the open transaction that the offsets belong to; None if they take effect at once.
    """
    group = draft.group(request.group_id)
    refused = check_group_id(request.group_id) or _check_commit(group, request)
    if refused is None and group is not None and transaction is not None:
        refused = check_transaction(group, transaction)
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
            partition, stored = (row.topic_id, row.partition), _stored(draft, request, row)
            if transaction is None:
                edit.put_offset(partition, stored)
            else:
                edit.put_pending(transaction, partition, stored)
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
    if group is None or not request.member_id or not request.number:
        return False
    others = [group.offsets.get(partition)]
    if request.transactional_id:
        # A pending offset may never take effect: only one that would be pending itself is late because of it.
        producers = group.unstable.get(partition, ())
        others += [group.pending[producer_id].offsets[partition].stored for producer_id in producers]
    return any(
        stored is not None and stored.committer == request.member_id and stored.number > request.number
        for stored in others
    )


def _check_commit(group: ConsumerGroup | None, request: groups_pb2.CommitOffsetsRequest) -> errors_pb2.Error | None:
    is_outside = not request.member_id and not request.instance_id and request.member_epoch == NO_MEMBER_EPOCH
    if request.transactional_id and is_outside:
        # Producers of Kafka's older clients have no data of the consumer. Only its transactional id fences a former
        # instance then.
        return None
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
    before = _replaced(group, request, partition) if group is not None else None
    stored = _stored(draft, request, row)
    grows = stored.size_bytes - (before.size_bytes if before is not None else 0)
    if grows > 0 and not draft.has_room_for(grows):
        return refuse_growth(request.group_id, limits)
    if group is None:
        return None
    is_new = partition not in group.offsets and partition not in group.unstable
    if is_new and len(group.offsets) + len(group.unstable) >= limits.offsets:
        return error(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has {limits.offsets} committed offsets and accepts no more: delete some",
        )
    if request.member_id and group.classic is None:
        return _check_epoch(group, group.members[request.member_id], request.member_epoch, partition, name)
    return None


def _replaced(
    group: ConsumerGroup, request: groups_pb2.CommitOffsetsRequest, partition: PartitionId
) -> StoredOffset | None:
    """Returns the offset that a commit would replace."""
    if not request.transactional_id:
        return group.offsets.get(partition)
    transaction = group.pending.get(request.producer.producer_id)
    pending = transaction.offsets.get(partition) if transaction is not None else None
    return pending.stored if pending is not None else None


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


# -- transactions -----------------------------------------------------------------------------------------------------


class OffsetDecision(NamedTuple):
    """The decision on a transaction.

    Arguments:
        origin: where the transaction started, in the log of its coordinator.
        decided: where it was decided.
    """

    origin: LogPlace
    decided: LogPlace
    commit: bool


def check_transaction(group: ConsumerGroup, transaction: OpenHere) -> errors_pb2.Error | None:
    """Returns the error if a group has another transaction of the producer; None otherwise."""
    known = group.pending.get(transaction.identity.producer_id)
    if known is None or known.place == transaction.place:
        return None
    if known.place > transaction.place:
        return transaction_over(group.group_id, transaction.identity.producer_id)
    return _waits_for_decision(group.group_id, transaction.identity.producer_id)


def transaction_over(group_id: str, producer_id: int) -> errors_pb2.Error:
    """Returns the error for a commit in a transaction that has ended."""
    return error(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of producer {producer_id} in group {group_id} is over: start another one",
    )


def end_transaction(draft: Draft, group_id: str, producer_id: int, decision: OffsetDecision) -> errors_pb2.Error | bool:
    """Ends the transaction of a producer: its pending offsets take effect, or are dropped.

    Returns:
        False if a group does not have that transaction; the error if it has a former one of the producer. Nothing
        changes then.
    """
    group = draft.group(group_id)
    pending = group.pending.get(producer_id) if group is not None else None
    if pending is None or pending.place > decision.origin:
        return False
    if pending.place < decision.origin:
        # The decision on the former one comes later: it must not end with the outcome of this one.
        return _waits_for_decision(group_id, producer_id)
    draft.edit(group_id).end_pending(producer_id, decision.decided, commit=decision.commit)
    return True


def _waits_for_decision(group_id: str, producer_id: int) -> errors_pb2.Error:
    return error(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"group {group_id} waits for the decision on the former transaction of producer {producer_id}: try again after"
        " a pause",
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def fetch_offsets(
    draft: Draft, request: groups_pb2.FetchOffsetsRequest, topics: ClientTopics | None = None
) -> groups_pb2.FetchOffsetsResponse:
    """Returns the requested committed offsets, of topics that exist. A consumer group that does not exist has none.

    With ``require_stable`` the partitions with pending offsets are listed separately: the client waits until the
    decisions on their transactions have arrived. Otherwise it would read what the transactions have processed already.

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
    unstable = group.unstable.keys() if request.require_stable else set()
    wanted = partitions_of(request.topics) if request.topics else group.offsets.keys() | unstable
    return groups_pb2.FetchOffsetsResponse(
        offsets=offsets_of(draft, group, wanted - unstable, topics),
        unstable=_unstable(draft, wanted & unstable, topics),
    )


def _unstable(
    draft: Draft, partitions: Iterable[PartitionId], topics: ClientTopics | None
) -> Iterator[groups_pb2.PartitionOutcome]:
    problem = error(ErrorCode.UNSTABLE_OFFSET_COMMIT, "a transaction that commits the offset is open: try again")
    for topic_id, number in sorted(partitions):
        topic = draft.topics.by_id(topic_id)
        if topic is not None and (topics is None or topics.sees(topic.name)):
            yield groups_pb2.PartitionOutcome(topic_id=topic_id, partition=number, error=problem, topic=topic.name)


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
        elif problem is None and (partition in group.offsets or partition in group.unstable):
            draft.edit(request.group_id).remove_offset(partition)
        response.results.add(topic_id=partition[0], partition=partition[1], error=problem)
    return response


def no_group(group_id: str) -> errors_pb2.Error:
    """Returns the error for a call about a consumer group that does not exist."""
    return error(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


def _no_partition(topic: TopicInfo | None, number: int) -> errors_pb2.Error:
    problem = f"topic {topic.name} has no partition {number}" if topic is not None else "there is no topic of this id"
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
