"""Requests about consumer groups, as a node serves them: each goes to the coordinator here that keeps its group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.client_origin import ClientOrigin
from quorumlog.server.coordinator.administration import delete_group, describe, listing
from quorumlog.server.coordinator.committed_offsets import commit_offsets, delete_offsets, fetch_offsets
from quorumlog.server.coordinator.draft import Draft
from quorumlog.server.coordinator.finder import CoordinatorFinder, coordinator_of
from quorumlog.server.coordinator.heartbeat_requests import refused_heartbeat
from quorumlog.server.coordinator.leadership import Call
from quorumlog.server.coordinator.led_coordinators import LedCoordinator, LedCoordinators
from quorumlog.server.coordinator.parked_heartbeats import PendingHeartbeat
from quorumlog.server.coordinator.pending_answers import PendingAnswers
from quorumlog.server.coordinator.request_checks import check_group_id
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import GROUPS_TOPIC
from quorumlog.server.request_timeouts import MAX_WAIT_US, wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

UnaryRequest = (
    groups_pb2.CommitOffsetsRequest
    | groups_pb2.FetchOffsetsRequest
    | groups_pb2.DeleteOffsetsRequest
    | groups_pb2.DeleteGroupsRequest
    | groups_pb2.DescribeGroupsRequest
    | groups_pb2.ListGroupsRequest
)
GroupRequest = UnaryRequest | groups_pb2.GroupHeartbeatRequest | groups_pb2.FindCoordinatorsRequest


def failed_call(request: GroupRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """The answer to a call that failed as a whole."""
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


class GroupRequests:
    """Serves the Groups service from the coordinators of this node.

    Arguments:
        node_id: this node's.
        image: gives this node's metadata image.
        leaderships: of the coordinators that this node leads.
        search: finds those that others lead.
        rounds: of heartbeats, shared with other reads.
        answers: those that are due, shared with the search.
        reply: answers a request.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        partitions: Replicas,
        leaderships: LedCoordinators,
        search: CoordinatorFinder,
        rounds: HeartbeatRounds,
        answers: PendingAnswers,
        reply: Callable[[int, ProtoMessage], None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._leaderships = leaderships
        self._search = search
        self._rounds = rounds
        self._answers = answers
        self._reply = reply

    def on_request(self, now: int, request_id: int, request: GroupRequest, client: ClientOrigin) -> None:
        """Serves a request of the service."""
        match request:
            case groups_pb2.GroupHeartbeatRequest():
                self._heartbeat(request_id, request, client)
            case groups_pb2.FindCoordinatorsRequest():
                self._search.find(now, request_id, request)
            case _:
                self._answers.expect(request_id, now + wait_us(request.timeout_ms), partial(failed_call, request))
                self._unary(now, request_id, request)

    def _heartbeat(self, request_id: int, request: groups_pb2.GroupHeartbeatRequest, client: ClientOrigin) -> None:
        led = self._keeper(request.group_id)
        if isinstance(led, errors_pb2.Error):
            self._reply(request_id, refused_heartbeat(request, led))
            return
        came = self._leaderships.clock.attended
        wait = min(request.max_wait_ms * 1000, MAX_WAIT_US)
        led.heartbeats.take(PendingHeartbeat(request_id, request, client, came, came + wait))

    def _unary(self, now: int, request_id: int, request: UnaryRequest) -> None:
        match request:
            case groups_pb2.CommitOffsetsRequest():
                self._decide(self._call(request_id, request.group_id, lambda draft: commit_offsets(draft, request)))
            case groups_pb2.DeleteOffsetsRequest():
                self._decide(self._call(request_id, request.group_id, lambda draft: delete_offsets(draft, request)))
            case groups_pb2.FetchOffsetsRequest():
                self._read(now, self._call(request_id, request.group_id, lambda draft: fetch_offsets(draft, request)))
            case groups_pb2.DeleteGroupsRequest():
                self._delete(request_id, request)
            case groups_pb2.DescribeGroupsRequest():
                self._describe(now, request_id, request)
            case groups_pb2.ListGroupsRequest():
                self._list(now, request_id, request)

    # -- which coordinator ------------------------------------------------------------------------------------

    def _keeper(self, group_id: str) -> LedCoordinator | errors_pb2.Error:
        """The coordinator that keeps a group, if this node leads it; else why it cannot be asked here."""
        refused = check_group_id(group_id)
        if refused is not None:
            return refused
        topic = self._image().topics.get(GROUPS_TOPIC)
        if topic is None:
            none = "this node knows of no coordinators: FindCoordinators has them created, ask it first"
            return error(ErrorCode.COORDINATOR_NOT_AVAILABLE, none)
        record = coordinator_of(topic, group_id)
        led = self._leaderships.give(record.group)
        if led is not None and led.coordinator.leads:
            return led
        replica = self._partitions.coordinators.get(record.group)
        if replica is not None and replica.raft.is_leader:
            return replica.not_leader()
        leader, epoch = self._partitions.known_leader(record)
        return error(
            ErrorCode.NOT_COORDINATOR,
            f"this node does not lead {record.name}, which keeps the group: ask FindCoordinators",
            leader=leader,
            leader_epoch=epoch,
        )

    # -- calls ------------------------------------------------------------------------------------------------

    def _call(self, request_id: int, group_id: str, decide: Callable[[Draft], ProtoMessage]) -> Call:
        def answer(response: ProtoMessage | None) -> None:
            assert response is not None
            self._answers.give(request_id, response)

        return Call(group_id, decide, answer, partial(self._answers.fail, request_id))

    def _decide(self, call: Call) -> None:
        led = self._keeper(call.group_id)
        if isinstance(led, errors_pb2.Error):
            call.refuse(led)
        else:
            led.leadership.submit(call)

    def _read(self, now: int, call: Call) -> None:
        led = self._keeper(call.group_id)
        if isinstance(led, errors_pb2.Error):
            call.refuse(led)
        else:
            self._read_from(now, led, call)

    def _read_from(self, now: int, led: LedCoordinator, call: Call) -> None:
        heartbeat = self._rounds.begin(now, led.coordinator.group)
        if heartbeat is None:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"the leader of {led.coordinator.name} is stalled: try again"))
        else:
            led.leadership.read(call, heartbeat)

    # -- several groups ---------------------------------------------------------------------------------------

    def _delete(self, request_id: int, request: groups_pb2.DeleteGroupsRequest) -> None:
        response = groups_pb2.DeleteGroupsResponse()
        left = _Countdown(len(request.group_ids), partial(self._answers.give, request_id, response))
        for group_id in request.group_ids:
            result = response.results.add(group_id=group_id)

            def decide(draft: Draft, result: groups_pb2.GroupOutcome = result) -> groups_pb2.GroupOutcome:
                return groups_pb2.GroupOutcome(error=delete_group(draft, result.group_id))

            self._decide(_part(group_id, decide, result, left))

    def _describe(self, now: int, request_id: int, request: groups_pb2.DescribeGroupsRequest) -> None:
        response = groups_pb2.DescribeGroupsResponse()
        left = _Countdown(len(request.group_ids), partial(self._answers.give, request_id, response))
        for group_id in request.group_ids:
            described = response.groups.add(group_id=group_id, coordinator=self._node_id)

            def decide(draft: Draft, group_id: str = group_id) -> groups_pb2.GroupDescription:
                return describe(draft, group_id, self._node_id)

            self._read(now, _part(group_id, decide, described, left))

    def _list(self, now: int, request_id: int, request: groups_pb2.ListGroupsRequest) -> None:
        led = [each for each in self._leaderships if each.coordinator.leads]
        found: list[groups_pb2.GroupListing] = []
        response = groups_pb2.ListGroupsResponse()

        def done() -> None:
            response.groups.extend(sorted(found, key=lambda group: group.group_id))
            response.coordinators.sort()
            self._answers.give(request_id, response)

        left = _Countdown(len(led), done)
        for each in led:
            self._read_from(now, each, self._listing(each, request, response, found, left))

    def _listing(
        self,
        led: LedCoordinator,
        request: groups_pb2.ListGroupsRequest,
        response: groups_pb2.ListGroupsResponse,
        found: list[groups_pb2.GroupListing],
        left: _Countdown,
    ) -> Call:
        """The part of a list that one coordinator has. Without it, if it is led elsewhere by then, the list says so by
        the coordinators that it names."""

        def decide(draft: Draft) -> None:
            every = map(listing, led.leadership.table.groups.values())
            found.extend(group for group in every if not request.states or group.state in request.states)
            response.coordinators.append(led.coordinator.identity.number)

        return Call("", decide, lambda answer: left.down(), lambda problem: left.down())

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._answers.forget(request_id)
        self._search.client_gone(request_id)
        for led in self._leaderships:
            led.heartbeats.client_gone(request_id)


class _Countdown:
    """Does something once as many parts as there are have been done."""

    def __init__(self, parts: int, done: Callable[[], None]) -> None:
        self._parts = parts
        self._done = done
        if not parts:
            done()

    def down(self) -> None:
        """A part is done."""
        self._parts -= 1
        if not self._parts:
            self._done()


def _part(
    group_id: str,
    decide: Callable[[Draft], ProtoMessage],
    slot: groups_pb2.GroupOutcome | groups_pb2.GroupDescription,
    left: _Countdown,
) -> Call:
    """The part of a call that concerns one group. Its answer goes into a slot of the response."""

    def answer(outcome: ProtoMessage | None) -> None:
        assert outcome is not None
        slot.MergeFrom(outcome)  # type: ignore[arg-type]  # both are of the slot's type
        left.down()

    def refuse(problem: errors_pb2.Error) -> None:
        slot.error.CopyFrom(problem)
        left.down()

    return Call(group_id, decide, answer, refuse)
