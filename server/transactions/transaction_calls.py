"""The calls that a transaction coordinator decides: of clients, and of the leaders of participants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.deciding.connection_fence import ClientConnection
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.deciding.transaction_participants import identity_of, place_form
from quorumlog.server.transactions.transaction_decisions import (
    abort_transaction,
    add_to_transaction,
    end_transaction,
    enlist,
    init_transactions,
    join_transaction,
    resolve,
)
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.server.transactions.transaction_leader import TransactionLeader
from quorumlog.v1 import errors_pb2, peer_pb2, transactions_pb2
from quorumlog.v1.transaction_admin_pb2 import AbortTransactionRequest, AbortTransactionResponse

#: Requests of clients about one transactional id.
TransactionRequest: TypeAlias = (
    transactions_pb2.InitTransactionsRequest
    | transactions_pb2.JoinTransactionRequest
    | transactions_pb2.AddToTransactionRequest
    | transactions_pb2.EndTransactionRequest
)
RequestT = TypeVar("RequestT", transactions_pb2.AddToTransactionRequest, transactions_pb2.EndTransactionRequest)
ResponseT = TypeVar("ResponseT", transactions_pb2.AddToTransactionResponse, transactions_pb2.EndTransactionResponse)
#: Maximum number of items in a request of a node.
REQUEST_ITEMS = 1_000
#: Answers a request of a node.
Respond: TypeAlias = Callable[[peer_pb2.ControllerResponse], None]


def failed_transaction(request: TransactionRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a call that failed."""
    match request:
        case transactions_pb2.InitTransactionsRequest():
            return transactions_pb2.InitTransactionsResponse(error=problem)
        case transactions_pb2.JoinTransactionRequest():
            return transactions_pb2.JoinTransactionResponse(error=problem)
        case transactions_pb2.AddToTransactionRequest():
            return transactions_pb2.AddToTransactionResponse(error=problem)
        case transactions_pb2.EndTransactionRequest():
            return transactions_pb2.EndTransactionResponse(error=problem)


class ClientCall:
    """A call of a client about one transactional id: of a producer, or of an operator who aborts its transaction.

    Arguments:
        connection: the client's connection; None if it needs no fence.
    """

    def __init__(
        self,
        request_id: int,
        request: TransactionRequest | AbortTransactionRequest,
        answers: PendingAnswers,
        leader: TransactionLeader,
        connection: ClientConnection | None = None,
    ) -> None:
        self.key = request.transactional_id
        self._fence = leader.fence
        self._connection = connection
        self._request_id = request_id
        self._request = request
        self._answers = answers
        self._leader = leader

    def decide(self, draft: TransactionDraft) -> ProtoMessage | None:
        """Decides on a draft. The answer waits for the decision, or until the leadership is confirmed. A commit waits
        while commits are held."""
        request = self._request
        commits = isinstance(request, transactions_pb2.EndTransactionRequest) and request.commit
        if commits and self._leader.hold.keep(self):
            return None
        return self._leader.settle(self, draft, self._decided(draft))

    def _decided(self, draft: TransactionDraft) -> ProtoMessage:
        match self._request:
            case transactions_pb2.InitTransactionsRequest():
                initialized = init_transactions(draft, self._request)
                if not self._request.HasField("identity") and not initialized.HasField("error"):
                    self._fence.initialized(self.key)
                return initialized
            case transactions_pb2.JoinTransactionRequest():
                return join_transaction(draft, self._request)
            case transactions_pb2.AddToTransactionRequest():
                return self._fenced(draft, add_to_transaction, self._request)
            case transactions_pb2.EndTransactionRequest():
                if self._request.raises_epoch:
                    return end_transaction(draft, self._request)
                return self._fenced(draft, end_transaction, self._request)
            case AbortTransactionRequest():
                return abort_transaction(draft, self._request)

    def _fenced(
        self, draft: TransactionDraft, decide: Callable[[TransactionDraft, RequestT], ResponseT], request: RequestT
    ) -> ProtoMessage:
        """Decides a request of a producer that keeps its epoch, unless it has used a newer connection since. The epoch
        fences former instances, which are to learn that."""
        edit = draft.find(self.key)
        if edit is not None and edit.producer is not None and edit.producer.identity == identity_of(request.identity):
            problem = self._fence.refusal(self.key, self._connection)
            if problem is not None:
                return failed_transaction(request, problem)
        response = decide(draft, request)
        if not response.HasField("error"):
            self._fence.accepted(self.key, self._connection)
        return response

    def answer(self, response: ProtoMessage) -> None:
        """Answers the client. A call that may have decided a transaction is answered when the markers are committed, or
        after half a second: the next transaction then seldom has to wait for a participant."""
        match response:
            case (
                transactions_pb2.InitTransactionsResponse()
                | transactions_pb2.EndTransactionResponse()
                | AbortTransactionResponse()
            ) if not response.HasField("error"):

                def ended(committed: bool) -> None:
                    if not isinstance(response, transactions_pb2.InitTransactionsResponse):
                        response.markers_committed = committed
                    self._answers.give(self._request_id, response)

                self._leader.when_markers_are_committed(self.key, ended)
            case _:
                self._answers.give(self._request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Answers the client with an error."""
        self._answers.fail(self._request_id, problem)


# -- requests of nodes ------------------------------------------------------------------------------------------------


class EnlistAnswer:
    """The answer to one request of a node that enlists participants: sent once all its items are answered."""

    def __init__(self, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        self._response = peer_pb2.ControllerResponse(request_id=request.request_id)
        self._response.enlist.SetInParent()
        self._missing = len(request.enlist.items)
        self._respond = respond
        self.results = [self._response.enlist.results.add() for _ in request.enlist.items]
        if not self._missing:
            respond(self._response)

    def done(self) -> None:
        """Counts an item that is in the answer."""
        self._missing -= 1
        if not self._missing:
            self._respond(self._response)


class EnlistCall:
    """One item of a request to enlist participants."""

    def __init__(
        self,
        item: peer_pb2.Enlistment,
        result: peer_pb2.EnlistmentResult,
        gathered: EnlistAnswer,
        leader: TransactionLeader,
    ) -> None:
        self.key = item.transactional_id
        self._item = item
        self._result = result
        self._gathered = gathered
        self._leader = leader

    def decide(self, draft: TransactionDraft) -> ProtoMessage | None:
        """Decides on a draft. The answer waits for the decision, or until the leadership is confirmed."""
        return self._leader.settle(self, draft, enlist(draft, self._item))

    def answer(self, response: ProtoMessage) -> None:
        """Adds the place at which the transaction origin, if it started with the entry that is being applied."""
        assert isinstance(response, peer_pb2.EnlistmentResult)
        self._result.CopyFrom(response)
        coordinator = self._leader.coordinator
        self._result.coordinator = coordinator.identity.number
        if not response.HasField("error") and not response.HasField("place"):
            self._result.place.CopyFrom(place_form(coordinator.place))
        self._gathered.done()

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Adds an error."""
        self._result.error.CopyFrom(problem)
        self._gathered.done()


class ResolveCall:
    """A request of a node that asks what became of transactions. It is answered once the leadership is confirmed."""

    key = ""

    def __init__(self, request: peer_pb2.ControllerRequest, respond: Respond, leader: TransactionLeader) -> None:
        self._request = request
        self._respond = respond
        self._leader = leader

    def decide(self, draft: TransactionDraft) -> peer_pb2.ResolveTransactionsResponse:
        """Reads what became of each transaction."""
        table, place = self._leader.table, self._leader.coordinator.place
        items = self._request.resolve_transactions.items
        return peer_pb2.ResolveTransactionsResponse(results=[resolve(table, place, item) for item in items])

    def answer(self, response: ProtoMessage) -> None:
        """Sends the answer."""
        assert isinstance(response, peer_pb2.ResolveTransactionsResponse)
        self._respond(peer_pb2.ControllerResponse(request_id=self._request.request_id, resolve_transactions=response))

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Sends an error."""
        self._respond(peer_pb2.ControllerResponse(request_id=self._request.request_id, error=problem))
