"""Denial of whole requests: those about the cluster, or about the one group or producer that they name."""

from __future__ import annotations

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import Refusals, not_authorized
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.access.permissions import Scope, permission_of
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import node_principal
from quorumlog.v1.acls_pb2 import ACL_RESOURCE_CLUSTER, ACL_RESOURCE_PRODUCER_NAME
from quorumlog.v1.admin_pb2 import NODE_ACTION_REPLACE_DISK, AlterNodeRequest
from quorumlog.v1.errors_pb2 import Error


def refuse_whole(refusals: Refusals, asked: ClientRequest) -> Error | None:
    """Returns the error if a client's request is denied as a whole, or None."""
    permission = permission_of(type(asked.message))
    if permission.scope is not Scope.WHOLE:
        return None
    assert permission.operation is not None and permission.kind is not None
    if _is_about_its_own_disk(asked.client.principal, asked.message):
        return None
    if permission.kind == ACL_RESOURCE_CLUSTER:
        return refusals.resource(asked.client, permission.operation, permission.kind)
    name: str
    if permission.kind == ACL_RESOURCE_PRODUCER_NAME:
        name = asked.message.transactional_id  # type: ignore[attr-defined]  # requests about one producer have it
    else:
        name = asked.message.group_id  # type: ignore[attr-defined]  # requests about one group have it
    return refusals.resource(asked.client, permission.operation, permission.kind, name)


def refuse_forwarded(authorizer: Authorizer, principal: str, message: ProtoMessage) -> Error | None:
    """Returns the error if the controller denies a request forwarded by another node as a whole, or None."""
    permission = permission_of(type(message))
    if permission.scope is not Scope.WHOLE or _is_about_its_own_disk(principal, message):
        return None
    assert permission.operation is not None and permission.kind is not None
    if authorizer.may(principal, permission.operation, permission.kind):
        return None
    return not_authorized(principal, permission.operation, permission.kind, CLUSTER_NAME)


def _is_about_its_own_disk(principal: str, message: ProtoMessage) -> bool:
    """True if a node asks to give up its own disk: its certificate is sufficient permission."""
    return (
        isinstance(message, AlterNodeRequest)
        and message.action == NODE_ACTION_REPLACE_DISK
        and principal == node_principal(message.node_id)
    )
