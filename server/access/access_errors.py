"""Errors for denied requests.

A topic that a client may not describe does not exist for it: the client gets exactly the error for a name, or an id,
that does not exist. Groups, producer names and the cluster are not secret: a client that may not use them gets an
authorization error, whether they exist or not.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.server.access.audit import AuditTrail
from quorumlog.server.access.authorizer import Authorizer, TopicAccess
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME, operation_name, resource_name
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_READ,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
    AclOperation,
    AclResourceType,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode

_CODES: dict[AclResourceType.ValueType, ErrorCode.ValueType] = {
    ACL_RESOURCE_TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ACL_RESOURCE_GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ACL_RESOURCE_CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ACL_RESOURCE_PRODUCER_NAME: ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED,
}


def not_authorized(
    principal: str, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
) -> Error:
    """Returns the error for a principal that lacks a permission."""
    what = resource_name(kind) if kind == ACL_RESOURCE_CLUSTER else f"{resource_name(kind)} {name}"
    problem = (
        f"{principal} has no permission for {operation_name(operation)} on {what}: an administrator can allow it"
        " (quorumlog acls create)"
    )
    return error(_CODES[kind], problem)


class Refusals:
    """Decides about requests, returns the errors for denied ones, and records them in the audit log.

    Attributes:
        authorizer: makes the decisions.
        audit: records the denials.
    """

    def __init__(self, authorizer: Authorizer, audit: AuditTrail) -> None:
        self.authorizer = authorizer
        self.audit = audit

    def topic(
        self, client: RequestContext, operation: AclOperation.ValueType, name: str, absent: Callable[[], Error]
    ) -> Error | None:
        """Returns the error if a client may not perform an operation on a topic, or None.

        Arguments:
            name: of a topic, whether or not it exists.
            absent: returns the error for a topic that does not exist.
        """
        access = self.authorizer.topic_access(client.principal, operation, name)
        if access is TopicAccess.ALLOWED:
            return None
        self.audit.refused(client, operation, ACL_RESOURCE_TOPIC, name)
        if access is TopicAccess.HIDDEN:
            return absent()
        return not_authorized(client.principal, operation, ACL_RESOURCE_TOPIC, name)

    def resource(
        self,
        client: RequestContext,
        operation: AclOperation.ValueType,
        kind: AclResourceType.ValueType,
        name: str = CLUSTER_NAME,
    ) -> Error | None:
        """Returns the error if a client may not perform an operation on a group, a producer name, the cluster, or a
        topic that it would create; None if it may."""
        if self.authorizer.may(client.principal, operation, kind, name):
            return None
        return self.refuse(client, operation, kind, name)

    def refuse(
        self, client: RequestContext, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
    ) -> Error:
        """Records a denial that has been decided elsewhere, and returns its error."""
        self.audit.refused(client, operation, kind, name)
        return not_authorized(client.principal, operation, kind, name)


class ClientTopics:
    """The topics that one client may see."""

    def __init__(self, refusals: Refusals, client: RequestContext) -> None:
        self._refusals = refusals
        self._client = client

    def sees(self, name: str) -> bool:
        """True if the client may see a topic; for the empty name, which no topic has: if it may see every topic."""
        return self._refusals.authorizer.sees_topic(self._client.principal, name)

    def refuse_reading(self, name: str, absent: Callable[[], Error]) -> Error | None:
        """Returns the error if the client may not read a topic, or None.

        Arguments:
            absent: returns the error for a topic that does not exist.
        """
        return self._refusals.topic(self._client, ACL_OPERATION_READ, name, absent)
