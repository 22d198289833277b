"""Rights of principals, for tests of parts of a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.audit import AuditTrail
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.options import AuthorizationOptions
from quorumlog.server.metadata.image import CurrentImage, MetadataImage
from quorumlog.server.step.node_service import StepTime
from quorumlog.v1 import acls_pb2, metadata_log_pb2
from quorumlog.v1.acls_pb2 import ACL_PATTERN_LITERAL, ACL_PERMISSION_ALLOW, Acl, AclOperation, AclResourceType

#: Every user may do everything.
UNRESTRICTED = AuthorizationOptions()
#: No one may do anything that no rule allows, but User:root.
RESTRICTED = AuthorizationOptions(enabled=True, super_users=frozenset({"User:root"}))


def holder(image: MetadataImage) -> CurrentImage:
    """Returns a holder of an image that stays the same."""
    return cast(CurrentImage, SimpleNamespace(image=image))


def refusals_by(
    image: MetadataImage, options: AuthorizationOptions = UNRESTRICTED, time: StepTime | None = None
) -> Refusals:
    """Returns the ``Refusals`` that decide by the ACLs of an image."""
    current = holder(image)
    ages = SimpleNamespace(bound_ms=lambda now: 0)
    audit = AuditTrail(options.audited, time or StepTime(0, 0), current, ages)
    return Refusals(Authorizer(options, current), audit)


def rule(
    principal: str,
    operation: AclOperation.ValueType,
    kind: AclResourceType.ValueType,
    name: str,
    pattern: acls_pb2.AclPatternType.ValueType = ACL_PATTERN_LITERAL,
    permission: acls_pb2.AclPermission.ValueType = ACL_PERMISSION_ALLOW,
) -> Acl:
    """One rule."""
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        operation=operation,
        permission=permission,
    )


def allow(image: MetadataImage, *rules: Acl) -> None:
    """Has an image apply rules."""
    command = metadata_log_pb2.MetadataCommand(acls_created=metadata_log_pb2.AclsCreated(acls=rules))
    image.apply(image.applied_index + 1, command)


def withdraw(image: MetadataImage, *filters: acls_pb2.AclFilter) -> None:
    """Has an image take rules away."""
    body = metadata_log_pb2.AclsDeleted(filters=filters, created_up_to=image.applied_index)
    image.apply(image.applied_index + 1, metadata_log_pb2.MetadataCommand(acls_deleted=body))
