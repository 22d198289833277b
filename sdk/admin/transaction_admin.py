"""Administration of transactions, by requests to their coordinators and to the leaders of partitions."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable

from quorumlog.sdk.arguments import checked_partitions, checked_transaction_filters, checked_transactional_ids
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import ATTEMPT_S, GRACE_S, CoordinatorCache
from quorumlog.sdk.errors import IllegalArgumentError, error_from_proto
from quorumlog.sdk.transaction_views import (
    DescribedProducer,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
    TransactionPlace,
    TransactionState,
)
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import transaction_admin_pb2 as pb
from quorumlog.v1 import transactions_pb2
from quorumlog.v1.groups_pb2 import COORDINATOR_TYPE_TRANSACTION

_STATES = {
    pb.TRANSACTION_STATE_EMPTY: TransactionState.EMPTY,
    pb.TRANSACTION_STATE_ONGOING: TransactionState.ONGOING,
    pb.TRANSACTION_STATE_PREPARE_COMMIT: TransactionState.PREPARE_COMMIT,
    pb.TRANSACTION_STATE_PREPARE_ABORT: TransactionState.PREPARE_ABORT,
    pb.TRANSACTION_STATE_COMPLETE_COMMIT: TransactionState.COMPLETE_COMMIT,
    pb.TRANSACTION_STATE_COMPLETE_ABORT: TransactionState.COMPLETE_ABORT,
}
_CAUSES = {
    transactions_pb2.TRANSACTION_CAUSE_PRODUCER: "producer",
    transactions_pb2.TRANSACTION_CAUSE_TIMEOUT: "timeout",
    transactions_pb2.TRANSACTION_CAUSE_NEW_INSTANCE: "new instance",
    transactions_pb2.TRANSACTION_CAUSE_OPERATOR: "operator",
}


class TransactionAdmin(ABC):
    """The part of :class:`AsyncAdmin` for transactions.

    Attributes:
        _limit_s: time limit of one call, in seconds.
    """

    _cluster: Cluster
    _limit_s: float

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def list_transactions(
        self,
        states: Iterable[TransactionState | str] | None = None,
        *,
        producer_ids: Iterable[int] | None = None,
        longer_than_ms: int | None = None,
        name_pattern: str = "",
    ) -> list[TransactionListing]:
        """Returns transactional ids; see :meth:`quorumlog.sdk.Admin.list_transactions`."""
        self._check_usable()
        wanted, ids, longer_than_ms, name_pattern = checked_transaction_filters(
            states, producer_ids, longer_than_ms, name_pattern
        )
        request = pb.ListTransactionsRequest(
            states=[number for number, state in _STATES.items() if state in wanted],
            producer_ids=ids,
            longer_than_ms=longer_than_ms,
            name_pattern=name_pattern,
        )
        return await _Transactions(self._cluster, self._limit_s).listing(request)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """Describes transactional ids; see :meth:`quorumlog.sdk.Admin.describe_transactions`."""
        self._check_usable()
        calls = _Transactions(self._cluster, self._limit_s)
        return [await calls.describe(name) for name in checked_transactional_ids(transactional_ids)]

    async def abort_transaction(self, transactional_id: str, place: TransactionPlace) -> bool:
        """Aborts an open transaction; see :meth:`quorumlog.sdk.Admin.abort_transaction`."""
        self._check_usable()
        (name,) = checked_transactional_ids([transactional_id])
        if not isinstance(place, TransactionPlace):
            raise IllegalArgumentError(f"place is {place!r}: give the place of a TransactionDescription")
        return await _Transactions(self._cluster, self._limit_s).abort(name, place)

    async def describe_producers(self, partition: TopicPartition) -> PartitionProducers:
        """Returns the producers that a partition remembers; see :meth:`quorumlog.sdk.Admin.describe_producers`."""
        self._check_usable()
        (where,) = checked_partitions([partition])
        return await _Transactions(self._cluster, self._limit_s).producers(where)


class _Transactions:
    """Requests to coordinators of transactions, and to leaders of partitions."""

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s
        attempt_s = min(limit_s, ATTEMPT_S)
        self._timeout_ms = int(attempt_s * 1000)
        self._rpc_s = attempt_s + GRACE_S
        self._coordinators = CoordinatorCache(cluster, COORDINATOR_TYPE_TRANSACTION)

    # --- lists and descriptions ----------------------------------------------------------------------------------

    async def listing(self, filters: pb.ListTransactionsRequest) -> list[TransactionListing]:
        """Returns the transactional ids that pass all filters, sorted."""
        found: dict[str, TransactionListing] = {}
        answered: set[int] = set()

        async def ask(node: NodeConnection) -> None:
            request = pb.ListTransactionsRequest(timeout_ms=self._timeout_ms)
            request.MergeFrom(filters)
            complete: set[int] | None = None
            while True:
                reply = await node.call(node.admin.ListTransactions(request, timeout=self._rpc_s))
                if reply.HasField("error"):
                    raise error_from_proto(reply.error)
                # A coordinator that has moved to this node, or away from it, between two pages is asked again.
                complete = set(reply.coordinators) if complete is None else complete & set(reply.coordinators)
                for each in reply.transactions:
                    found[each.transactional_id] = _listing(each)
                if not reply.more:
                    answered.update(complete)
                    return
                request.after = reply.transactions[-1].transactional_id

        async def attempt() -> None:
            leading = await self._coordinators.require_all()
            nodes = dict.fromkeys(node for number, node in leading.items() if number not in answered)
            outcomes = await asyncio.gather(*(ask(node) for node in nodes), return_exceptions=True)
            for failure in outcomes:
                if failure is not None:
                    raise failure
            if leading.keys() - answered:
                raise self._coordinators.no_leader(min(leading.keys() - answered))

        await self._cluster.retrying(attempt, self._limit_s, "list_transactions")
        return [found[name] for name in sorted(found)]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Describes one transactional id."""
        request = pb.DescribeTransactionRequest(transactional_id=transactional_id, timeout_ms=self._timeout_ms)
        reply = await self._coordinators.ask(
            transactional_id,
            lambda node: node.admin.DescribeTransaction(request, timeout=self._rpc_s),
            self._limit_s,
            "describe_transactions",
        )
        return _description(transactional_id, reply)

    async def abort(self, transactional_id: str, place: TransactionPlace) -> bool:
        """Aborts the transaction that started at a place; returns True if all participants have the outcome."""
        request = pb.AbortTransactionRequest(
            transactional_id=transactional_id,
            place=transactions_pb2.TransactionPlace(term=place.term, index=place.index),
            timeout_ms=self._timeout_ms,
        )

        # A repeated request succeeds if the first one has.
        reply = await self._coordinators.ask(
            transactional_id,
            lambda node: node.admin.AbortTransaction(request, timeout=self._rpc_s),
            self._limit_s,
            "abort_transaction",
        )
        return reply.markers_committed

    # --- partitions ----------------------------------------------------------------------------------------------

    async def producers(self, where: TopicPartition) -> PartitionProducers:
        """Returns the producers that a partition remembers."""
        await self._cluster.require_partitions([where], self._limit_s)
        found: list[DescribedProducer] = []

        async def page() -> pb.DescribeProducersResponse:
            _, node = await self._cluster.require_leader(*where)
            topic_id = self._cluster.metadata.topics[where.topic].topic_id
            request = pb.DescribeProducersRequest(
                topic_id=topic_id,
                partition=where.partition,
                after_producer_id=found[-1].producer_id if found else -1,
                timeout_ms=self._timeout_ms,
            )
            reply = await node.call(node.admin.DescribeProducers(request, timeout=self._rpc_s))
            if reply.HasField("error"):
                self._cluster.learn_from(where.topic, topic_id, where.partition, reply.error)
                raise error_from_proto(reply.error)
            return reply

        while True:
            reply = await self._cluster.retrying(page, self._limit_s, "describe_producers")
            found += map(_producer, reply.producers)
            if not reply.more:
                return PartitionProducers(found, reply.high_watermark, reply.last_stable_offset)


def _state(number: pb.TransactionState.ValueType) -> TransactionState:
    return _STATES.get(number, TransactionState.EMPTY)


def _listing(each: pb.TransactionListing) -> TransactionListing:
    return TransactionListing(
        each.transactional_id,
        each.identity.producer_id,
        each.identity.producer_epoch,
        _state(each.state),
        each.started_ms or None,
    )


def _description(transactional_id: str, reply: pb.DescribeTransactionResponse) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=transactional_id,
        state=_state(reply.state),
        producer_id=reply.identity.producer_id,
        producer_epoch=reply.identity.producer_epoch,
        transaction_timeout_ms=reply.transaction_timeout_ms,
        started_ms=reply.started_ms or None,
        place=TransactionPlace(reply.place.term, reply.place.index) if reply.HasField("place") else None,
        cause=_CAUSES.get(reply.cause),
        writers=reply.writers,
        partitions={
            TopicPartition(topic.topic or f"(deleted topic {topic.topic_id.hex()})", number): number in topic.unanswered
            for topic in reply.topics
            for number in topic.partitions
        },
        groups={group.group_id: group.unanswered for group in reply.groups},
        coordinator=reply.coordinator_node,
    )


def _producer(each: pb.ActiveProducer) -> DescribedProducer:
    def known(number: int) -> int | None:
        return None if number < 0 else number

    return DescribedProducer(
        each.producer_id,
        each.producer_epoch,
        known(each.last_sequence),
        known(each.last_timestamp_ms),
        known(each.transaction_start_offset),
        known(each.coordinator),
    )
