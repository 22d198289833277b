"""DescribeProducers, DescribeTransactions, ListTransactions: transactions as operators see them (KIP-664, 994, 1152).

Kafka's tools abort a transaction by WriteTxnMarkers, which is refused: it would not ask the coordinator. Our own
``quorumlog transactions abort`` does.
"""

from __future__ import annotations

from quorumlog.server.kafka.codec.administration.transaction_requests import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from quorumlog.server.kafka.codec.administration.transaction_responses import (
    ActiveProducer,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsResponse,
    ProducersPartitionResult,
    ProducersTopicResult,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, group_code, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import find_topics
from quorumlog.v1 import transaction_admin_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

#: Kafka's names of states.
_STATES = {
    pb.TRANSACTION_STATE_EMPTY: "Empty",
    pb.TRANSACTION_STATE_ONGOING: "Ongoing",
    pb.TRANSACTION_STATE_PREPARE_COMMIT: "PrepareCommit",
    pb.TRANSACTION_STATE_PREPARE_ABORT: "PrepareAbort",
    pb.TRANSACTION_STATE_COMPLETE_COMMIT: "CompleteCommit",
    pb.TRANSACTION_STATE_COMPLETE_ABORT: "CompleteAbort",
}
#: States that Kafka has, and no transactional id here is ever in.
_NEVER = ("Dead", "PrepareEpochFence")
_TIMEOUT_MS = 30_000
_NONE = -1
#: The largest epoch that Kafka's field can hold; those of named producers may be larger.
_MOST_EPOCH = (1 << 31) - 1


def list_transactions(call: KafkaCall[ListTransactionsRequest]) -> Steps[ListTransactionsResponse]:
    """Answers ListTransactions: the transactional ids that this node coordinates."""
    request = call.message
    states = [number for number, name in _STATES.items() if name in request.state_filters]
    unknown = [name for name in request.state_filters if name not in _STATES.values() and name not in _NEVER]
    if request.state_filters and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    question = pb.ListTransactionsRequest(
        states=states,
        producer_ids=request.producer_id_filters,
        longer_than_ms=request.duration_filter if request.duration_filter >= 0 else None,
        name_pattern=request.transactional_id_pattern or "",
        timeout_ms=_TIMEOUT_MS,
    )
    listed: list[ListedTransaction] = []
    while True:
        reply = yield from ask(question, pb.ListTransactionsResponse)
        if reply.HasField("error"):
            return ListTransactionsResponse(error_code=group_code(reply.error))
        listed += (
            ListedTransaction(each.transactional_id, each.identity.producer_id, _STATES.get(each.state, ""))
            for each in reply.transactions
        )
        if not reply.more:
            return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)
        question.after = reply.transactions[-1].transactional_id


def describe_transactions(call: KafkaCall[DescribeTransactionsRequest]) -> Steps[DescribeTransactionsResponse]:
    """Answers DescribeTransactions. Consumer groups are not partitions here, so they are left out."""
    described = []
    # A small request that repeats an id must not return many descriptions.
    for name in dict.fromkeys(call.message.transactional_ids):
        question = pb.DescribeTransactionRequest(transactional_id=name, timeout_ms=_TIMEOUT_MS)
        reply = yield from ask(question, pb.DescribeTransactionResponse)
        described.append(_described(name, reply))
    return DescribeTransactionsResponse(transaction_states=described)


def _described(name: str, reply: pb.DescribeTransactionResponse) -> DescribedTransaction:
    if reply.HasField("error"):
        is_missing = reply.error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        code = KafkaError.TRANSACTIONAL_ID_NOT_FOUND if is_missing else group_code(reply.error)
        return DescribedTransaction(error_code=code, transactional_id=name)
    is_open = reply.state == pb.TRANSACTION_STATE_ONGOING
    rows = ((topic.topic, topic.partitions if is_open else topic.unanswered) for topic in reply.topics)
    return DescribedTransaction(
        transactional_id=name,
        transaction_state=_STATES.get(reply.state, ""),
        transaction_timeout_ms=reply.transaction_timeout_ms,
        transaction_start_time_ms=reply.started_ms or _NONE,
        producer_id=reply.identity.producer_id,
        producer_epoch=reply.identity.producer_epoch,
        topics=[DescribedTransactionTopic(topic, list(numbers)) for topic, numbers in rows if topic and numbers],
    )


def describe_producers(call: KafkaCall[DescribeProducersRequest]) -> Steps[DescribeProducersResponse]:
    """Answers DescribeProducers from the leaders of partitions."""
    request = call.message
    topics = yield from find_topics(call.cluster, (topic.name for topic in request.topics))
    response = []
    for topic in request.topics:
        found = topics[topic.name]
        results = []
        for number in dict.fromkeys(topic.partition_indexes):
            if isinstance(found, KafkaError):
                results.append(ProducersPartitionResult(number, found))
            elif number < 0:
                results.append(ProducersPartitionResult(number, KafkaError.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                results.append((yield from _producers(found, number)))
        response.append(ProducersTopicResult(topic.name, results))
    return DescribeProducersResponse(topics=response)


def _producers(topic_id: bytes, number: int) -> Steps[ProducersPartitionResult]:
    producers: list[ActiveProducer] = []
    question = pb.DescribeProducersRequest(
        topic_id=topic_id, partition=number, after_producer_id=_NONE, timeout_ms=_TIMEOUT_MS
    )
    while True:
        reply = yield from ask(question, pb.DescribeProducersResponse)
        if reply.HasField("error"):
            return ProducersPartitionResult(number, kafka_code(reply.error), reply.error.message)
        producers += map(_producer, reply.producers)
        if not reply.more:
            return ProducersPartitionResult(number, active_producers=producers)
        question.after_producer_id = reply.producers[-1].producer_id


def _producer(each: pb.ActiveProducer) -> ActiveProducer:
    return ActiveProducer(
        each.producer_id,
        min(each.producer_epoch, _MOST_EPOCH),
        each.last_sequence,
        each.last_timestamp_ms,
        _NONE,  # The coordinator's epoch, which does not fence here: the order of its log does.
        each.transaction_start_offset,
    )
