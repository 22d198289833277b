"""ListOffsets: first and last offsets of partitions, and offsets by timestamp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from quorumlog.server.kafka.codec.position_requests import ListOffsetsRequest
from quorumlog.server.kafka.codec.position_responses import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.fetched_partition import isolation_level
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, TooMuchWorkError, ask, work_on
from quorumlog.server.kafka.handlers.topic_names import find_topics, kafka_epoch
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import CorruptEntryError, parse_header
from quorumlog.wire.kafka.translation import find_time_in, last_latest_in

_EARLIEST, _LATEST_TIME, _EARLIEST_LOCAL = -2, -3, -4
#: The latest offset in remote storage, and the earliest that has not been moved there.
_ELSEWHERE = (-5, -6)
_LOWEST = min(_ELSEWHERE)
_CONSUMER = -1
_DEFAULT_TIMEOUT_MS = 30_000
_MOST_TIMEOUT_MS = 600_000


def list_offsets(call: KafkaCall[ListOffsetsRequest]) -> Steps[ListOffsetsResponse]:
    """Answers ListOffsets."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    timeout_ms = min(request.timeout_ms, _MOST_TIMEOUT_MS) if request.timeout_ms > 0 else _DEFAULT_TIMEOUT_MS
    level = isolation_level(request.isolation_level)
    question = data_plane_pb2.ListOffsetsRequest(timeout_ms=timeout_ms, takes_kafka_batches=True, isolation_level=level)
    answers: dict[tuple[bytes, int], ListOffsetsPartitionResponse] = {}
    response = []
    for topic in request.topics:
        partitions = []
        found = topics[topic.name]
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(wanted.partition_index)
            partitions.append(answer)
            if request.replica_id != _CONSUMER:
                answer.error_code = KafkaError.INVALID_REQUEST
            elif isinstance(found, KafkaError):
                answer.error_code = found
            elif wanted.partition_index < 0:
                answer.error_code = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
            elif (found, wanted.partition_index) in answers or wanted.timestamp < _LOWEST:
                answer.error_code = KafkaError.INVALID_REQUEST
            elif wanted.timestamp in _ELSEWHERE:
                # The whole log is local: queries for remote storage are answered with -1, as in Kafka without tiered
                # storage.
                pass
            else:
                answers[found, wanted.partition_index] = answer
                question.partitions.add(
                    topic_id=found,
                    partition=wanted.partition_index,
                    timestamp_ms=_EARLIEST if wanted.timestamp == _EARLIEST_LOCAL else wanted.timestamp,
                    leader_epoch=wanted.current_leader_epoch,
                )
        response.append(ListOffsetsTopicResponse(topic.name, partitions))
    while question.partitions:
        reply = yield from ask(question, data_plane_pb2.ListOffsetsResponse)
        requested = {(each.topic_id, each.partition): each for each in question.partitions}
        question = data_plane_pb2.ListOffsetsRequest(
            timeout_ms=timeout_ms, takes_kafka_batches=True, isolation_level=level
        )
        for result in reply.results:
            place = result.topic_id, result.partition
            again = yield from _fill(answers[place], requested[place], result)
            if again is not None:
                # The searched part has no such record, or the limit of one reply was reached.
                question.partitions.add().CopyFrom(requested[place])
                question.partitions[-1].first_offset = again
    return ListOffsetsResponse(topics=response)


def _fill(
    answer: ListOffsetsPartitionResponse,
    asked: data_plane_pb2.ListOffsetsPartition,
    result: data_plane_pb2.ListOffsetsResult,
) -> Steps[int | None]:
    """Fills in an offset; returns the offset from which to search further, or None."""
    if result.HasField("error"):
        answer.error_code = kafka_code(result.error)
        return None
    answer.leader_epoch = kafka_epoch(result.leader_epoch)
    if result.unfinished:
        return result.offset
    if not result.entry:
        answer.offset = result.offset
        answer.timestamp = result.timestamp_ms
        return None
    if asked.timestamp_ms == _LATEST_TIME:
        find: Callable[[], tuple[int, int] | None] = partial(last_latest_in, result.entry)
    else:
        find = partial(find_time_in, result.entry, asked.timestamp_ms, result.offset)
    try:
        found = yield from work_on(find, len(result.entry))
    except TooMuchWorkError:
        answer.error_code = KafkaError.REQUEST_TIMED_OUT
        return None
    except CorruptEntryError:
        answer.error_code = KafkaError.CORRUPT_MESSAGE
        return None
    if found is None:
        return parse_header(result.entry).last_offset + 1
    answer.offset, answer.timestamp = found
    return None
