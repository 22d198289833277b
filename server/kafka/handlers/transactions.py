"""InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

Clients of version 1 of Kafka's transactions name each partition before they produce to it, and keep their epoch from
one transaction to the next. Those of version 2 (KIP-890) have the leaders add the partitions, and get an epoch for each
transaction. The version of a request shows which of them sent it: Produce from 12 on, EndTxn from 5 on.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest
from quorumlog.server.kafka.codec.produce_responses import InitProducerIdResponse
from quorumlog.server.kafka.codec.transaction_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from quorumlog.server.kafka.codec.transaction_responses import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, transaction_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import find_topics
from quorumlog.v1 import errors_pb2, transactions_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: From this version of EndTxn on, the producer gets its next epoch with the answer.
_RAISES_EPOCH = 5
#: An identity that the client does not have.
_NO_PRODUCER = -1


class _Knows(NamedTuple):
    """Versions of a request from which on its clients understand an error. AddPartitionsToTxn has none with the second:
    from version 4 on, only brokers send it.

    Arguments:
        fenced: PRODUCER_FENCED.
        abortable: TRANSACTION_ABORTABLE.
    """

    fenced: int
    abortable: int

    def code(self, problem: errors_pb2.Error, version: int) -> KafkaError:
        """Returns the code of an error for a client that sends a version."""
        return transaction_code(problem, knows_fenced=version >= self.fenced, knows_abortable=version >= self.abortable)


_INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END = _Knows(4, 5), _Knows(2, 5), _Knows(2, 4), _Knows(2, 4)


def init_transactions(call: KafkaCall[InitProducerIdRequest]) -> Steps[InitProducerIdResponse]:
    """Answers InitProducerId of a transactional producer, whose former instances are fenced (KIP-98, KIP-360)."""
    request = call.message
    has_id, has_epoch = request.producer_id != _NO_PRODUCER, request.producer_epoch != _NO_PRODUCER
    if not request.transactional_id or has_id != has_epoch:
        return InitProducerIdResponse(error_code=KafkaError.INVALID_REQUEST)
    question = transactions_pb2.InitTransactionsRequest(
        transactional_id=request.transactional_id,
        # The coordinator refuses 0.
        transaction_timeout_ms=max(0, request.transaction_timeout_ms),
        identity=_identity(request.producer_id, request.producer_epoch) if has_id else None,
    )
    reply = yield from ask(question, transactions_pb2.InitTransactionsResponse)
    if reply.HasField("error"):
        problem = reply.error
        if problem.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # The id belongs to another instance. Brokers call that fenced, too; librdkafka would retry the other code.
            problem = errors_pb2.Error(code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return InitProducerIdResponse(error_code=_INIT.code(problem, call.version))
    return InitProducerIdResponse(producer_id=reply.identity.producer_id, producer_epoch=reply.identity.producer_epoch)


def add_partitions(call: KafkaCall[AddPartitionsToTxnRequest]) -> Steps[AddPartitionsToTxnResponse]:
    """Answers AddPartitionsToTxn: all partitions are added, or none. Their leaders authorize what is produced."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.v3_and_below_topics))
    question = transactions_pb2.AddToTransactionRequest(
        transactional_id=request.v3_and_below_transactional_id,
        identity=_identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
    )
    added: list[AddPartitionsToTxnPartitionResult] = []
    results: list[AddPartitionsToTxnTopicResult] = []
    is_refused = False
    for topic in request.v3_and_below_topics:
        found = topics[topic.name]
        answers = [AddPartitionsToTxnPartitionResult(number) for number in topic.partitions]
        results.append(AddPartitionsToTxnTopicResult(topic.name, answers))
        for answer in answers:
            if isinstance(found, KafkaError):
                answer.partition_error_code, is_refused = found, True
            else:
                added.append(answer)
                question.participants.add(topic_id=found, partition=answer.partition_index)
    code = KafkaError.OPERATION_NOT_ATTEMPTED
    if added and not is_refused:
        reply = yield from ask(question, transactions_pb2.AddToTransactionResponse)
        code = _ADD_PARTITIONS.code(reply.error, call.version)
    for answer in added:
        answer.partition_error_code = code
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def add_offsets(call: KafkaCall[AddOffsetsToTxnRequest]) -> Steps[AddOffsetsToTxnResponse]:
    """Answers AddOffsetsToTxn: a consumer group whose offsets the transaction commits is added to it. The group's
    coordinator authorizes the commit."""
    request = call.message
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=KafkaError.INVALID_GROUP_ID)
    question = transactions_pb2.AddToTransactionRequest(
        transactional_id=request.transactional_id,
        identity=_identity(request.producer_id, request.producer_epoch),
        participants=[transactions_pb2.TransactionParticipant(group_id=request.group_id)],
    )
    reply = yield from ask(question, transactions_pb2.AddToTransactionResponse)
    return AddOffsetsToTxnResponse(error_code=_ADD_OFFSETS.code(reply.error, call.version))


def end(call: KafkaCall[EndTxnRequest]) -> Steps[EndTxnResponse]:
    """Answers EndTxn. An error that means "unknown outcome" is one after which clients repeat the request."""
    request = call.message
    question = transactions_pb2.EndTransactionRequest(
        transactional_id=request.transactional_id,
        identity=_identity(request.producer_id, request.producer_epoch),
        commit=request.committed,
        raises_epoch=call.version >= _RAISES_EPOCH,
    )
    reply = yield from ask(question, transactions_pb2.EndTransactionResponse)
    if reply.HasField("error"):
        return EndTxnResponse(error_code=_END.code(reply.error, call.version))
    return EndTxnResponse(producer_id=reply.identity.producer_id, producer_epoch=reply.identity.producer_epoch)


def _identity(producer_id: int, epoch: int) -> transactions_pb2.ProducerIdentity:
    return transactions_pb2.ProducerIdentity(producer_id=producer_id, producer_epoch=epoch)
