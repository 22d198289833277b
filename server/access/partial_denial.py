"""Partial denial of changes of several items, each of which succeeds or fails on its own.

Denied items are removed from the request, the rest is processed, and the response gets one result per item in the
request's order again. The contacted node does so, and the controller again, with its own newer metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import Refusals, not_authorized
from quorumlog.server.access.authorizer import Authorizer, TopicAccess
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME
from quorumlog.server.metadata.topic_table import no_such_topic
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import admin_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALTER,
    ACL_OPERATION_CREATE,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
    AclResourceType,
)
from quorumlog.v1.errors_pb2 import Error

ItemChange: TypeAlias = (
    admin_pb2.CreateTopicsRequest
    | admin_pb2.DeleteTopicsRequest
    | admin_pb2.CreatePartitionsRequest
    | admin_pb2.AlterConfigsRequest
    | admin_pb2.DeleteProducersRequest
)
_BY_NAME = (admin_pb2.DeleteTopicsRequest, admin_pb2.DeleteProducersRequest)


def names_in(request: ItemChange) -> list[str]:
    """Returns the names of the items that a request would change, in its order."""
    return list(request.names) if isinstance(request, _BY_NAME) else [topic.name for topic in request.topics]


def refuse_items(refusals: Refusals, client: RequestContext, request: ItemChange) -> list[Error | None]:
    """Returns the error or None for each item that a client would change. Denials are recorded in the audit log."""
    refused = refused_items(refusals.authorizer, client.principal, request)
    operation, kind = operation_of(type(request)), _kind_of(request)
    for name, problem in zip(names_in(request), refused, strict=True):
        if problem is not None:
            refusals.audit.refused(client, operation, kind, name)
    return refused


def _kind_of(request: ItemChange) -> AclResourceType.ValueType:
    is_of_names = isinstance(request, admin_pb2.DeleteProducersRequest)
    return ACL_RESOURCE_PRODUCER_NAME if is_of_names else ACL_RESOURCE_TOPIC


def refused_items(authorizer: Authorizer, principal: str, request: ItemChange) -> list[Error | None]:
    """Returns the error or None for each item that a request would change."""
    if isinstance(request, admin_pb2.CreateTopicsRequest):
        return [_refuse_creation(authorizer, principal, topic) for topic in request.topics]
    operation = operation_of(type(request))
    if isinstance(request, admin_pb2.DeleteProducersRequest):
        kind = ACL_RESOURCE_PRODUCER_NAME
        return [
            None
            if authorizer.may(principal, operation, kind, name)
            else not_authorized(principal, operation, kind, name)
            for name in request.names
        ]
    refused: list[Error | None] = []
    for name in names_in(request):
        access = authorizer.topic_access(principal, operation, name)
        if access is TopicAccess.ALLOWED:
            refused.append(None)
        elif access is TopicAccess.HIDDEN:
            refused.append(no_such_topic(name))
        else:
            refused.append(not_authorized(principal, operation, ACL_RESOURCE_TOPIC, name))
    return refused


def _refuse_creation(authorizer: Authorizer, principal: str, topic: admin_pb2.NewTopic) -> Error | None:
    if topic.topic_id and not authorizer.may(principal, ACL_OPERATION_ALTER, ACL_RESOURCE_CLUSTER):
        # Only a restore specifies the id of a new topic.
        return not_authorized(principal, ACL_OPERATION_ALTER, ACL_RESOURCE_CLUSTER, CLUSTER_NAME)
    if authorizer.may(principal, ACL_OPERATION_CREATE, ACL_RESOURCE_CLUSTER):
        return None
    if authorizer.may(principal, ACL_OPERATION_CREATE, ACL_RESOURCE_TOPIC, topic.name):
        return None
    return not_authorized(principal, ACL_OPERATION_CREATE, ACL_RESOURCE_TOPIC, topic.name)


def without_refused(request: ItemChange, refused: Sequence[Error | None]) -> ItemChange:
    """Returns the request without denied items; ids in parallel lists stay aligned with their names."""
    kept = [slot for slot, problem in enumerate(refused) if problem is None]
    reduced = type(request)()
    reduced.CopyFrom(request)  # type: ignore[arg-type]  # of the same type
    beside = "claims" if isinstance(request, admin_pb2.DeleteProducersRequest) else "topic_ids"
    for field in ("names", beside) if isinstance(request, _BY_NAME) else ("topics",):
        requested = getattr(request, field)
        reduced.ClearField(field)  # type: ignore[arg-type]  # a field of this type
        getattr(reduced, field).extend(requested[slot] for slot in kept if requested)
    return reduced


def put_refused(response: ProtoMessage, names: Iterable[str], refused: Sequence[Error | None]) -> None:
    """Inserts the errors of denied items into the response to the rest: one result per item of the complete request."""
    results: list[ProtoMessage] = list(response.results)  # type: ignore[attr-defined]  # answers to such changes have it
    answered = iter(results)
    response.ClearField("results")
    for name, problem in zip(names, refused, strict=True):
        if problem is None:
            response.results.append(next(answered))  # type: ignore[attr-defined]
        else:
            response.results.add(name=name, error=problem)  # type: ignore[attr-defined]
