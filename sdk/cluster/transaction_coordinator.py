"""Requests to the coordinator of a transactional id, with retries, deadlines and the clients' errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import ATTEMPT_S, GRACE_S, CoordinatorCache, GroupReply
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import TransactionToken
from quorumlog.v1 import transactions_pb2 as pb
from quorumlog.v1.groups_pb2 import COORDINATOR_TYPE_TRANSACTION


class InitializedProducer(NamedTuple):
    """The answer to :meth:`TransactionCoordinator.init`.

    Arguments:
        token: the producer's identity from now on.
        work_committed: work of the requested number, or a later one, is committed.
    """

    token: TransactionToken
    work_committed: bool


class EndedTransaction(NamedTuple):
    """The answer to :meth:`TransactionCoordinator.end`.

    Arguments:
        token: the producer's identity from now on.
        visible: readers see the outcome everywhere; otherwise some partitions do not show it yet.
    """

    token: TransactionToken
    visible: bool


class TransactionCoordinator:
    """The coordinator of one transactional id, from a client's view, on its cluster's event loop.

    Every call repeats attempts after temporary failures. If one of them may have taken effect, an error of the call is
    indefinite. A repeated :meth:`end` is answered from the decision that the first one has made.

    Arguments:
        limit_s: time limit of a call with all its attempts.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, limit_s: float) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._limit_s = limit_s
        self._coordinators = CoordinatorCache(cluster, COORDINATOR_TYPE_TRANSACTION)

    async def init(
        self, transaction_timeout_ms: int, token: TransactionToken | None = None, work: int | None = None
    ) -> InitializedProducer:
        """Returns the identity of a producer, and fences its former instances. Aborts an open transaction.

        Arguments:
            token: the identity that this instance has had; None if it is new.
            work: number of the work that the next transaction does. If it is committed, nothing is changed.

        Raises:
            InvalidProducerEpochError: another instance has started since this one had its identity.
        """
        request = pb.InitTransactionsRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            identity=None if token is None else _identity(token),
            work=work,
            timeout_ms=self._attempt_ms,
        )
        reply = await self._ask(
            lambda node, limit_s: node.transactions.InitTransactions(request, timeout=limit_s),
            "the start of a transactional producer",
        )
        return InitializedProducer(self._token(reply.identity), reply.work_committed)

    async def join(self, token: TransactionToken) -> TransactionToken:
        """Adds a writer to the transaction of a producer, which starts if none is open; returns the writer's identity.

        Raises:
            InvalidProducerEpochError: the transaction is over, or another instance of the producer has started.
        """
        request = pb.JoinTransactionRequest(
            transactional_id=self.transactional_id, identity=_identity(token), timeout_ms=self._attempt_ms
        )
        reply = await self._ask(
            lambda node, limit_s: node.transactions.JoinTransaction(request, timeout=limit_s),
            "the request to join a transaction",
        )
        return self._token(reply.identity)

    async def add(self, token: TransactionToken, participants: Iterable[pb.TransactionParticipant]) -> None:
        """Adds partitions and consumer groups to the transaction of a producer, all of them or none."""
        request = pb.AddToTransactionRequest(
            transactional_id=self.transactional_id,
            identity=_identity(token),
            participants=participants,
            timeout_ms=self._attempt_ms,
        )
        await self._ask(
            lambda node, limit_s: node.transactions.AddToTransaction(request, timeout=limit_s),
            "the request to add to a transaction",
        )

    async def end(self, token: TransactionToken, *, commit: bool, writers: Collection[int] = ()) -> EndedTransaction:
        """Commits or aborts the transaction of a producer.

        Arguments:
            writers: of a commit: the producer ids of the joined writers that count; all others abort. The producer
                itself always counts.

        Raises:
            InvalidProducerEpochError: another instance of the producer has started, which has aborted what was open.
            TransactionAbortableError: the transaction is aborted, because it was open for too long.
            InvalidTxnStateError: it has ended otherwise, or none was open.
            InvalidProducerIdMappingError: the transactional id was not used for long, and is forgotten.
        """
        request = pb.EndTransactionRequest(
            transactional_id=self.transactional_id,
            identity=_identity(token),
            commit=commit,
            raises_epoch=True,
            writers=sorted(writers),
            timeout_ms=self._attempt_ms,
        )
        reply = await self._ask(
            lambda node, limit_s: node.transactions.EndTransaction(request, timeout=limit_s),
            "the commit of the transaction" if commit else "the abort of the transaction",
        )
        return EndedTransaction(self._token(reply.identity), reply.markers_committed)

    async def _ask(self, call: Callable[[NodeConnection, float], Awaitable[GroupReply]], what: str) -> GroupReply:
        uncertain = False

        async def attempt() -> GroupReply:
            nonlocal uncertain
            try:
                return await self._coordinators.ask_once(
                    self.transactional_id, lambda node: call(node, self._attempt_ms / 1000 + GRACE_S)
                )
            except QuorumlogError as error:
                uncertain |= not error.definite
                raise

        try:
            return await self._cluster.retrying(attempt, self._limit_s, what)
        except QuorumlogError as error:
            raise (error.as_indefinite() if uncertain else error) from None

    def _token(self, identity: pb.ProducerIdentity) -> TransactionToken:
        return TransactionToken(self.transactional_id, identity.producer_id, identity.producer_epoch)

    @property
    def _attempt_ms(self) -> int:
        return max(1, int(min(ATTEMPT_S, self._limit_s) * 1000))


def _identity(token: TransactionToken) -> pb.ProducerIdentity:
    return pb.ProducerIdentity(producer_id=token.producer_id, producer_epoch=token.producer_epoch)
