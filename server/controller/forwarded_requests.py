"""Authorization of requests that nodes forward from clients: the controller decides again, because its metadata are
newer.

A request of a client contains its principal. A request without one is anonymous and has the rights of that principal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import not_authorized
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.access.partial_denial import (
    ItemChange,
    names_in,
    put_refused,
    refused_items,
    without_refused,
)
from quorumlog.server.access.request_denial import refuse_forwarded
from quorumlog.server.config.options import AuthorizationOptions
from quorumlog.server.controller.decision import ControllerDecision, refusal
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.step.request_context import ANONYMOUS
from quorumlog.v1 import peer_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME

#: Requests that nodes make for themselves. All others are made for clients.
OWN_REQUESTS = frozenset(
    (
        "register_broker",
        "heartbeat",
        "report_leaders",
        "alter_isr",
        "allocate_producer_ids",
        "describe_quorum",
        "elect_preferred_leaders",
        "metadata_read_index",
        "replicas_moved",
        "create_coordinators",
        "enlist",
        "end_transactions",
        "resolve_transactions",
    )
)

Decide = Callable[[peer_pb2.ControllerRequest], ControllerDecision]


class ControllersImage(NamedTuple):
    """The image of one controller, which stays the same during its existence."""

    image: MetadataImage


class ForwardedRequests:
    """Authorizes the requests of clients.

    Arguments:
        options: whether authorization is enforced, and the super users.
        image: the controller's image.
    """

    def __init__(self, options: AuthorizationOptions, image: MetadataImage) -> None:
        self._authorizer = Authorizer(options, ControllersImage(image))

    def decide(self, request: peer_pb2.ControllerRequest, decide: Decide) -> ControllerDecision:
        """Decides on a request, or on the part of it for which its client is authorized."""
        kind = request.WhichOneof("body")
        if kind is None or kind in OWN_REQUESTS or not self._authorizer.enforced:
            return decide(request)
        principal = request.principal or ANONYMOUS
        body: ProtoMessage = getattr(request, kind)
        if isinstance(body, get_args(ItemChange)):
            return self._decide_items(principal, request, kind, body, decide)
        if isinstance(body, peer_pb2.ClaimProducer):
            operation, resource = ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME
            may = self._authorizer.may(principal, operation, resource, body.name)
            refused = None if may else not_authorized(principal, operation, resource, body.name)
        else:
            refused = refuse_forwarded(self._authorizer, principal, body)
        return decide(request) if refused is None else refusal(request.request_id, refused)

    def _decide_items(
        self, principal: str, request: peer_pb2.ControllerRequest, kind: str, body: ItemChange, decide: Decide
    ) -> ControllerDecision:
        refused = refused_items(self._authorizer, principal, body)
        if not any(refused):
            return decide(request)
        names = names_in(body)
        if all(refused):
            response = peer_pb2.ControllerResponse(request_id=request.request_id)
            getattr(response, kind).SetInParent()
            put_refused(getattr(response, kind), names, refused)
            return ControllerDecision(request.request_id, response=response)
        reduced = peer_pb2.ControllerRequest(request_id=request.request_id, principal=principal)
        getattr(reduced, kind).CopyFrom(without_refused(body, refused))
        decision = decide(reduced)

        def whole(response: peer_pb2.ControllerResponse) -> peer_pb2.ControllerResponse:
            if not response.HasField("error"):
                put_refused(getattr(response, kind), names, refused)
            return response

        if decision.response is not None:
            return replace(decision, response=whole(decision.response))
        merge = decision.merge

        def merged(results: Sequence[ApplyResult]) -> peer_pb2.ControllerResponse:
            return whole(merge(results))

        return replace(decision, merge=merged)
