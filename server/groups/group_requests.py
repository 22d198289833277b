"""Requests about consumer groups: their kinds, their responses on failure, and the service of the unary ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import ClientTopics, Refusals
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.deciding.decision_queue import CoordinatorCall
from quorumlog.server.deciding.led_coordinators import LedCoordinators
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.groups.administration import add_offsets, delete_group, describe, listing
from quorumlog.server.groups.classic.answers import refused
from quorumlog.server.groups.classic.calls import ClassicCall, ClassicRequest
from quorumlog.server.groups.classic.request_forms import rebalance_timeout_ms
from quorumlog.server.groups.committed_offsets import commit_offsets, delete_offsets, fetch_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.groups.group_transactions import GroupTransactions, TransactionalCommit
from quorumlog.server.groups.parked_heartbeats import refused_heartbeat
from quorumlog.server.groups.shard_leader import ShardLeader
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import Listener
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_WRITE,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
)

#: Requests about one consumer group's committed offsets.
OffsetRequest: TypeAlias = (
    groups_pb2.CommitOffsetsRequest | groups_pb2.FetchOffsetsRequest | groups_pb2.DeleteOffsetsRequest
)
#: Time after which a call that waits for others fails, beyond its own deadline, by which it is normally answered (µs).
CLASSIC_GRACE_US = 1_000_000
#: Bytes of committed offsets in one description of groups. The client requests further ones separately.
OFFSETS_BYTES = 1 << 20
#: Time beyond its rebalance timeout that a join without a timeout may take (ms).
CLASSIC_JOIN_MS = 5_000
UnaryRequest = (
    OffsetRequest
    | groups_pb2.DeleteGroupsRequest
    | groups_pb2.DescribeGroupsRequest
    | groups_pb2.ListGroupsRequest
    | ClassicRequest
)
GroupRequest = UnaryRequest | groups_pb2.GroupHeartbeatRequest | groups_pb2.FindCoordinatorsRequest


def failed_call(request: GroupRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a call that failed as a whole."""
    match request:
        case groups_pb2.GroupHeartbeatRequest():
            return refused_heartbeat(request, problem)
        case groups_pb2.FindCoordinatorsRequest():
            return groups_pb2.FindCoordinatorsResponse(error=problem)
        case groups_pb2.CommitOffsetsRequest():
            return groups_pb2.CommitOffsetsResponse(error=problem)
        case groups_pb2.FetchOffsetsRequest():
            return groups_pb2.FetchOffsetsResponse(error=problem)
        case groups_pb2.DeleteOffsetsRequest():
            return groups_pb2.DeleteOffsetsResponse(error=problem)
        case groups_pb2.DeleteGroupsRequest():
            return groups_pb2.DeleteGroupsResponse(error=problem)
        case groups_pb2.DescribeGroupsRequest():
            return groups_pb2.DescribeGroupsResponse(error=problem)
        case groups_pb2.ListGroupsRequest():
            return groups_pb2.ListGroupsResponse(error=problem)
        case _:
            return refused(request, problem)


class GroupCalls:
    """Serves the unary calls of the Groups service from the coordinators that this node leads.

    Arguments:
        node_id: id of this node.
        limits: limits for requests of members.
        led: the coordinators that this node leads.
        answers: answers due to clients, shared with the finder.
        refusals: error responses for denied requests.
        transactions: commits in transactions.
    """

    def __init__(
        self,
        node_id: int,
        limits: ConsumerGroupLimits,
        led: LedCoordinators[GroupShard, ShardLeader],
        answers: PendingAnswers,
        refusals: Refusals,
        transactions: GroupTransactions,
    ) -> None:
        self._transactions = transactions
        self._refusals = refusals
        self._node_id = node_id
        self._limits = limits
        self._led = led
        self._answers = answers

    def serve(self, now: int, asked: ClientRequest, request: UnaryRequest) -> None:
        """Serves a call: the leader of its consumer group's coordinator decides it or reads from it."""
        request_id, topics = asked.request_id, ClientTopics(self._refusals, asked.client)
        if isinstance(request, ClassicRequest):
            self._classic(now, asked, request)
            return
        self._answers.expect(request_id, now + wait_us(request.timeout_ms), partial(failed_call, request))
        match request:
            case groups_pb2.CommitOffsetsRequest():
                self._commit(asked, request, topics)
            case groups_pb2.DeleteOffsetsRequest():
                self._submit(_OffsetCall(request_id, request, self._answers, topics))
            case groups_pb2.FetchOffsetsRequest():
                self._read(now, _OffsetCall(request_id, request, self._answers, topics))
            case groups_pb2.DeleteGroupsRequest():
                self._delete(asked, request)
            case groups_pb2.DescribeGroupsRequest():
                self._describe(now, asked, request, topics)
            case groups_pb2.ListGroupsRequest():
                self._list(now, asked, request)

    def _classic(self, now: int, asked: ClientRequest, request: ClassicRequest) -> None:
        """Submits a call of a member of a classic group. It may wait for others, and is answered by its deadline."""
        wait = wait_us(request.timeout_ms)
        if isinstance(request, groups_pb2.JoinClassicGroupRequest):
            longest = self._limits.max_rebalance_timeout_ms
            wait_ms = request.timeout_ms or rebalance_timeout_ms(request, self._limits) + CLASSIC_JOIN_MS
            wait = max(0, min(wait_ms, longest)) * 1000
        self._answers.expect(asked.request_id, now + wait + CLASSIC_GRACE_US, partial(failed_call, request))
        keeper = self._led.keeper_of(request.group_id)
        if isinstance(keeper, errors_pb2.Error):
            self._answers.fail(asked.request_id, keeper)
            return
        deadline = self._led.clock.awake_us + wait
        call = ClassicCall(asked.request_id, request, asked.client, deadline, self._answers, keeper.classic)
        if not isinstance(request, groups_pb2.LeaveClassicGroupRequest):
            keeper.classic.heard(request.group_id, request.member_id)
        keeper.queue.submit(call)

    def _submit(self, call: CoordinatorCall[Draft]) -> None:
        keeper = self._led.keeper_of(call.key)
        if isinstance(keeper, errors_pb2.Error):
            call.refuse(keeper)
        else:
            keeper.queue.submit(call)

    def _commit(self, asked: ClientRequest, request: groups_pb2.CommitOffsetsRequest, topics: ClientTopics) -> None:
        """Submits a commit. For a member of a classic group it also extends the session."""
        request_id, name = asked.request_id, request.transactional_id
        keeper = self._led.keeper_of(request.group_id)
        if not isinstance(keeper, errors_pb2.Error) and name:
            refused = self._refusals.resource(asked.client, ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME, name)
            keeper = refused or keeper
        if isinstance(keeper, errors_pb2.Error):
            self._answers.fail(request_id, keeper)
            return
        keeper.classic.heard(request.group_id, request.member_id)
        if name:
            # Clients that have the group added change their epoch with each transaction, Kafka's older ones do not.
            keeps_epoch = asked.client.listener is Listener.KAFKA and not request.adds_group
            connection = self._transactions.connections.of(asked) if keeps_epoch else None
            commit = TransactionalCommit(request_id, request, self._answers, topics, keeper, connection)
            self._transactions.commit(keeper, commit)
        else:
            keeper.queue.submit(_OffsetCall(request_id, request, self._answers, topics))

    def _read(self, now: int, call: CoordinatorCall[Draft]) -> None:
        keeper = self._led.keeper_of(call.key)
        if isinstance(keeper, errors_pb2.Error):
            call.refuse(keeper)
        else:
            self._led.read(now, keeper, call)

    # -- several consumer groups ------------------------------------------------------------------------------

    def _delete(self, asked: ClientRequest, request: groups_pb2.DeleteGroupsRequest) -> None:
        response = groups_pb2.DeleteGroupsResponse()
        gathered = _GatheredResponse(asked.request_id, response, len(request.group_ids), self._answers)
        for group_id in request.group_ids:
            part = _GroupDeletion(response.results.add(group_id=group_id), gathered)
            if not self._is_refused(asked, part):
                self._submit(part)

    def _is_refused(self, asked: ClientRequest, part: _GroupPart) -> bool:
        """Returns True, and refuses the part, if a client may not perform the operation on a group."""
        operation = operation_of(type(asked.message))
        refused = self._refusals.resource(asked.client, operation, ACL_RESOURCE_GROUP, part.key)
        if refused is not None:
            part.refuse(refused)
        return refused is not None

    def _describe(
        self, now: int, asked: ClientRequest, request: groups_pb2.DescribeGroupsRequest, topics: ClientTopics
    ) -> None:
        response = groups_pb2.DescribeGroupsResponse()
        gathered = _GatheredDescriptions(asked.request_id, response, len(request.group_ids), self._answers)
        gathered.room_bytes = OFFSETS_BYTES if request.include_offsets else None
        for group_id in request.group_ids:
            described = response.groups.add(group_id=group_id, coordinator=self._node_id)
            part = _DescribedGroup(described, gathered, topics)
            if not self._is_refused(asked, part):
                self._read(now, part)

    def _list(self, now: int, asked: ClientRequest, request: groups_pb2.ListGroupsRequest) -> None:
        authorizer, principal = self._refusals.authorizer, asked.principal
        sees_all = authorizer.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER)

        def sees(group_id: str) -> bool:
            return sees_all or authorizer.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_GROUP, group_id)

        led = [leadership for leadership in self._led if leadership.coordinator.leads]
        gathered = _GatheredListing(asked.request_id, groups_pb2.ListGroupsResponse(), len(led), self._answers)
        for leadership in led:
            self._led.read(now, leadership, _ListedGroups(leadership, request, gathered, sees))


class _OffsetCall:
    """A call about one consumer group's committed offsets."""

    def __init__(self, request_id: int, request: OffsetRequest, answers: PendingAnswers, topics: ClientTopics) -> None:
        self._topics = topics
        self.key = request.group_id
        self._request_id = request_id
        self._request = request
        self._answers = answers

    def decide(self, draft: Draft) -> ProtoMessage:
        match self._request:
            case groups_pb2.CommitOffsetsRequest():
                return commit_offsets(draft, self._request, self._topics)
            case groups_pb2.DeleteOffsetsRequest():
                return delete_offsets(draft, self._request, self._topics)
            case groups_pb2.FetchOffsetsRequest():
                return fetch_offsets(draft, self._request, self._topics)

    def answer(self, response: ProtoMessage) -> None:
        self._answers.give(self._request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self._answers.fail(self._request_id, problem)


class _GatheredResponse:
    """A response that is sent once all its parts are in it."""

    def __init__(self, request_id: int, response: ProtoMessage, parts: int, answers: PendingAnswers) -> None:
        self.response = response
        self._request_id = request_id
        self._missing = parts
        self._answers = answers
        if not parts:
            self.leave()

    def part_done(self) -> None:
        """Counts a part that is in the response."""
        self._missing -= 1
        if not self._missing:
            self.leave()

    def leave(self) -> None:
        """Sends the response."""
        self._answers.give(self._request_id, self.response)


class _GatheredDescriptions(_GatheredResponse):
    """Descriptions. ``room_bytes`` is the space left for committed offsets; None if the request does not include
    them."""

    room_bytes: int | None = None


class _GroupPart:
    """The part of a call that concerns one consumer group. Its answer fills a slot of the response."""

    def __init__(
        self, slot: groups_pb2.GroupOutcome | groups_pb2.GroupDescription, gathered: _GatheredResponse
    ) -> None:
        self.key = slot.group_id
        self._slot = slot
        self._gathered = gathered

    def answer(self, response: ProtoMessage) -> None:
        self._slot.MergeFrom(response)  # type: ignore[arg-type]  # both are of the slot's type
        self._gathered.part_done()

    def refuse(self, problem: errors_pb2.Error) -> None:
        self._slot.error.CopyFrom(problem)
        self._gathered.part_done()


class _GroupDeletion(_GroupPart):
    def decide(self, draft: Draft) -> ProtoMessage:
        return groups_pb2.GroupOutcome(error=delete_group(draft, self.key))


class _DescribedGroup(_GroupPart):
    def __init__(
        self, slot: groups_pb2.GroupDescription, gathered: _GatheredDescriptions, topics: ClientTopics
    ) -> None:
        super().__init__(slot, gathered)
        self._descriptions = gathered
        self._topics = topics
        self._node_id = slot.coordinator

    def decide(self, draft: Draft) -> ProtoMessage:
        described = describe(draft, self.key, self._node_id, self._topics)
        room_bytes = self._descriptions.room_bytes
        if room_bytes is not None:
            self._descriptions.room_bytes = room_bytes - add_offsets(draft, described, room_bytes, self._topics)
        return described


class _GatheredListing(_GatheredResponse):
    """A list, sorted whichever coordinator answers first."""

    response: groups_pb2.ListGroupsResponse

    def leave(self) -> None:
        self.response.groups.sort(key=lambda group: group.group_id)
        self.response.coordinators.sort()
        super().leave()


class _ListedGroups:
    """The part of a list from one coordinator.

    If that is led elsewhere by then, the list is incomplete, which the client recognizes by the coordinators it names.
    """

    key = ""

    def __init__(
        self,
        leadership: ShardLeader,
        request: groups_pb2.ListGroupsRequest,
        gathered: _GatheredListing,
        sees: Callable[[str], bool],
    ) -> None:
        self._sees = sees
        self._leadership = leadership
        self._request = request
        self._gathered = gathered

    def decide(self, draft: Draft) -> groups_pb2.ListGroupsResponse:
        states, kinds = self._request.states, self._request.kinds
        every = (listing(group) for group in self._leadership.table.groups.values() if self._sees(group.group_id))
        return groups_pb2.ListGroupsResponse(
            groups=[
                group for group in every if (not states or group.state in states) and (not kinds or group.kind in kinds)
            ],
            coordinators=[self._leadership.coordinator.identity.number],
        )

    def answer(self, response: ProtoMessage) -> None:
        assert isinstance(response, groups_pb2.ListGroupsResponse)
        self._gathered.response.MergeFrom(response)
        self._gathered.part_done()

    def refuse(self, problem: errors_pb2.Error) -> None:
        self._gathered.part_done()
