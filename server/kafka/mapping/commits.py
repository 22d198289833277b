"""Committed offsets of groups: OffsetCommit, OffsetFetch and OffsetDelete. Clients name topics, groups keep ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quorumlog.server.kafka.codec.commit_requests import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from quorumlog.server.kafka.codec.commit_responses import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from quorumlog.server.kafka.mapping.error_codes import KafkaError, group_code
from quorumlog.server.kafka.mapping.memberships import GROUP_TIMEOUT_MS
from quorumlog.server.kafka.mapping.steps import KafkaCall, Steps, ask, ask_all
from quorumlog.server.kafka.mapping.topic_names import find_topics, kafka_epoch
from quorumlog.v1 import groups_pb2

_NOTHING_COMMITTED = -1
#: From these versions on an error is the group's, and a request is about several groups.
_ERROR_OF_GROUP, _MANY_GROUPS = 2, 8
_Wanted = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None


def commit(call: KafkaCall[OffsetCommitRequest]) -> Steps[OffsetCommitResponse]:
    """Answers OffsetCommit. Offsets are kept for as long as the nodes' settings say."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    question = groups_pb2.CommitOffsetsRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id or "",
        timeout_ms=GROUP_TIMEOUT_MS,
    )
    waiting: list[OffsetCommitResponsePartition] = []
    responses = []
    for topic in request.topics:
        partitions = []
        found = topics[topic.name]
        for each in topic.partitions:
            answer = OffsetCommitResponsePartition(each.partition_index)
            partitions.append(answer)
            if isinstance(found, KafkaError):
                answer.error_code = found
                continue
            waiting.append(answer)
            question.offsets.add(
                topic_id=found,
                partition=each.partition_index,
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=each.committed_metadata or "",
            )
        responses.append(OffsetCommitResponseTopic(topic.name, partitions))
    if waiting:
        reply = yield from ask(question, groups_pb2.CommitOffsetsResponse)
        _tell_outcomes(waiting, reply)
    return OffsetCommitResponse(topics=responses)


def fetch_committed(call: KafkaCall[OffsetFetchRequest]) -> Steps[OffsetFetchResponse]:
    """Answers OffsetFetch. Without transactions every committed offset is stable."""
    request = call.message
    wanted: list[tuple[str, _Wanted]]
    if call.version >= _MANY_GROUPS:
        wanted = [(group.group_id, group.topics) for group in request.groups]
    else:
        wanted = [(request.group_id, request.topics)]
    group_ids = [group_id for group_id, _ in wanted]
    if len(set(group_ids)) < len(group_ids):
        # Few bytes repeat a name, and all that a group has committed would answer each time.
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(each, (), KafkaError.INVALID_REQUEST) for each in group_ids]
        )
    names = {topic.name for _, topics in wanted for topic in topics or ()}
    found = yield from find_topics(call.cluster, sorted(names))
    questions = [_question(group_id, topics, found) for group_id, topics in wanted]
    replies = yield from ask_all(questions, groups_pb2.FetchOffsetsResponse)
    groups = [_group(group_id, topics, reply, found) for (group_id, topics), reply in zip(wanted, replies, strict=True)]
    if call.version >= _MANY_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    return _of_one_group(call, group)


def delete_committed(call: KafkaCall[OffsetDeleteRequest]) -> Steps[OffsetDeleteResponse]:
    """Answers OffsetDelete."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    question = groups_pb2.DeleteOffsetsRequest(group_id=request.group_id, timeout_ms=GROUP_TIMEOUT_MS)
    waiting: list[tuple[bytes, OffsetDeleteResponsePartition]] = []
    responses = []
    for topic in request.topics:
        found = topics[topic.name]
        partitions = [OffsetDeleteResponsePartition(each.partition_index) for each in topic.partitions]
        responses.append(OffsetDeleteResponseTopic(topic.name, partitions))
        if isinstance(found, KafkaError):
            for answer in partitions:
                answer.error_code = found
        elif partitions:
            question.topics.add(topic_id=found, partitions=[each.partition_index for each in partitions])
            waiting += ((found, each) for each in partitions)
    reply = yield from ask(question, groups_pb2.DeleteOffsetsResponse)
    if reply.HasField("error"):
        return OffsetDeleteResponse(error_code=group_code(reply.error))
    # A partition has one, however often and in whatever order it is named.
    outcomes = {(result.topic_id, result.partition): group_code(result.error) for result in reply.results}
    for topic_id, answer in waiting:
        answer.error_code = outcomes[topic_id, answer.partition_index]
    return OffsetDeleteResponse(topics=responses)


def _tell_outcomes(answers: Sequence[OffsetCommitResponsePartition], reply: groups_pb2.CommitOffsetsResponse) -> None:
    if reply.HasField("error"):
        for answer in answers:
            answer.error_code = group_code(reply.error)
        return
    for answer, result in zip(answers, reply.results, strict=True):
        answer.error_code = group_code(result.error)


def _question(group_id: str, topics: _Wanted, found: dict[str, bytes | KafkaError]) -> groups_pb2.FetchOffsetsRequest:
    question = groups_pb2.FetchOffsetsRequest(group_id=group_id, member_epoch=-1, timeout_ms=GROUP_TIMEOUT_MS)
    for topic in topics or ():
        topic_id = found[topic.name]
        if not isinstance(topic_id, KafkaError) and topic.partition_indexes:
            question.topics.add(topic_id=topic_id, partitions=topic.partition_indexes)
    return question


def _group(
    group_id: str,
    wanted: _Wanted,
    reply: groups_pb2.FetchOffsetsResponse,
    found: dict[str, bytes | KafkaError],
) -> OffsetFetchResponseGroup:
    if reply.HasField("error"):
        return OffsetFetchResponseGroup(group_id, (), group_code(reply.error))
    committed = {(each.topic, each.partition): each for each in reply.offsets}
    if wanted is None:
        places: Iterable[tuple[str, Iterable[int]]] = _places(committed)
    else:
        places = [(topic.name, topic.partition_indexes) for topic in wanted]
    topics = []
    for name, numbers in places:
        partitions = []
        refused = found.get(name)
        for number in numbers:
            one = committed.get((name, number))
            if one is not None:
                epoch = kafka_epoch(one.leader_epoch)
                partitions.append(OffsetFetchResponsePartitions(number, one.offset, epoch, one.metadata))
                continue
            code = refused if refused is KafkaError.TOPIC_AUTHORIZATION_FAILED else KafkaError.NONE
            partitions.append(OffsetFetchResponsePartitions(number, _NOTHING_COMMITTED, error_code=code))
        topics.append(OffsetFetchResponseTopics(name, partitions))
    return OffsetFetchResponseGroup(group_id, topics)


def _places(committed: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    by_topic: dict[str, list[int]] = {}
    for name, number in sorted(committed):
        by_topic.setdefault(name, []).append(number)
    return list(by_topic.items())


def _of_one_group(call: KafkaCall[OffsetFetchRequest], group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The answer to a request about one group, as it was before version 8."""
    if group.error_code != KafkaError.NONE and call.version < _ERROR_OF_GROUP:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(number, _NOTHING_COMMITTED, error_code=group.error_code)
                    for number in topic.partition_indexes
                ],
            )
            for topic in call.message.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
