"""Records of consumer groups in the coordinator's log and in its snapshots.

Everything is written in sorted order, so that the same state is the same bytes on every replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from quorumlog.server.deciding.transaction_participants import Identity, identity_form, place_form, place_of
from quorumlog.server.groups.classic.classic_records import change_of
from quorumlog.server.groups.group import (
    ConsumerGroup,
    GroupHeader,
    PendingOffset,
    PendingOffsets,
    StoredOffset,
    SubscribedTopic,
)
from quorumlog.server.groups.member import GroupMember, MemberSubscription, PartitionId
from quorumlog.v1 import coordinator_log_pb2, groups_pb2


def numbers_by_topic(partitions: Iterable[PartitionId]) -> dict[bytes, list[int]]:
    """Returns partition numbers by topic, both sorted."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return by_topic


def partition_lists(partitions: Iterable[PartitionId]) -> list[groups_pb2.TopicPartitions]:
    """Returns partitions as the rows of a message, without topic names."""
    return [
        groups_pb2.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in numbers_by_topic(partitions).items()
    ]


def partitions_of(lists: Iterable[groups_pb2.TopicPartitions]) -> set[PartitionId]:
    """Returns the partitions in the rows of a message."""
    return {(row.topic_id, number) for row in lists for number in row.partitions}


def member_record(member: GroupMember) -> coordinator_log_pb2.GroupMember:
    """Returns a member as a record of the log."""
    return coordinator_log_pb2.GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack,
        client_id=member.client_id,
        host=member.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        topics=member.subscription.topics,
        topic_pattern=member.subscription.pattern,
        assignor=member.subscription.assignor,
        member_epoch=member.member_epoch,
        previous_epoch=member.previous_epoch,
        state=member.state,
        assigned=_epoch_partitions(member.assigned),
        revoking=_epoch_partitions(member.revoking),
        assignment_version=member.assignment_version,
        principal=member.subscription.principal,
    )


def member_of(record: coordinator_log_pb2.GroupMember) -> GroupMember:
    """Returns the member that ``member_record`` wrote."""
    return GroupMember(
        record.member_id,
        record.instance_id,
        record.rack,
        record.client_id,
        record.host,
        record.rebalance_timeout_ms,
        record.session_timeout_ms,
        MemberSubscription(tuple(record.topics), record.topic_pattern, record.assignor, record.principal),
        record.member_epoch,
        record.previous_epoch,
        record.state,
        {(row.topic_id, number): row.assignment_epoch for row in record.assigned for number in row.partitions},
        {(row.topic_id, number): row.assignment_epoch for row in record.revoking for number in row.partitions},
        record.assignment_version,
    )


def header_record(header: GroupHeader) -> coordinator_log_pb2.GroupHeader:
    """Returns a header as a record of the log."""
    return coordinator_log_pb2.GroupHeader(
        group_epoch=header.group_epoch,
        assignment_epoch=header.assignment_epoch,
        assignor=header.assignor,
        empty_since_ms=header.empty_since_ms,
        topics=_topic_records(header.topics),
        unread_topics=_topic_records(header.unread_topics),
    )


def header_of(record: coordinator_log_pb2.GroupHeader) -> GroupHeader:
    """Returns the header that ``header_record`` wrote."""
    return GroupHeader(
        record.group_epoch,
        record.assignment_epoch,
        record.assignor,
        record.empty_since_ms,
        _topics_of(record.topics),
        _topics_of(record.unread_topics),
    )


def _topic_records(topics: Mapping[bytes, SubscribedTopic]) -> list[coordinator_log_pb2.SubscribedTopic]:
    return [
        coordinator_log_pb2.SubscribedTopic(
            topic_id=topic.topic_id,
            topic=topic.name,
            partitions=topic.partitions,
            first_partitions=topic.first_partitions,
        )
        for _, topic in sorted(topics.items())
    ]


def _topics_of(rows: Iterable[coordinator_log_pb2.SubscribedTopic]) -> dict[bytes, SubscribedTopic]:
    return {
        row.topic_id: SubscribedTopic(row.topic_id, row.topic, row.partitions, row.first_partitions) for row in rows
    }


def target_record(member_id: str, target: Iterable[PartitionId]) -> coordinator_log_pb2.MemberTarget:
    """Returns a member's part of the assignment as a record of the log."""
    return coordinator_log_pb2.MemberTarget(member_id=member_id, topics=partition_lists(target))


def offset_record(partition: PartitionId, stored: StoredOffset, topic: str = "") -> groups_pb2.CommittedOffset:
    """Returns a committed offset as a row of an answer."""
    return groups_pb2.CommittedOffset(
        topic_id=partition[0],
        partition=partition[1],
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp_ms,
        topic=topic,
    )


def logged_offset(partition: PartitionId, stored: StoredOffset) -> groups_pb2.CommittedOffset:
    """Returns a committed offset as a record of the log."""
    record = offset_record(partition, stored)
    record.committer, record.commit_number = stored.committer, stored.number
    return record


def offset_of(record: groups_pb2.CommittedOffset) -> StoredOffset:
    """Returns the committed offset that ``logged_offset`` wrote."""
    return StoredOffset(
        record.offset,
        record.leader_epoch,
        record.metadata,
        record.commit_timestamp_ms,
        record.committer,
        record.commit_number,
    )


def pending_record(
    producer_id: int, transaction: PendingOffsets, offsets: Mapping[PartitionId, PendingOffset]
) -> coordinator_log_pb2.PendingOffsets:
    """Returns some pending offsets of a transaction as a record of the log."""
    return coordinator_log_pb2.PendingOffsets(
        producer=identity_form(Identity(producer_id, transaction.epoch)),
        place=place_form(transaction.place),
        coordinator=transaction.coordinator,
        offsets=[logged_offset(partition, each.stored) for partition, each in sorted(offsets.items(), key=_first)],
    )


def _first(row: tuple[PartitionId, PendingOffset]) -> PartitionId:
    return row[0]


def pending_of(record: coordinator_log_pb2.PendingOffsets) -> PendingOffsets:
    """Returns the transaction in a record that ``pending_record`` wrote, without its offsets."""
    return PendingOffsets(record.producer.producer_epoch, place_of(record.place), record.coordinator)


def _whole_pending(group: ConsumerGroup) -> Iterator[coordinator_log_pb2.PendingOffsets]:
    """Yields all pending offsets of a group: a record for each transaction and version."""
    for producer_id, transaction in sorted(group.pending.items(), key=lambda row: row[0]):
        by_version: dict[int, dict[PartitionId, PendingOffset]] = {}
        for partition, offset in transaction.offsets.items():
            by_version.setdefault(offset.version, {})[partition] = offset
        for version, offsets in sorted(by_version.items() or ((0, {}),), key=lambda row: row[0]):
            record = pending_record(producer_id, transaction, offsets)
            record.version = version
            yield record


def whole_group(group: ConsumerGroup) -> coordinator_log_pb2.GroupChange:
    """Returns the change that creates a consumer group with its whole state."""
    return coordinator_log_pb2.GroupChange(
        group_id=group.group_id,
        version=group.version,
        header=header_record(group.header),
        members=[member_record(member) for _, member in sorted(group.members.items())],
        targets=[target_record(member_id, target) for member_id, target in sorted(group.targets.items())],
        offsets=[logged_offset(partition, stored) for partition, stored in sorted(group.offsets.items())],
        classic=change_of(None, group.classic) if group.classic is not None else None,
        pending=_whole_pending(group),
    )


def _epoch_partitions(partitions: Mapping[PartitionId, int]) -> list[coordinator_log_pb2.EpochPartitions]:
    rows: dict[tuple[bytes, int], list[int]] = {}
    for (topic_id, number), epoch in sorted(partitions.items()):
        rows.setdefault((topic_id, epoch), []).append(number)
    return [
        coordinator_log_pb2.EpochPartitions(topic_id=topic_id, assignment_epoch=epoch, partitions=numbers)
        for (topic_id, epoch), numbers in rows.items()
    ]
