"""Produce and InitProducerId. Each batch is validated record by record before it is passed to the node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from quorumlog.server.kafka.codec.primitives import Buffer
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest, ProduceRequest, TopicProduceData
from quorumlog.server.kafka.codec.produce_responses import (
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    TopicProduceResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, code_of_fault, kafka_code
from quorumlog.server.kafka.handlers.handler import (
    KafkaCall,
    KafkaConnectionRefusedError,
    Steps,
    TooMuchWorkError,
    ask,
    work_on,
)
from quorumlog.server.kafka.handlers.leader_hints import endpoints, leader_hint
from quorumlog.server.kafka.handlers.topic_names import by_id, find_topics
from quorumlog.server.kafka.handlers.transactions import init_transactions
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import is_of_transaction
from quorumlog.wire.kafka.batch import KafkaBatchError, KafkaBatchFault
from quorumlog.wire.kafka.produced import entry_of_produced, is_checked_quickly

_NO_ACKS, _OWN_ACK = 0, 1
_NO_OFFSET = -1
#: From this version on, topics are named by their ids.
_BY_ID = 13
#: From this version on, the leader adds partitions to the transaction (KIP-890); before that, the client does.
_ADDS_PARTITIONS = 12
#: From this version on, clients understand that a transaction cannot be committed but can be aborted.
_ABORTABLE = 11
#: Errors for which the producer gets one that means "nothing was appended, retry".
_NOT_APPENDED = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
#: Errors of a transaction's coordinator that adds a partition. Producers do not expect them: brokers report the error
#: that means the same.
_NOT_ADDED = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


def produce(call: KafkaCall[ProduceRequest]) -> Steps[ProduceResponse | None]:
    """Answers Produce.

    Returns:
        None if the client wants no response.

    Raises:
        KafkaConnectionRefusedError: it wants none, and something failed.
    """
    request = call.message
    response = ProduceResponse([])
    by_place: dict[tuple[bytes, int], PartitionProduceResponse] = {}
    question = _question(call)
    topics = yield from _find(call)
    responses: list[TopicProduceResponse] = []
    produced: list[_Produced] = []
    for topic in request.topic_data:
        answered = TopicProduceResponse(topic.name, topic.topic_id, [])
        answers: list[PartitionProduceResponse] = []
        found = topics[_key(call, topic)]
        for each in topic.partition_data:
            answer = PartitionProduceResponse(each.index, base_offset=_NO_OFFSET)
            answers.append(answer)
            if isinstance(found, KafkaError):
                _fail(answer, found)
                continue
            if (found, each.index) in by_place:
                _fail(answer, KafkaError.INVALID_REQUEST, "the request names the partition twice")
                continue
            by_place[found, each.index] = answer
            if not each.records:
                _fail(answer, KafkaError.INVALID_RECORD, "the batch is empty: send at least one record")
            elif _may_be_taken(answer, request.transactional_id):
                produced.append(_Produced(found, each.records, answer))
        answered.partition_responses = answers
        responses.append(answered)
    response.responses = responses
    for place, entry in (yield from _entries(produced, of_transaction=bool(request.transactional_id))):
        question.batches.add(topic_id=place.topic_id, partition=place.answer.index, batch=entry)
    if question.batches:
        reply = yield from ask(question, data_plane_pb2.ProduceResponse)
        for result in reply.results:
            _fill(call, by_place[result.topic_id, result.partition], result)
        response.node_endpoints = endpoints(
            (result.error for result in reply.results), call.cluster, ProduceResponseNodeEndpoint
        )
    if request.acks != _NO_ACKS:
        return response
    for answered in responses:
        for answer in answered.partition_responses:
            if answer.error_code != KafkaError.NONE:
                raise KafkaConnectionRefusedError(
                    f"error {answer.error_code} of partition {answer.index}: {answer.error_message}"
                )
    return None


def init_producer_id(call: KafkaCall[InitProducerIdRequest]) -> Steps[InitProducerIdResponse]:
    """Answers InitProducerId. Without a transactional id: a new id for each call; the previous ones remain valid."""
    if call.message.transactional_id is not None:
        return (yield from init_transactions(call))
    reply = yield from ask(data_plane_pb2.InitProducerIdRequest(), data_plane_pb2.InitProducerIdResponse)
    if reply.HasField("error"):
        return InitProducerIdResponse(error_code=_retried(reply.error))
    return InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=reply.producer_epoch)


def _question(call: KafkaCall[ProduceRequest]) -> data_plane_pb2.ProduceRequest:
    request = call.message
    return data_plane_pb2.ProduceRequest(
        # The node reports nothing for acks=0. With the leader's acknowledgement alone, failures are reported and no
        # replica has to be waited for.
        acks=request.acks or _OWN_ACK,
        timeout_ms=max(0, request.timeout_ms),
        transactional_id=request.transactional_id or "",
        adds_partitions=call.version >= _ADDS_PARTITIONS,
    )


def _key(call: KafkaCall[ProduceRequest], topic: TopicProduceData) -> str | bytes:
    return topic.topic_id if call.version >= _BY_ID else topic.name


def _find(call: KafkaCall[ProduceRequest]) -> Steps[dict[str | bytes, bytes | KafkaError]]:
    """Returns topic ids by the names or ids that the request has."""
    if call.version >= _BY_ID:
        # The node reports ids that do not exist.
        return {topic.topic_id: topic.topic_id for topic in call.message.topic_data}
    found: dict[str | bytes, bytes | KafkaError] = {}
    found.update((yield from find_topics(call.cluster, (topic.name for topic in call.message.topic_data))))
    return found


class _Produced(NamedTuple):
    """A batch of a request, with its response."""

    topic_id: bytes
    records: Buffer
    answer: PartitionProduceResponse


def _may_be_taken(answer: PartitionProduceResponse, transactional_id: str | None) -> bool:
    """False if a batch is refused regardless of its content: then the response has the error."""
    if transactional_id == "":
        _fail(answer, KafkaError.INVALID_REQUEST, "the transactional id is empty: omit it, or choose one")
    elif answer.index < 0:
        _fail(answer, KafkaError.UNKNOWN_TOPIC_OR_PARTITION)
    return answer.error_code == KafkaError.NONE


def _entries(produced: Sequence[_Produced], *, of_transaction: bool) -> Steps[list[tuple[_Produced, bytes]]]:
    """Converts batches for the node, in their order, without those that no consumer could read: these get an error.

    Decompression would delay the node's other clients, so it runs on a worker thread.

    Arguments:
        of_transaction: the request has a transactional id.
    """
    checked_one = partial(_checked, of_transaction=of_transaction)
    checked: dict[int, bytes | KafkaBatchError] = {}
    slow = []
    for place, each in enumerate(produced):
        if _is_checked_quickly(each.records):
            checked[place] = checked_one(each.records)
        else:
            slow.append(place)
    if slow:
        batches = [produced[place].records for place in slow]
        try:
            results = yield from work_on(lambda: [*map(checked_one, batches)], sum(map(len, batches)))
            checked.update(zip(slow, results, strict=True))
        except TooMuchWorkError as problem:
            for place in slow:
                # Nothing was appended, and a retry may succeed in a moment.
                _fail(produced[place].answer, KafkaError.NOT_ENOUGH_REPLICAS, str(problem))
    entries = []
    for place, result in sorted(checked.items()):
        if isinstance(result, KafkaBatchError):
            _fail(produced[place].answer, code_of_fault(result.fault), str(result))
        else:
            entries.append((produced[place], result))
    return entries


def _is_checked_quickly(records: Buffer) -> bool:
    try:
        return is_checked_quickly(records)
    except KafkaBatchError:
        return True


def _checked(records: Buffer, *, of_transaction: bool) -> bytes | KafkaBatchError:
    try:
        entry = entry_of_produced(records)
    except KafkaBatchError as problem:
        return problem
    if is_of_transaction(entry) is of_transaction:
        return entry
    if of_transaction:
        # It would count at once, and also if the transaction is aborted.
        return KafkaBatchError("the batch is outside of the producer's transaction", KafkaBatchFault.RECORD)
    why = "the batch is part of a transaction, and the request has no transactional id: set transactional.id"
    return KafkaBatchError(why, KafkaBatchFault.TRANSACTION)


def _fill(
    call: KafkaCall[ProduceRequest], answer: PartitionProduceResponse, result: data_plane_pb2.ProduceResult
) -> None:
    if not result.HasField("error"):
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        if result.base_offset == _NO_OFFSET:
            # A duplicate whose offset is no longer known: producers count this error as success.
            _fail(answer, KafkaError.DUPLICATE_SEQUENCE_NUMBER)
        return
    code = KafkaError.NOT_ENOUGH_REPLICAS if result.error.code in _NOT_ADDED else _retried(result.error)
    if code is KafkaError.TRANSACTION_ABORTABLE and call.version < _ABORTABLE:
        code = KafkaError.INVALID_TXN_STATE
    if call.version >= _BY_ID:
        code = by_id(code, call.cluster, result.topic_id)
    _fail(answer, code, result.error.message)
    answer.current_leader = leader_hint(result.error, call.cluster, ProduceResponseLeaderIdAndEpoch)
    if code is KafkaError.UNKNOWN_PRODUCER_ID:
        # Java's producer then starts another epoch. Without a log start offset it would retry the same batch until it
        # gives up.
        answer.log_start_offset = result.log_start_offset


def _retried(error: errors_pb2.Error) -> KafkaError:
    return KafkaError.NOT_ENOUGH_REPLICAS if error.code in _NOT_APPENDED else kafka_code(error)


def _fail(answer: PartitionProduceResponse, code: KafkaError, message: str | None = None) -> None:
    answer.error_code = code
    answer.error_message = message
