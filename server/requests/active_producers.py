"""DescribeProducers: the producers that a partition remembers, and their open transactions, page by page."""

from __future__ import annotations

from itertools import islice

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.producer_state import ProducerState
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import errors_pb2
from quorumlog.v1.transaction_admin_pb2 import ActiveProducer, DescribeProducersRequest, DescribeProducersResponse
from quorumlog.wire.entry import SEQUENCE_MODULUS, parse_header

#: Maximum number of producers in one answer: the last batch of each is read.
PRODUCERS_PER_PAGE = 200
_OPERATION = operation_of(DescribeProducersRequest)


class ProducerRequests:
    """Describes the producers of the partitions that this node leads."""

    def __init__(self, partitions: Replicas, replies: Replies, absent: PartitionErrors) -> None:
        self._partitions = partitions
        self._replies = replies
        self._absent = absent

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(DescribeProducersRequest, self.describe)

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeProducersRequest) -> None:
        """Describes one page of a partition's producers."""
        problem = self._absent.refusal(asked.client, _OPERATION, request.topic_id)
        partition = self._partitions.find(request.topic_id, request.partition)
        if problem is None and partition is None:
            problem = self._absent.problem(request.topic_id, request.partition)
        if problem is None and partition is not None:
            problem = partition.check_readable(-1)
        if problem is not None or partition is None:
            self._replies.reply(asked.request_id, DescribeProducersResponse(error=problem))
        else:
            self._replies.reply(asked.request_id, _described(partition, request.after_producer_id))


def _described(partition: Partition, after: int) -> DescribeProducersResponse:
    page = list(islice(partition.producers.states(after), PRODUCERS_PER_PAGE + 1))
    return DescribeProducersResponse(
        producers=[_producer(partition, producer_id, state) for producer_id, state in page[:PRODUCERS_PER_PAGE]],
        more=len(page) > PRODUCERS_PER_PAGE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
    )


def _producer(partition: Partition, producer_id: int, state: ProducerState) -> ActiveProducer:
    last = state.last
    opened = partition.transactions.open.get(producer_id) if partition.transactions is not None else None
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=(last.next_sequence - 1) % SEQUENCE_MODULUS if last.record_count else -1,
        last_timestamp_ms=_timestamp_ms(partition, last.base_offset) if last.record_count else -1,
        transaction_start_offset=-1 if opened is None else opened.first_offset,
        coordinator=-1 if opened is None else opened.coordinator,
    )


def _timestamp_ms(partition: Partition, offset: int) -> int:
    """Returns the largest timestamp in the batch at an offset; -1 if it is no longer kept as it was."""
    if not max(partition.log_start_offset, partition.compacted_offset) <= offset < partition.high_watermark:
        return -1
    try:
        batches = partition.read(offset, 1)
    except UnreadableEntryError:
        return -1
    header = parse_header(batches[0]) if batches else None
    return header.max_timestamp_ms if header is not None and header.base_offset == offset else -1


def failed_producer_description(
    request: DescribeProducersRequest, problem: errors_pb2.Error
) -> DescribeProducersResponse:
    """Returns the response to a request that failed."""
    return DescribeProducersResponse(error=problem)
