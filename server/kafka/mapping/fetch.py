"""Fetch. What Kafka's clients have written goes out as it came; all else is translated, on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.fetch_responses import (
    FetchableTopicResponse,
    FetchResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    PartitionData,
)
from quorumlog.server.kafka.mapping.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.mapping.leader_hints import endpoints, leader_hint
from quorumlog.server.kafka.mapping.steps import KafkaCall, Steps, ask, work_on
from quorumlog.server.kafka.mapping.topic_names import by_id, find_topics
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.entry import CorruptEntryError
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.kafka_entry import fetched_kafka_batch, is_kafka
from quorumlog.v1.kafka_translation import kafka_batches_of

_NO_SESSION = 0
#: Epochs of a request that belongs to no session, and of one that would begin one.
_WITHOUT_SESSION = (-1, 0)
_CONSUMER = -1
_BY_ID = 13
_NOT_KNOWN = -1
_BUSY_THROTTLE_MS = 100
#: What a client reads as "nothing now" instead of as an error.
_NOTHING_NOW = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))


def fetch(call: KafkaCall[FetchRequest]) -> Steps[FetchResponse]:
    """Answers Fetch. Every request names all of its partitions: no session is begun."""
    request = call.message
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica != _CONSUMER:
        return _refused(call, KafkaError.INVALID_REQUEST)
    if request.session_id != _NO_SESSION:
        return _refused(call, KafkaError.FETCH_SESSION_ID_NOT_FOUND)
    if request.session_epoch not in _WITHOUT_SESSION:
        return _refused(call, KafkaError.INVALID_FETCH_SESSION_EPOCH)
    topics = yield from _find(call)
    question = data_plane_pb2.FetchRequest(
        max_wait_ms=max(0, request.max_wait_ms),
        min_bytes=max(0, request.min_bytes),
        max_bytes=max(1, request.max_bytes),
        takes_kafka_batches=True,
    )
    answers: dict[tuple[bytes, int], PartitionData] = {}
    responses = []
    for topic in request.topics:
        found = topics[_key(call, topic)]
        partitions = []
        for wanted in topic.partitions:
            answer = PartitionData(wanted.partition, high_watermark=_NOT_KNOWN, records=b"")
            partitions.append(answer)
            if isinstance(found, KafkaError):
                answer.error_code = found
            elif wanted.partition < 0 or wanted.fetch_offset < 0:
                answer.error_code = (
                    KafkaError.UNKNOWN_TOPIC_OR_PARTITION if wanted.partition < 0 else KafkaError.OFFSET_OUT_OF_RANGE
                )
            elif (found, wanted.partition) in answers:
                answer.error_code = KafkaError.INVALID_REQUEST
            else:
                answers[found, wanted.partition] = answer
                _add(question, found, wanted)
        responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
    response = FetchResponse(responses=responses)
    if not answers:
        return response
    if len(answers) < sum(len(topic.partitions) for topic in request.topics):
        question.max_wait_ms = 0  # There is something to say already.
    reply = yield from ask(question, data_plane_pb2.FetchResponse)
    for result in reply.results:
        answer = answers[result.topic_id, result.partition]
        _fill(call, answer, result)
        if result.error.code in _NOTHING_NOW:
            response.throttle_time_ms = max(_BUSY_THROTTLE_MS, result.error.throttle_time_ms)
        elif result.entries:
            yield from _put_records(answer, result.entries)
    if call.version >= 16:
        response.node_endpoints = endpoints(
            (result.error for result in reply.results), call.cluster, FetchResponseNodeEndpoint
        )
    return response


def _refused(call: KafkaCall[FetchRequest], code: KafkaError) -> FetchResponse:
    """What cannot be served as a whole; before version 7 it is said of each partition."""
    if call.version >= 7:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [PartitionData(each.partition, code, _NOT_KNOWN, records=b"") for each in topic.partitions],
            )
            for topic in call.message.topics
        ]
    )


def _key(call: KafkaCall[FetchRequest], topic: FetchTopic) -> str | bytes:
    return topic.topic_id if call.version >= _BY_ID else topic.topic


def _find(call: KafkaCall[FetchRequest]) -> Steps[dict[str | bytes, bytes | KafkaError]]:
    if call.version >= _BY_ID:
        return {topic.topic_id: topic.topic_id for topic in call.message.topics}
    found: dict[str | bytes, bytes | KafkaError] = {}
    found.update((yield from find_topics(call.cluster, (topic.topic for topic in call.message.topics))))
    return found


def _add(question: data_plane_pb2.FetchRequest, topic_id: bytes, wanted: FetchPartition) -> None:
    question.partitions.add(
        topic_id=topic_id,
        partition=wanted.partition,
        fetch_offset=wanted.fetch_offset,
        leader_epoch=wanted.current_leader_epoch,
        max_bytes=max(1, wanted.partition_max_bytes),
    )


def _fill(call: KafkaCall[FetchRequest], answer: PartitionData, result: data_plane_pb2.FetchResult) -> None:
    if result.HasField("error") and result.error.code not in _NOTHING_NOW:
        code = kafka_code(result.error)
        if call.version >= _BY_ID:
            code = by_id(code, call.cluster, result.topic_id)
        answer.error_code = code
        answer.current_leader = leader_hint(result.error, call.cluster, FetchResponseLeaderIdAndEpoch)
        if code is not KafkaError.OFFSET_OUT_OF_RANGE:
            return
    if result.error.code in _NOTHING_NOW:
        return
    answer.high_watermark = result.high_watermark
    # Without transactions all that is committed is stable.
    answer.last_stable_offset = result.high_watermark
    answer.log_start_offset = result.log_start_offset


def _put_records(answer: PartitionData, entries: Sequence[bytes]) -> Steps[None]:
    try:
        if all(map(is_kafka, entries)):
            answer.records = b"".join(map(fetched_kafka_batch, entries))
        else:
            answer.records = yield from work_on(partial(_translated, entries))
    except CorruptEntryError:
        # It is as its producer wrote it; nobody can read it.
        answer.error_code = KafkaError.CORRUPT_MESSAGE


def _translated(entries: Sequence[bytes]) -> bytes:
    return b"".join(map(kafka_batches_of, entries))
