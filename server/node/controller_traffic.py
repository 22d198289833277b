"""Requests between nodes: from this node to the controller or a leader, and from other nodes to their handlers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.metadata_member import MetadataMember
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

Respond: TypeAlias = Callable[[peer_pb2.ControllerResponse], None]
#: Answers one kind of request from another node, now or later.
PeerRequestHandler: TypeAlias = Callable[[int, peer_pb2.ControllerRequest, Respond], None]


#: The kinds of requests that a voter passes on to another node. Each says how long it may take.
RELAYED = frozenset({"elect_preferred_leaders", "enlist", "end_transactions", "resolve_transactions"})
#: Time that a voter waits for another node's response, beyond the time that node waits itself (µs).
RELAY_GRACE_US = 100_000


class ControllerTraffic:
    """The connection to the active controller, and the handlers of requests from other nodes.

    Attributes:
        client: sends this node's requests.
    """

    def __init__(self, resources: NodeResources, metadata: MetadataMember, time: StepTime) -> None:
        self._node_id = resources.options.node_id
        self._host = resources.host
        self._links = resources.links
        self._rng = resources.rng
        self._member = metadata
        self._metadata = metadata.replica
        self._time = time
        self._handlers: dict[str, PeerRequestHandler] = {}
        self.client = ControllerClient(self, resources.options.limits.controller_requests, resources.boot_id)

    def controller_id(self) -> int:
        """Returns the node to ask; NO_NODE if none is known that could answer."""
        raft, reported = self._metadata.raft, self._member.reported_voters
        if raft.leader_id == NO_NODE or (reported and raft.leader_id not in reported):
            # A new broker hears from the leader only once it is a learner, but any controller can name the leader. A
            # node that considers itself a voter may have lost its vote before it was registered, and hears from no
            # leader either. One that was away may not have the voters of today, and takes a former leader for this one.
            voters = reported or raft.configuration.voters
            candidates = [node for node in voters if node != self._node_id and self._links[node].up]
            return self._rng.choice(candidates) if candidates else NO_NODE
        return raft.leader_id

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        """Sends a request to a node, possibly this one; False if the node cannot be reached."""
        if target == self._node_id:
            self.on_request(target, request)
            return True
        link = self._links[target]
        if not link.up:
            # A node has links to the voters, and to the nodes with which it shares a Raft group.
            voter = self.controller_id()
            if request.WhichOneof("body") not in RELAYED or voter in (NO_NODE, self._node_id, target):
                return False
            link = self._links[voter]
            request.forward_to = target
        if link.up:
            self._links.control(link).controller_requests.append(request)
        return link.up

    def declare(self, body: str, handler: PeerRequestHandler) -> None:
        """Registers the handler for requests with this body. All others are handled by the controller."""
        self._handlers[body] = handler

    def on_request(self, peer: int, request: peer_pb2.ControllerRequest) -> None:
        """Handles a request from a broker, possibly this one, to this node as the controller, or as a leader."""

        def respond(response: peer_pb2.ControllerResponse) -> None:
            if peer == self._node_id:
                self.client.on_response(response)
            elif (link := self._links.find(peer)) is not None:
                self._links.control_answer(link).controller_responses.append(response)

        if request.HasField("forward_to") and request.forward_to != self._node_id:
            self._relay(request, respond)
            return
        body = request.WhichOneof("body") or ""
        if body == "describe_quorum" and not self._metadata.raft.is_leader:
            body = ""  # Only the leader can answer; the controller reports that this node is not.
        self._handlers.get(body, self._ask_controller)(self._time.now, request, respond)

    def _relay(self, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Passes a request on to the node that it is for. Only once: nodes with different views of the voters could
        otherwise pass it on to one another indefinitely."""
        target, request_id = request.forward_to, request.request_id

        def answered(answer: peer_pb2.ControllerResponse | None) -> None:
            response = peer_pb2.ControllerResponse(error=None if answer is not None else _unreachable(target))
            if answer is not None:
                response.CopyFrom(answer)
            response.request_id = request_id
            respond(response)

        link, body = self._links.find(target), request.WhichOneof("body")
        if body not in RELAYED or link is None or not link.up:
            answered(None)
            return
        passed = peer_pb2.ControllerRequest()
        passed.CopyFrom(request)
        passed.ClearField("forward_to")
        deadline = self._time.now + wait_us(getattr(request, body).timeout_ms) + RELAY_GRACE_US
        self.client.ask(deadline, passed, answered, to=target)

    def _ask_controller(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        self._metadata.handle(now, self._time.wall_ms, request, respond)
        self._host.touch(METADATA_GROUP)


def _unreachable(node: int) -> errors_pb2.Error:
    return error(ErrorCode.REQUEST_TIMED_OUT, f"node {node} did not answer; try again", definite=False)
