"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords. Any node accepts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from quorumlog.server.kafka.codec.primitives import NO_UUID
from quorumlog.server.kafka.codec.topic_requests import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from quorumlog.server.kafka.codec.topic_responses import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsResponse,
)
from quorumlog.server.kafka.handlers.configs.config_keys import (
    DEFAULT_CONFIG,
    TOPIC_CONFIG,
    RefusedConfigError,
    effective,
    shown_value,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import find_topics
from quorumlog.v1 import admin_pb2, data_plane_pb2

_DEFAULT = -1
_ONE_PARTITION = 1
_MOST_TIMEOUT_MS = 600_000
#: From these versions on, topics to delete may be named by id, and responses describe created topics.
_BY_ID, _SAYS_CREATED = 6, 5
_UNKNOWN_LOW_WATERMARK = -1


def create_topics(call: KafkaCall[CreateTopicsRequest]) -> Steps[CreateTopicsResponse]:
    """Answers CreateTopics."""
    request = call.message
    question = admin_pb2.CreateTopicsRequest(
        timeout_ms=within_limits(request.timeout_ms), validate_only=request.validate_only
    )
    results = []
    waiting: dict[str, CreatableTopicResult] = {}
    named = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        result = CreatableTopicResult(topic.name, error_message=None)
        results.append(result)
        if named[topic.name] > 1:
            _fail(result, KafkaError.INVALID_REQUEST, "the request names the topic twice")
            continue
        try:
            wanted = _new_topic(topic, call.cluster.default_replicas)
        except RefusedConfigError as problem:
            _fail(result, problem.code, str(problem))
            continue
        question.topics.append(wanted)
        waiting[topic.name] = result
        result.num_partitions = len(topic.assignments) or wanted.num_partitions
        result.replication_factor = (
            len(topic.assignments[0].broker_ids) if topic.assignments else wanted.replication_factor
        )
    if question.topics:
        reply = yield from ask(question, admin_pb2.CreateTopicsResponse)
        for each in reply.results:
            result = waiting[each.name]
            if each.HasField("error"):
                _fail(result, kafka_code(each.error), each.error.message)
                result.num_partitions = result.replication_factor = _DEFAULT
                del waiting[each.name]
            else:
                result.topic_id = each.topic_id or NO_UUID
        if waiting and not request.validate_only:
            yield from _tell_configs(call, waiting)
    return CreateTopicsResponse(topics=results)


def delete_topics(call: KafkaCall[DeleteTopicsRequest]) -> Steps[DeleteTopicsResponse]:
    """Answers DeleteTopics."""
    request = call.message
    wanted: list[tuple[str | None, bytes]]
    if call.version >= _BY_ID:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, NO_UUID) for name in request.topic_names]
    timeout_ms = within_limits(request.timeout_ms)
    by_name = admin_pb2.DeleteTopicsRequest(timeout_ms=timeout_ms)
    by_id = admin_pb2.DeleteTopicsRequest(timeout_ms=timeout_ms)
    results = []
    waiting: dict[str, DeletableTopicResult] = {}
    for name, topic_id in wanted:
        result = DeletableTopicResult(name, topic_id)
        results.append(result)
        found = call.cluster.topic_name(topic_id) if name is None else name
        if found is None:
            result.error_code = KafkaError.UNKNOWN_TOPIC_ID
        elif found in waiting or (name is not None and topic_id != NO_UUID):
            result.error_code = KafkaError.INVALID_REQUEST
        else:
            waiting[found] = result
            if name is None:
                result.name = found
                by_id.names.append(found)
                by_id.topic_ids.append(topic_id)
            else:
                by_name.names.append(found)
    for question in (by_name, by_id):
        if question.names:
            reply = yield from ask(question, admin_pb2.DeleteTopicsResponse)
            for each in reply.results:
                if each.HasField("error"):
                    result = waiting[each.name]
                    result.error_code = kafka_code(each.error)
                    if question is by_id and result.error_code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        result.name = None  # A topic requested by id must not have its name revealed by an error.
                    else:
                        result.error_message = each.error.message
    return DeleteTopicsResponse(responses=results)


def create_partitions(call: KafkaCall[CreatePartitionsRequest]) -> Steps[CreatePartitionsResponse]:
    """Answers CreatePartitions."""
    request = call.message
    question = admin_pb2.CreatePartitionsRequest(
        timeout_ms=within_limits(request.timeout_ms), validate_only=request.validate_only
    )
    results = []
    waiting: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        result = CreatePartitionsTopicResult(topic.name)
        results.append(result)
        if topic.name in waiting:
            result.error_code = KafkaError.INVALID_REQUEST
            continue
        waiting[topic.name] = result
        question.topics.add(
            name=topic.name,
            total_count=topic.count,
            replica_assignments=[
                admin_pb2.ReplicaAssignment(replicas=each.broker_ids) for each in topic.assignments or ()
            ],
        )
    reply = yield from ask(question, admin_pb2.CreatePartitionsResponse)
    for each in reply.results:
        if each.HasField("error"):
            waiting[each.name].error_code = kafka_code(each.error)
            waiting[each.name].error_message = each.error.message
    return CreatePartitionsResponse(results=results)


def delete_records(call: KafkaCall[DeleteRecordsRequest]) -> Steps[DeleteRecordsResponse]:
    """Answers DeleteRecords, for the partitions that this node leads."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    question = admin_pb2.DeleteRecordsRequest(timeout_ms=within_limits(request.timeout_ms))
    waiting: dict[tuple[bytes, int], DeleteRecordsPartitionResult] = {}
    responses = []
    for topic in request.topics:
        found = topics[topic.name]
        partitions = []
        for each in topic.partitions:
            result = DeleteRecordsPartitionResult(each.partition_index, _UNKNOWN_LOW_WATERMARK)
            partitions.append(result)
            if isinstance(found, KafkaError):
                result.error_code = found
            elif each.partition_index < 0:
                result.error_code = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
            elif (found, each.partition_index) in waiting:
                result.error_code = KafkaError.INVALID_REQUEST
            else:
                waiting[found, each.partition_index] = result
                question.partitions.add(topic_id=found, partition=each.partition_index, before_offset=each.offset)
        responses.append(DeleteRecordsTopicResult(topic.name, partitions))
    if waiting:
        reply = yield from ask(question, admin_pb2.DeleteRecordsResponse)
        for deleted in reply.results:
            result = waiting[deleted.topic_id, deleted.partition]
            if deleted.HasField("error"):
                result.error_code = kafka_code(deleted.error)
            else:
                result.low_watermark = deleted.log_start_offset
    return DeleteRecordsResponse(topics=responses)


def within_limits(timeout_ms: int) -> int:
    """Clamps a request's timeout to what nodes accept."""
    return max(0, min(timeout_ms, _MOST_TIMEOUT_MS))


def _new_topic(topic: CreatableTopic, default_replicas: int) -> admin_pb2.NewTopic:
    if topic.assignments:
        replicas = _assignments(topic.assignments)
        if (topic.num_partitions, topic.replication_factor) != (_DEFAULT, _DEFAULT):
            raise RefusedConfigError(
                "replica assignments given: set the numbers of partitions and replicas to -1",
                KafkaError.INVALID_REQUEST,
            )
        partitions = factor = _DEFAULT
    else:
        replicas = []
        partitions = _ONE_PARTITION if topic.num_partitions == _DEFAULT else topic.num_partitions
        factor = default_replicas if topic.replication_factor == _DEFAULT else topic.replication_factor
    wanted = admin_pb2.NewTopic(
        name=topic.name, num_partitions=partitions, replication_factor=factor, replica_assignments=replicas
    )
    wanted.configs.update(effective((each.name, each.value) for each in topic.configs))
    return wanted


def _assignments(given: Sequence[CreatableReplicaAssignment]) -> list[admin_pb2.ReplicaAssignment]:
    by_number = {each.partition_index: each for each in given}
    if sorted(by_number) != list(range(len(given))):
        raise RefusedConfigError(
            "replica assignments are incomplete: number the partitions consecutively from 0",
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        )
    return [admin_pb2.ReplicaAssignment(replicas=by_number[number].broker_ids) for number in range(len(given))]


def _tell_configs(call: KafkaCall[CreateTopicsRequest], created: dict[str, CreatableTopicResult]) -> Steps[None]:
    """Waits until this node has applied the creation of topics, and fills in their configurations."""
    question = data_plane_pb2.MetadataRequest(linearizable=True, timeout_ms=within_limits(call.message.timeout_ms))
    yield from ask(question, data_plane_pb2.MetadataResponse)
    if call.version < _SAYS_CREATED:
        return
    described = yield from ask(admin_pb2.DescribeConfigsRequest(names=list(created)), admin_pb2.DescribeConfigsResponse)
    for each in described.results:
        result = created[each.name]
        if each.HasField("error"):
            result.topic_config_error_code = kafka_code(each.error)
            continue
        result.configs = [
            CreatableTopicConfigs(
                entry.name,
                shown_value(entry),
                config_source=DEFAULT_CONFIG if entry.is_default else TOPIC_CONFIG,
            )
            for entry in each.entries
        ]


def _fail(result: CreatableTopicResult, code: KafkaError, message: str) -> None:
    result.error_code = code
    result.error_message = message
