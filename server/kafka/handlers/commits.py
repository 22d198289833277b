"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: committed offsets of groups.

Groups store topic ids; clients name topics by id from version 10 on, and by name before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quorumlog.server.kafka.codec.groups.commit_requests import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from quorumlog.server.kafka.codec.groups.commit_responses import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from quorumlog.server.kafka.codec.groups.committed_requests import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from quorumlog.server.kafka.codec.groups.committed_responses import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, group_code, transaction_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask, ask_all
from quorumlog.server.kafka.handlers.memberships import GROUP_TIMEOUT_MS
from quorumlog.server.kafka.handlers.topic_names import by_id, find_topics, kafka_epoch
from quorumlog.v1 import errors_pb2, groups_pb2

_NOTHING_COMMITTED = -1
#: From these versions on, an error applies to a group, and a request may name several groups.
_ERROR_OF_GROUP, _MANY_GROUPS = 2, 8
#: From these versions on, members of KIP-848 groups may send the request, and topics are named by their ids.
_MEMBER_EPOCHS, _TOPIC_IDS = 9, 10
_NO_MEMBER_EPOCH = -1
#: From these versions of TxnOffsetCommit on, clients understand TRANSACTION_ABORTABLE, and have the coordinator add the
#: group to the transaction (KIP-890).
_KNOWS_ABORTABLE, _ADDS_GROUP = 4, 5
#: Codes that clients of TxnOffsetCommit do not expect, with those that a broker returns instead.
_IN_TRANSACTIONS = {
    KafkaError.STALE_MEMBER_EPOCH: KafkaError.ILLEGAL_GENERATION,
    KafkaError.CONCURRENT_TRANSACTIONS: KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_Wanted = Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
#: A topic as a client names it: by name or by id.
_Named = str | bytes
_Found = dict[_Named, bytes | KafkaError]


class _Question(NamedTuple):
    """A request about one group, with the member that sends it."""

    group_id: str
    topics: _Wanted
    member_id: str = ""
    member_epoch: int = _NO_MEMBER_EPOCH


def commit(call: KafkaCall[OffsetCommitRequest]) -> Steps[OffsetCommitResponse]:
    """Answers OffsetCommit. Offsets are retained for as long as the nodes' settings say."""
    request = call.message
    topics: _Found = {}
    if call.version < _TOPIC_IDS:
        topics.update((yield from find_topics(call.cluster, (topic.name for topic in request.topics))))
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
        # The coordinator reports an id that no topic has.
        found = topic.topic_id if call.version >= _TOPIC_IDS else topics[topic.name]
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
        responses.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions))
    if waiting:
        reply = yield from ask(question, groups_pb2.CommitOffsetsResponse)
        _tell_outcomes(waiting, reply)
        _tell_by_version(call, responses)
    return OffsetCommitResponse(topics=responses)


def _tell_by_version(call: KafkaCall[OffsetCommitRequest], topics: Iterable[OffsetCommitResponseTopic]) -> None:
    """Replaces error codes with those that clients of the version understand."""
    for topic in topics:
        for answer in topic.partitions:
            if call.version >= _TOPIC_IDS:
                answer.error_code = by_id(KafkaError(answer.error_code), call.cluster, topic.topic_id)
            elif call.version < _MEMBER_EPOCHS and answer.error_code == KafkaError.STALE_MEMBER_EPOCH:
                answer.error_code = KafkaError.ILLEGAL_GENERATION


def txn_offset_commit(call: KafkaCall[TxnOffsetCommitRequest]) -> Steps[TxnOffsetCommitResponse]:
    """Answers TxnOffsetCommit: the offsets take effect if the transaction of the producer is committed."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    question = groups_pb2.CommitOffsetsRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.generation_id,
        instance_id=request.group_instance_id or "",
        transactional_id=request.transactional_id,
        adds_group=call.version >= _ADDS_GROUP,
        timeout_ms=GROUP_TIMEOUT_MS,
    )
    question.producer.producer_id, question.producer.producer_epoch = request.producer_id, request.producer_epoch
    waiting: list[TxnOffsetCommitResponsePartition] = []
    responses = []
    for topic in request.topics:
        found = topics[topic.name]
        answers = [TxnOffsetCommitResponsePartition(each.partition_index) for each in topic.partitions]
        responses.append(TxnOffsetCommitResponseTopic(topic.name, answers))
        for answer, each in zip(answers, topic.partitions, strict=True):
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
    if not request.transactional_id:
        for answer in waiting:
            answer.error_code = KafkaError.INVALID_REQUEST
    elif waiting:
        reply = yield from ask(question, groups_pb2.CommitOffsetsResponse)
        results = [reply.error] * len(waiting) if reply.HasField("error") else [row.error for row in reply.results]
        for answer, problem in zip(waiting, results, strict=True):
            answer.error_code = _code_in_transaction(call, problem)
    return TxnOffsetCommitResponse(topics=responses)


def _code_in_transaction(call: KafkaCall[TxnOffsetCommitRequest], problem: errors_pb2.Error) -> KafkaError:
    code = transaction_code(problem, knows_fenced=False, knows_abortable=call.version >= _KNOWS_ABORTABLE)
    return _IN_TRANSACTIONS.get(code, code)


def fetch_committed(call: KafkaCall[OffsetFetchRequest]) -> Steps[OffsetFetchResponse]:
    """Answers OffsetFetch. If the client requires stable offsets, those in open transactions are refused."""
    request = call.message
    if call.version >= _MANY_GROUPS:
        wanted = [
            _Question(each.group_id, each.topics, each.member_id or "", each.member_epoch) for each in request.groups
        ]
    else:
        wanted = [_Question(request.group_id, request.topics)]
    group_ids = [each.group_id for each in wanted]
    if len(set(group_ids)) < len(group_ids):
        # A small request that repeats a name must not return the offsets of the group many times.
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(each, (), KafkaError.INVALID_REQUEST) for each in group_ids]
        )
    found = yield from _find(call, [topic for each in wanted for topic in each.topics or ()])
    questions = [_question(call, each, found) for each in wanted]
    replies = yield from ask_all(questions, groups_pb2.FetchOffsetsResponse)
    groups = [_group(call, each, reply, found) for each, reply in zip(wanted, replies, strict=True)]
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
    # Outcomes are looked up by partition: a request may name one repeatedly and in any order.
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


def _name(call: KafkaCall[OffsetFetchRequest], topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics) -> _Named:
    if call.version >= _TOPIC_IDS and isinstance(topic, OffsetFetchRequestTopics):
        return topic.topic_id
    return topic.name


def _find(
    call: KafkaCall[OffsetFetchRequest], topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]
) -> Steps[_Found]:
    """Returns the ids of topics, or the error for each that cannot be resolved."""
    found: _Found = {}
    if call.version >= _TOPIC_IDS:
        for topic_id in {topic.topic_id for topic in topics if isinstance(topic, OffsetFetchRequestTopics)}:
            is_known = call.cluster.topic_name(topic_id) is not None
            found[topic_id] = topic_id if is_known else KafkaError.UNKNOWN_TOPIC_ID
    else:
        found.update((yield from find_topics(call.cluster, sorted({topic.name for topic in topics}))))
    return found


def _question(call: KafkaCall[OffsetFetchRequest], asked: _Question, found: _Found) -> groups_pb2.FetchOffsetsRequest:
    question = groups_pb2.FetchOffsetsRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        timeout_ms=GROUP_TIMEOUT_MS,
        require_stable=call.message.require_stable,
    )
    for topic in asked.topics or ():
        topic_id = found[_name(call, topic)]
        if not isinstance(topic_id, KafkaError) and topic.partition_indexes:
            question.topics.add(topic_id=topic_id, partitions=topic.partition_indexes)
    return question


def _group(
    call: KafkaCall[OffsetFetchRequest], asked: _Question, reply: groups_pb2.FetchOffsetsResponse, found: _Found
) -> OffsetFetchResponseGroup:
    if reply.HasField("error"):
        return OffsetFetchResponseGroup(asked.group_id, (), group_code(reply.error))
    by_ids = call.version >= _TOPIC_IDS
    committed: dict[tuple[_Named, int], groups_pb2.CommittedOffset] = {
        (each.topic_id if by_ids else each.topic, each.partition): each for each in reply.offsets
    }
    unstable: dict[tuple[_Named, int], KafkaError] = {
        (each.topic_id if by_ids else each.topic, each.partition): group_code(each.error) for each in reply.unstable
    }
    if asked.topics is None:
        places: Iterable[tuple[_Named, Iterable[int]]] = _places(committed.keys() | unstable.keys())
    else:
        places = [(_name(call, topic), topic.partition_indexes) for topic in asked.topics]
    topics = []
    for name, numbers in places:
        partitions = []
        refused = found.get(name)
        # A topic without a name has no committed offsets.
        is_told = by_ids or refused is KafkaError.TOPIC_AUTHORIZATION_FAILED
        refused_code = refused if isinstance(refused, KafkaError) and is_told else KafkaError.NONE
        for number in numbers:
            one = committed.get((name, number))
            if one is None:
                code = unstable.get((name, number), refused_code)
                partitions.append(OffsetFetchResponsePartitions(number, _NOTHING_COMMITTED, error_code=code))
            else:
                epoch = kafka_epoch(one.leader_epoch)
                partitions.append(OffsetFetchResponsePartitions(number, one.offset, epoch, one.metadata))
        topics.append(_told_topic(name, partitions))
    return OffsetFetchResponseGroup(asked.group_id, topics)


def _told_topic(name: _Named, partitions: list[OffsetFetchResponsePartitions]) -> OffsetFetchResponseTopics:
    if isinstance(name, str):
        return OffsetFetchResponseTopics(name, partitions=partitions)
    return OffsetFetchResponseTopics(topic_id=name, partitions=partitions)


def _places(committed: Iterable[tuple[_Named, int]]) -> list[tuple[_Named, list[int]]]:
    by_topic: dict[_Named, list[int]] = {}
    for name, number in sorted(committed):
        by_topic.setdefault(name, []).append(number)
    return list(by_topic.items())


def _of_one_group(call: KafkaCall[OffsetFetchRequest], group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Converts the response about a group to the form used before version 8."""
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
