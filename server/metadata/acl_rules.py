"""ACLs as values: validation, order, and matching against filters.

Names and meanings are Kafka's. An ACL names one principal or all of them, one resource, a prefix of names or all
resources, and one operation or all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.metadata.topic_table import refuse_spelling
from quorumlog.server.step.request_context import EVERYBODY, USER_PREFIX
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALL,
    ACL_OPERATION_ALTER,
    ACL_OPERATION_ALTER_CONFIGS,
    ACL_OPERATION_ANY,
    ACL_OPERATION_CREATE,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_IDEMPOTENT_WRITE,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_PATTERN_ANY,
    ACL_PATTERN_LITERAL,
    ACL_PATTERN_MATCH,
    ACL_PATTERN_PREFIXED,
    ACL_PERMISSION_ALLOW,
    ACL_PERMISSION_ANY,
    ACL_PERMISSION_DENY,
    ACL_RESOURCE_ANY,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    CheckAclsRequest,
)
from quorumlog.v1.errors_pb2 import ErrorCode

#: Matches every name in a literal pattern.
EVERY_NAME = "*"
#: The name of the only resource of its type.
CLUSTER_NAME = "kafka-cluster"
#: Maximum lengths of a principal and of a resource's name, in characters.
MAX_PRINCIPAL_LENGTH = 255
MAX_NAME_LENGTH = 249

#: The operations on each type of resource, and so the operations that its ACLs may name.
OPERATIONS: dict[AclResourceType.ValueType, frozenset[AclOperation.ValueType]] = {
    ACL_RESOURCE_TOPIC: frozenset(
        (
            ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_OPERATION_CREATE, ACL_OPERATION_DELETE, ACL_OPERATION_ALTER,
            ACL_OPERATION_DESCRIBE, ACL_OPERATION_DESCRIBE_CONFIGS, ACL_OPERATION_ALTER_CONFIGS,
        )
    ),
    ACL_RESOURCE_GROUP: frozenset((ACL_OPERATION_READ, ACL_OPERATION_DELETE, ACL_OPERATION_DESCRIBE)),
    ACL_RESOURCE_CLUSTER: frozenset(
        (
            ACL_OPERATION_CREATE, ACL_OPERATION_ALTER, ACL_OPERATION_DESCRIBE, ACL_OPERATION_DESCRIBE_CONFIGS,
            ACL_OPERATION_ALTER_CONFIGS, ACL_OPERATION_IDEMPOTENT_WRITE,
        )
    ),
    ACL_RESOURCE_PRODUCER_NAME: frozenset((ACL_OPERATION_WRITE, ACL_OPERATION_DELETE, ACL_OPERATION_DESCRIBE)),
}  # fmt: skip


class AclRule(NamedTuple):
    """One ACL. The fields are in the order in which lists are sorted."""

    resource_type: AclResourceType.ValueType
    resource_name: str
    pattern_type: AclPatternType.ValueType
    principal: str
    operation: AclOperation.ValueType
    permission: AclPermission.ValueType

    @property
    def denies(self) -> bool:
        """True if it denies."""
        return self.permission == ACL_PERMISSION_DENY

    @property
    def is_for_every_name(self) -> bool:
        """True if it applies to all resources of its type."""
        return self.pattern_type == ACL_PATTERN_LITERAL and self.resource_name == EVERY_NAME

    def concerns(self, name: str) -> bool:
        """True if it applies to a resource with this name."""
        if self.pattern_type == ACL_PATTERN_PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, EVERY_NAME)


def rule_of(acl: Acl) -> AclRule:
    """Returns the ACL in a message."""
    return AclRule(acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.operation, acl.permission)


def acl_of(rule: AclRule) -> Acl:
    """Returns the ACL as a message."""
    return Acl(**rule._asdict())


def is_meant(rule: AclRule, wanted: AclFilter) -> bool:
    """True if a filter matches an ACL."""
    if wanted.resource_type not in (ACL_RESOURCE_ANY, rule.resource_type):
        return False
    if wanted.operation not in (ACL_OPERATION_ANY, rule.operation):
        return False
    if wanted.permission not in (ACL_PERMISSION_ANY, rule.permission):
        return False
    if wanted.HasField("principal") and wanted.principal != rule.principal:
        return False
    if wanted.pattern_type == ACL_PATTERN_MATCH:
        return not wanted.HasField("resource_name") or rule.concerns(wanted.resource_name)
    if wanted.pattern_type not in (ACL_PATTERN_ANY, rule.pattern_type):
        return False
    return not wanted.HasField("resource_name") or wanted.resource_name == rule.resource_name


def shown(rule: AclRule) -> str:
    """Returns an ACL as one line, for messages and the audit log."""
    permission = "deny" if rule.denies else "allow"
    prefixed = "*" if rule.pattern_type == ACL_PATTERN_PREFIXED else ""
    return (
        f"{permission} {rule.principal} {operation_name(rule.operation)} on {resource_name(rule.resource_type)}"
        f" {rule.resource_name}{prefixed}"
    )


def operation_name(operation: AclOperation.ValueType) -> str:
    """Returns the readable name of an operation, such as Read or DescribeConfigs; for an unknown one its number."""
    known = operation in AclOperation.values()
    return _camel(AclOperation.Name(operation).removeprefix("ACL_OPERATION_")) if known else f"operation {operation}"


def resource_name(kind: AclResourceType.ValueType) -> str:
    """Returns the readable name of a type of resource, such as Topic or ProducerName; for an unknown one its number."""
    known = kind in AclResourceType.values()
    return _camel(AclResourceType.Name(kind).removeprefix("ACL_RESOURCE_")) if known else f"resource {kind}"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


# -- what makes sense ----------------------------------------------------------------------------------------------


def check_rule(acl: Acl) -> errors_pb2.Error | None:
    """Returns the error for an invalid ACL, or None."""
    problem = _problem_with_resource(acl) or _problem_with_principal(acl.principal)
    if problem is None and acl.permission not in (ACL_PERMISSION_ALLOW, ACL_PERMISSION_DENY):
        problem = "a rule allows or denies: say which"
    elif problem is None and acl.operation not in (ACL_OPERATION_ALL, *OPERATIONS[acl.resource_type]):
        possible = ", ".join(operation_name(each) for each in sorted(OPERATIONS[acl.resource_type]))
        problem = (
            f"no client can {operation_name(acl.operation)} a {resource_name(acl.resource_type)}: choose from All,"
            f" {possible}"
        )
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def _problem_with_resource(acl: Acl) -> str | None:
    if acl.resource_type not in OPERATIONS:
        return "a rule is about Topic, Group, Cluster or ProducerName: say which"
    if acl.pattern_type not in (ACL_PATTERN_LITERAL, ACL_PATTERN_PREFIXED):
        return "the pattern of a rule is literal or prefixed: say which"
    name = acl.resource_name
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        return f"resource name {name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
    if acl.resource_type == ACL_RESOURCE_CLUSTER and (acl.pattern_type, name) != (ACL_PATTERN_LITERAL, CLUSTER_NAME):
        return f"there is one cluster, and its name is {CLUSTER_NAME}: not {name[:40]!r}"
    if acl.resource_type == ACL_RESOURCE_TOPIC and name != EVERY_NAME:
        # No topic name can start like this, so an ACL that denies it would protect nothing.
        misspelt = refuse_spelling(name if acl.pattern_type == ACL_PATTERN_LITERAL else f"{name}-")
        if misspelt is not None:
            return misspelt.message
    if acl.pattern_type == ACL_PATTERN_PREFIXED and name == EVERY_NAME:
        return f"no name starts with {EVERY_NAME}: for all of them give the literal pattern {EVERY_NAME}"
    return None


def _problem_with_principal(principal: str) -> str | None:
    if len(principal) > MAX_PRINCIPAL_LENGTH or not principal.isprintable():
        return f"principal {principal[:40]!r} is not up to {MAX_PRINCIPAL_LENGTH} printable characters"
    if not principal.startswith(USER_PREFIX) or principal == USER_PREFIX:
        return f"principal {principal[:40]!r} is not {USER_PREFIX} and a name, or {EVERYBODY} for all users"
    return None


def check_question(question: CheckAclsRequest) -> errors_pb2.Error | None:
    """Returns the error for a question about an operation that no client can perform, or None."""
    acl = Acl(
        resource_type=question.resource_type,
        resource_name=question.resource_name,
        pattern_type=ACL_PATTERN_LITERAL,
        principal=question.principal or EVERYBODY,
        operation=question.operation,
        permission=ACL_PERMISSION_ALLOW,
    )
    if acl.operation == ACL_OPERATION_ALL:
        return error(ErrorCode.INVALID_REQUEST, "All is not a single operation: ask for one after the other")
    return check_rule(acl)


def check_filter(wanted: AclFilter) -> errors_pb2.Error | None:
    """Returns the error for an invalid filter, or None. A field that is not set would match no ACL."""
    unsaid = [
        name
        for name, value in (
            ("resource type", wanted.resource_type),
            ("pattern type", wanted.pattern_type),
            ("operation", wanted.operation),
            ("permission", wanted.permission),
        )
        if not value
    ]
    if unsaid:
        return error(ErrorCode.INVALID_REQUEST, f"the filter leaves its {unsaid[0]} unsaid: give ANY for whichever")
    if wanted.pattern_type == ACL_PATTERN_MATCH and not wanted.HasField("resource_name"):
        return error(ErrorCode.INVALID_REQUEST, "the pattern type MATCH needs a resource's name")
    return None
