"""OffsetForLeaderEpoch: end offsets of leader epochs, by which consumers detect log truncation."""

from __future__ import annotations

from quorumlog.server.kafka.codec.position_requests import OffsetForLeaderEpochRequest
from quorumlog.server.kafka.codec.position_responses import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderTopicResult,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import find_topics, kafka_epoch
from quorumlog.v1 import data_plane_pb2

_END_OF_EPOCH = -4
_TIMEOUT_MS = 30_000
#: Lowest id of a replica; consumers send -1, or nothing in old versions.
_FIRST_REPLICA = 0


def find_epoch_ends(call: KafkaCall[OffsetForLeaderEpochRequest]) -> Steps[OffsetForLeaderEpochResponse]:
    """Answers OffsetForLeaderEpoch (KIP-320). An epoch unknown to the log yields epoch -1 and end offset -1."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.topic for topic in request.topics))
    wanted: dict[tuple[bytes, int], data_plane_pb2.ListOffsetsPartition] = {}
    answers: dict[tuple[bytes, int], OffsetForLeaderEpochResponseEpochEndOffset] = {}
    response = []
    for topic in request.topics:
        found = topics[topic.topic]
        partitions = []
        for each in topic.partitions:
            answer = OffsetForLeaderEpochResponseEpochEndOffset(partition=each.partition)
            partitions.append(answer)
            if request.replica_id >= _FIRST_REPLICA:
                answer.error_code = KafkaError.INVALID_REQUEST
            elif isinstance(found, KafkaError):
                answer.error_code = found
            elif each.partition < 0:
                answer.error_code = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
            elif (found, each.partition) in answers:
                answer.error_code = KafkaError.INVALID_REQUEST
            else:
                answers[found, each.partition] = answer
                wanted[found, each.partition] = data_plane_pb2.ListOffsetsPartition(
                    topic_id=found,
                    partition=each.partition,
                    timestamp_ms=_END_OF_EPOCH,
                    leader_epoch=each.current_leader_epoch,
                    epoch=each.leader_epoch,
                )
        response.append(OffsetForLeaderTopicResult(topic.topic, partitions))
    while wanted:
        question = data_plane_pb2.ListOffsetsRequest(timeout_ms=_TIMEOUT_MS, partitions=wanted.values())
        reply = yield from ask(question, data_plane_pb2.ListOffsetsResponse)
        for result in reply.results:
            place = result.topic_id, result.partition
            if not result.unfinished:  # One response resolves a limited number.
                _fill(answers[place], result)
                del wanted[place]
    return OffsetForLeaderEpochResponse(topics=response)


def _fill(answer: OffsetForLeaderEpochResponseEpochEndOffset, result: data_plane_pb2.ListOffsetsResult) -> None:
    if result.HasField("error"):
        answer.error_code = kafka_code(result.error)
    elif result.offset >= 0:
        answer.leader_epoch = kafka_epoch(result.epoch)
        answer.end_offset = result.offset
