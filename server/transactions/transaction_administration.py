"""Serves operators: lists and describes the transactional ids of this node's coordinators, and aborts transactions.
Serves backups, which have commits held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeAlias, TypeVar, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.deciding.dependencies import CoordinatorDependencies
from quorumlog.server.deciding.led_coordinators import LedCoordinators
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_calls import ClientCall
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.server.transactions.transaction_leader import TransactionLeader
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.server.transactions.transaction_views import (
    LISTED_PER_PAGE,
    ListingFilter,
    describe,
    listing,
    no_such_id,
)
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_DESCRIBE, ACL_RESOURCE_PRODUCER_NAME
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.transaction_admin_pb2 import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    HoldCommitsRequest,
    HoldCommitsResponse,
    HoldingCoordinator,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

#: Requests of operators.
OperatorRequest: TypeAlias = (
    ListTransactionsRequest | DescribeTransactionRequest | AbortTransactionRequest | HoldCommitsRequest
)
#: Longest id of a hold, in bytes.
HOLD_ID_BYTES = 16
#: An answer that has a part of each coordinator on this node.
GatheredT = TypeVar("GatheredT", ListTransactionsResponse, HoldCommitsResponse)


def failed_operator_request(request: OperatorRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    match request:
        case ListTransactionsRequest():
            return ListTransactionsResponse(error=problem)
        case DescribeTransactionRequest():
            return DescribeTransactionResponse(error=problem)
        case AbortTransactionRequest():
            return AbortTransactionResponse(error=problem)
        case HoldCommitsRequest():
            return HoldCommitsResponse(error=problem)


class TransactionAdministration:
    """Serves operators from the coordinators that this node leads.

    Arguments:
        node_id: id of this node.
        led: the coordinators that this node leads.
        answers: answers due to clients.
    """

    def __init__(
        self,
        node_id: int,
        services: CoordinatorDependencies[TransactionShard],
        led: LedCoordinators[TransactionShard, TransactionLeader],
        answers: PendingAnswers,
    ) -> None:
        self._node_id = node_id
        self._refusals = services.refusals
        self._metadata = services.metadata
        self._led = led
        self._answers = answers

    def register(self, hooks: ServiceHooks) -> None:
        for kind in get_args(OperatorRequest):
            hooks.serve(kind, self._call)

    def _call(self, time: StepTime, asked: ClientRequest, request: OperatorRequest) -> None:
        failed = partial(failed_operator_request, request)
        self._answers.expect(asked.request_id, time.now + wait_us(request.timeout_ms), failed)
        if isinstance(request, ListTransactionsRequest):
            self._list(time.now, asked, request)
            return
        if isinstance(request, HoldCommitsRequest):
            self._hold(time.now, asked.request_id, request)
            return
        keeper = self._led.keeper_of(request.transactional_id)
        if isinstance(keeper, errors_pb2.Error):
            self._answers.fail(asked.request_id, keeper)
        elif isinstance(request, AbortTransactionRequest):
            keeper.queue.submit(ClientCall(asked.request_id, request, self._answers, keeper))
        else:
            topic_name = partial(self._topic_name, ClientTopics(self._refusals, asked.client))
            name = request.transactional_id
            call = _DescribeCall(asked.request_id, name, self._answers, keeper, self._node_id, topic_name)
            self._led.read(time.now, keeper, call)

    def _topic_name(self, topics: ClientTopics, topic_id: bytes) -> str | None:
        topic = self._metadata.image.topics_by_id.get(topic_id)
        name = topic.name if topic is not None else ""
        return name if topics.sees(name) else None

    def _list(self, now: int, asked: ClientRequest, request: ListTransactionsRequest) -> None:
        authorizer, principal = self._refusals.authorizer, asked.principal

        def may_see(name: str) -> bool:
            return authorizer.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_PRODUCER_NAME, name)

        try:
            chosen = ListingFilter(request, self._led.clock.wall_ms, may_see)
        except ValueError as problem:
            self._answers.fail(asked.request_id, error(ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem)))
            return
        leaders = [leader for leader in self._led if leader.coordinator.leads]
        gathered = _GatheredParts(asked.request_id, len(leaders), self._answers, ListTransactionsResponse())
        for leader in leaders:
            self._led.read(now, leader, _ListedPart(leader, chosen, gathered))

    def _hold(self, now: int, request_id: int, request: HoldCommitsRequest) -> None:
        if not 0 < len(request.hold_id) <= HOLD_ID_BYTES:
            wrong = error(ErrorCode.INVALID_REQUEST, f"a hold has an id of 1 to {HOLD_ID_BYTES} bytes")
            self._answers.fail(request_id, wrong)
            return
        leaders = [leader for leader in self._led if leader.coordinator.leads]
        gathered = _GatheredParts(request_id, len(leaders), self._answers, HoldCommitsResponse())
        for leader in leaders:
            if request.hold_ms:
                leader.hold_commits(request.hold_id, request.hold_ms * 1_000)
                self._led.wake(leader.coordinator.group)
            self._led.read(now, leader, _HoldingPart(leader, request, gathered))


class _DescribeCall:
    """A description of one transactional id. It is sent once the leadership is confirmed."""

    def __init__(
        self,
        request_id: int,
        key: str,
        answers: PendingAnswers,
        leader: TransactionLeader,
        node_id: int,
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        self.key = key
        self._request_id = request_id
        self._answers = answers
        self._leader = leader
        self._node_id = node_id
        self._topic_name = topic_name

    def decide(self, draft: TransactionDraft) -> DescribeTransactionResponse:
        record = self._leader.table.records.get(self.key)
        if record is None:
            return DescribeTransactionResponse(error=no_such_id(self.key))
        response = describe(record, self._leader.markers, self._topic_name)
        response.coordinator = self._leader.coordinator.identity.number
        response.coordinator_node = self._node_id
        return response

    def answer(self, response: ProtoMessage) -> None:
        self._answers.give(self._request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Answers the client with an error."""
        self._answers.fail(self._request_id, problem)


class _GatheredParts(Generic[GatheredT]):
    """An answer that is sent once all coordinators of this node are in it."""

    def __init__(self, request_id: int, parts: int, answers: PendingAnswers, response: GatheredT) -> None:
        self.response: GatheredT = response
        self._request_id = request_id
        self._missing = parts
        self._answers = answers
        if not parts:
            self._send()

    def add(self, part: GatheredT) -> None:
        """Adds the part of a coordinator."""
        self.response.MergeFrom(part)
        self.part_done()

    def part_done(self) -> None:
        """Counts a coordinator whose part is in the answer, or that is not led here any longer."""
        self._missing -= 1
        if not self._missing:
            self._send()

    def _send(self) -> None:
        if isinstance(self.response, ListTransactionsResponse):
            listed = self.response.transactions
            listed.sort(key=lambda each: each.transactional_id)
            if len(listed) > LISTED_PER_PAGE:
                del listed[LISTED_PER_PAGE:]
                self.response.more = True
            self.response.coordinators.sort()
        self._answers.give(self._request_id, self.response)


class _ListedPart:
    """The part of a list from one coordinator. If another node leads that by then, the list does not name it."""

    key = ""

    def __init__(
        self, leader: TransactionLeader, chosen: ListingFilter, gathered: _GatheredParts[ListTransactionsResponse]
    ) -> None:
        self._leader = leader
        self._chosen = chosen
        self._gathered = gathered

    def decide(self, draft: TransactionDraft) -> ListTransactionsResponse:
        answers = self._leader.markers
        page, more = self._chosen.page(self._leader.table.records.values(), answers)
        return ListTransactionsResponse(
            transactions=[listing(record, answers) for record in page],
            coordinators=[self._leader.coordinator.identity.number],
            more=more,
        )

    def answer(self, response: ProtoMessage) -> None:
        assert isinstance(response, ListTransactionsResponse)
        self._gathered.add(response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self._gathered.part_done()


class _HoldingPart:
    """The state of one coordinator's hold, as of a moment at which it certainly leads. A request to end the hold takes
    effect then: until that moment nothing was committed."""

    key = ""

    def __init__(
        self, leader: TransactionLeader, request: HoldCommitsRequest, gathered: _GatheredParts[HoldCommitsResponse]
    ) -> None:
        self._leader = leader
        self._request = request
        self._gathered = gathered

    def decide(self, draft: TransactionDraft) -> HoldCommitsResponse:
        leader, holds = self._leader, self._leader.hold.lasts(self._request.hold_id)
        part = HoldingCoordinator(
            number=leader.coordinator.identity.number, term=leader.term, holds=holds, settled=leader.is_settled
        )
        if holds and not self._request.hold_ms:
            leader.end_hold()
        return HoldCommitsResponse(coordinators=[part])

    def answer(self, response: ProtoMessage) -> None:
        assert isinstance(response, HoldCommitsResponse)
        self._gathered.add(response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self._gathered.part_done()
