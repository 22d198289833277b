"""The participants of transactions on this node: partitions and consumer groups that it leads.

Their state machines open and end transactions (`TransactionParticipants`). This service carries what they need between
nodes: enlistments to coordinators, decisions from them, and questions about transactions that have been open for long.
Because of the questions a marker may be late, but is never missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from quorumlog.raft.types import NO_NODE
from quorumlog.server.deciding.dependencies import KnownLeaders
from quorumlog.server.deciding.finder import coordinator_of
from quorumlog.server.deciding.transaction_participants import (
    OnEnlisted,
    OpenHere,
    TransactionParticipants,
    identity_form,
    identity_of,
    participant_form,
    participant_of,
    place_form,
    place_of,
)
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_calls import REQUEST_ITEMS, Respond
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.peer_pb2 import TRANSACTION_STANDING_DECIDED, TRANSACTION_STANDING_UNKNOWN
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

#: Time after which a leader asks what became of a transaction, and the interval of these questions (µs).
PULL_US = 10_000_000
#: Time for which a leader waits for an answer of a coordinator (µs).
ANSWER_US = 5_000_000
#: Maximum number of enlistments that wait for an answer.
MAX_ENLISTMENTS = 10_000


@dataclass(slots=True, frozen=True)
class _Enlistment:
    """A participant that waits for its enlistment. ``term`` is the one in which this node leads it."""

    item: peer_pb2.Enlistment
    term: int
    on_enlisted: OnEnlisted


class ParticipantService:
    """Connects the participants on this node with the coordinators."""

    def __init__(
        self,
        participants: TransactionParticipants,
        metadata: CurrentImage,
        leaders: KnownLeaders,
        controller: ControllerClient,
        now: int,
    ) -> None:
        self._participants = participants
        self._metadata = metadata
        self._leaders = leaders
        self._controller = controller
        self._waiting: list[_Enlistment] = []
        self._under_way = 0
        self._pull_due = now + PULL_US

    def register(self, hooks: ServiceHooks) -> None:
        hooks.after_events(self.after_events)
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    # -- enlistments --------------------------------------------------------------------------------------------------

    def enlist(self, item: peer_pb2.Enlistment, term: int, on_enlisted: OnEnlisted) -> None:
        """Enlists a participant with the coordinator of its transactional id, and opens the transaction there.

        Arguments:
            term: the term in which this node leads the participant.
            on_enlisted: called in this step or a later one; without an error if the transaction is open now.
        """
        if self._under_way + len(self._waiting) >= MAX_ENLISTMENTS:
            busy = f"{MAX_ENLISTMENTS} enlistments wait for their coordinators: try again later"
            on_enlisted(peer_pb2.EnlistmentResult(error=error(ErrorCode.SERVER_BUSY, busy)))
        else:
            self._waiting.append(_Enlistment(item, term, on_enlisted))

    def after_events(self, now: int, wall_ms: int) -> None:
        """Sends the enlistments of this step, those for one node together."""
        if not self._waiting:
            return
        by_node: dict[int, list[_Enlistment]] = {}
        for each in self._waiting:
            by_node.setdefault(self._coordinator(each.item.transactional_id), []).append(each)
        self._waiting = []
        for node, waiting in by_node.items():
            for first in range(0, len(waiting), REQUEST_ITEMS):
                self._send(now, node, waiting[first : first + REQUEST_ITEMS])

    def _coordinator(self, transactional_id: str) -> int:
        topic = self._metadata.image.topics.get(TRANSACTIONS_TOPIC)
        return NO_NODE if topic is None else self._leader_of(coordinator_of(topic, transactional_id))

    def _leader_of(self, record: PartitionRecord) -> int:
        return self._leaders.known_leader(record)[0]

    def _send(self, now: int, node: int, waiting: list[_Enlistment]) -> None:
        self._under_way += len(waiting)

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            self._under_way -= len(waiting)
            results = response.enlist.results if response is not None else ()
            for position, each in enumerate(waiting):
                result = results[position] if position < len(results) else _no_answer(response)
                each.on_enlisted(self._opened(each, result))

        if node == NO_NODE:
            answered(None)
            return
        request = peer_pb2.ControllerRequest()
        request.enlist.timeout_ms = ANSWER_US // 1_000
        request.enlist.items.extend(each.item for each in waiting)
        self._controller.ask(now + ANSWER_US, request, answered, to=node)

    def _opened(self, each: _Enlistment, result: peer_pb2.EnlistmentResult) -> peer_pb2.EnlistmentResult:
        """Opens the transaction that a coordinator has confirmed; carries out the decision that is due before it."""
        item = each.item
        if result.HasField("due"):
            self._participants.end(result.due, lambda problem: None)
        elif not result.HasField("error"):
            transaction = OpenHere(
                participant_of(item.participant), identity_of(item.identity), result.coordinator, place_of(result.place)
            )
            problem = self._participants.open(transaction, each.term)
            if problem is not None:
                return peer_pb2.EnlistmentResult(error=problem)
        return result

    # -- decisions ----------------------------------------------------------------------------------------------------

    def end(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Serves a coordinator that has decided transactions. It is answered once all of them are ended here."""
        items = request.end_transactions.items
        if len(items) > REQUEST_ITEMS:
            many = error(ErrorCode.INVALID_REQUEST, f"{len(items)} items in one request: at most {REQUEST_ITEMS} are")
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, error=many))
            return
        response = peer_pb2.ControllerResponse(request_id=request.request_id)
        response.end_transactions.SetInParent()
        results = [response.end_transactions.results.add() for _ in items]
        missing = set(range(len(items)))

        def ended(position: int, problem: errors_pb2.Error | None) -> None:
            if problem is not None:
                results[position].error.CopyFrom(problem)
            missing.discard(position)
            if not missing:
                respond(response)

        for position, item in enumerate(items):
            self._participants.end(item, partial(ended, position))
        if not items:
            respond(response)

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due; None while no transaction is open here."""
        return self._pull_due if self._participants.are_open else None

    def on_time(self, now: int, wall_ms: int) -> None:
        """Asks the coordinators what became of transactions that have been open for long."""
        if now < self._pull_due:
            return
        self._pull_due = now + PULL_US
        topic = self._metadata.image.topics.get(TRANSACTIONS_TOPIC)
        by_coordinator: dict[int, list[OpenHere]] = {}
        for transaction in self._participants.open_longer_than(PULL_US):
            by_coordinator.setdefault(transaction.coordinator, []).append(transaction)
        for number, transactions in sorted(by_coordinator.items()):
            node = NO_NODE
            if topic is not None and 0 <= number < len(topic.partitions):
                node = self._leader_of(topic.partitions[number])
            if node != NO_NODE:
                for first in range(0, len(transactions), REQUEST_ITEMS):
                    self._ask(now, node, number, transactions[first : first + REQUEST_ITEMS])

    def _ask(self, now: int, node: int, coordinator: int, transactions: list[OpenHere]) -> None:
        request = peer_pb2.ControllerRequest()
        question = request.resolve_transactions
        question.timeout_ms, question.coordinator = ANSWER_US // 1_000, coordinator
        question.items.extend(
            peer_pb2.OpenInParticipant(identity=identity_form(each.identity), place=place_form(each.place))
            for each in transactions
        )

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            results = response.resolve_transactions.results if response is not None else ()
            for transaction, result in zip(transactions, results, strict=False):
                self._resolved(transaction, result)

        self._controller.ask(now + ANSWER_US, request, answered, to=node)

    def _resolved(self, transaction: OpenHere, result: peer_pb2.ResolvedTransaction) -> None:
        item = peer_pb2.EndTransaction(
            identity=identity_form(transaction.identity),
            participant=participant_form(transaction.participant),
            origin=place_form(transaction.place),
        )
        if result.standing == TRANSACTION_STANDING_DECIDED:
            item.decided.CopyFrom(result.decided)
            item.commit, item.next_epoch = result.commit, result.next_epoch
        elif result.standing == TRANSACTION_STANDING_UNKNOWN:
            # It is not known where it was decided: the decision fences this transaction, and none that is later.
            item.decided.CopyFrom(item.origin)
            item.next_epoch = transaction.identity.epoch
        else:
            return
        self._participants.end(item, lambda problem: None)


def _no_answer(response: peer_pb2.ControllerResponse | None) -> peer_pb2.EnlistmentResult:
    if response is not None and response.HasField("error"):
        return peer_pb2.EnlistmentResult(error=response.error)
    why = "the coordinator did not answer, or is being elected: try again"
    return peer_pb2.EnlistmentResult(error=error(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
