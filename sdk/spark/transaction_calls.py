"""Blocking requests to the coordinator of a transactional id, for Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from quorumlog.sdk.errors import CoordinatorNotAvailableError, QuorumlogError, error_from_proto
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.spark.nodes import Nodes, Patience
from quorumlog.sdk.types import TransactionToken
from quorumlog.v1 import groups_pb2, groups_pb2_grpc, transactions_pb2_grpc
from quorumlog.v1 import transactions_pb2 as pb

_TIMEOUT_S = 5.0
#: The answer arrives before the call gives up.
_GRACE_S = 0.5

#: Maximum number of coordinators of which a process keeps the addresses.
_MAX_COORDINATORS = 16

_Answer = TypeVar("_Answer", pb.InitTransactionsResponse, pb.EndTransactionResponse)


def init_transaction(nodes: Nodes, name: str, work: int, run: int, timeout_ms: int) -> pb.InitTransactionsResponse:
    """Returns the identity of the run's transaction, and fences earlier runs.

    Raises:
        InvalidProducerEpochError: a later run has started, or the transaction of this one is over.
        QuorumlogError: the coordinator does not answer.
    """
    request = pb.InitTransactionsRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        work=work,
        instance=run,
        timeout_ms=int(_TIMEOUT_S * 1000),
    )
    return _answered(nodes, name, lambda stub: stub.InitTransactions(request, timeout=_TIMEOUT_S + _GRACE_S))


def end_transaction(nodes: Nodes, token: TransactionToken, writers: Sequence[int], *, commit: bool) -> None:
    """Commits what these writers have written, or aborts everything. A repeated request has the same outcome.

    Raises:
        QuorumlogError: it has ended otherwise, or the coordinator does not answer: then the outcome is unknown.
    """
    identity = pb.ProducerIdentity(producer_id=token.producer_id, producer_epoch=token.producer_epoch)
    request = pb.EndTransactionRequest(
        transactional_id=token.transactional_id,
        identity=identity,
        commit=commit,
        raises_epoch=True,
        writers=sorted(writers),
        timeout_ms=int(_TIMEOUT_S * 1000),
    )
    _answered(nodes, token.transactional_id, lambda stub: stub.EndTransaction(request, timeout=_TIMEOUT_S + _GRACE_S))


def _answered(nodes: Nodes, name: str, ask: Callable[[transactions_pb2_grpc.TransactionsStub], _Answer]) -> _Answer:
    """Returns the coordinator's final answer, after retries of temporary failures."""
    patience, uncertain = Patience(), False
    while True:
        try:
            address = nodes.coordinators.get(name) or _coordinator(nodes, name)
            try:
                answer = ask(transactions_pb2_grpc.TransactionsStub(nodes.channel(address)))
            except grpc.RpcError as error:
                raise error_from_rpc(error, address) from None
            if not answer.HasField("error"):
                _keep(nodes, name, address)
                return answer
            raise error_from_proto(answer.error)
        except QuorumlogError as error:
            nodes.coordinators.pop(name, None)
            uncertain |= not error.definite
            try:
                patience.pause(error)
            except QuorumlogError:
                raise (error.as_indefinite() if uncertain else error) from None


def _keep(nodes: Nodes, name: str, address: str) -> None:
    if len(nodes.coordinators) >= _MAX_COORDINATORS:
        nodes.coordinators.clear()
    nodes.coordinators[name] = address


def _coordinator(nodes: Nodes, name: str) -> str:
    """Returns the address of the coordinator, from any node."""
    request = groups_pb2.FindCoordinatorsRequest(group_ids=[name], type=groups_pb2.COORDINATOR_TYPE_TRANSACTION)

    def ask(address: str) -> groups_pb2.FindCoordinatorsResponse:
        stub = groups_pb2_grpc.GroupsStub(nodes.channel(address))
        response: groups_pb2.FindCoordinatorsResponse = stub.FindCoordinators(request, timeout=_TIMEOUT_S)
        return response

    response = nodes.first_answer(ask)
    if response.HasField("error"):
        raise error_from_proto(response.error)
    (found,) = response.coordinators
    if found.HasField("error"):
        raise error_from_proto(found.error)
    if found.node_id < 0:
        raise CoordinatorNotAvailableError(f"transactional id {name!r} has no coordinator at the moment: try again")
    return f"{found.host}:{found.port}"
