"""ACLs and ACL filters, named as in Kafka's Python clients. They have no host."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ResourceType(Enum):
    """Type of resource that an ACL applies to. ``ANY`` is for filters."""

    ANY = "ANY"
    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    PRODUCER_NAME = "PRODUCER_NAME"


class ACLResourcePatternType(Enum):
    """Matching of names by an ACL: exactly, or by prefix.

    ``ANY`` and ``MATCH`` are for filters; ``MATCH`` selects all ACLs that apply to a resource of the given name.
    """

    ANY = "ANY"
    MATCH = "MATCH"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class ACLOperation(Enum):
    """Operation on a resource. ``ANY`` is for filters, ``ALL`` for ACLs."""

    ANY = "ANY"
    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


class ACLPermissionType(Enum):
    """Permission type of an ACL: allow or deny. ``ANY`` is for filters."""

    ANY = "ANY"
    DENY = "DENY"
    ALLOW = "ALLOW"


#: The name of the one cluster.
CLUSTER_NAME = "kafka-cluster"


@dataclass(slots=True, frozen=True)
class ResourcePattern:
    """The resources that an ACL applies to.

    Arguments:
        resource_name: the name, a prefix of names, or ``*`` (literal) for all; for the cluster ``kafka-cluster``.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL


@dataclass(slots=True, frozen=True)
class ResourcePatternFilter:
    """A filter by the resources of ACLs; a name of None matches every name."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.ANY


@dataclass(slots=True, frozen=True)
class ACL:
    """One access-control entry.

    Arguments:
        principal: ``User:`` and a name, or ``User:*`` for all users.
    """

    principal: str
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePattern


@dataclass(slots=True, frozen=True)
class ACLFilter:
    """A filter for ACLs; a principal of None matches every principal."""

    principal: str | None = None
    operation: ACLOperation = ACLOperation.ANY
    permission_type: ACLPermissionType = ACLPermissionType.ANY
    resource_pattern: ResourcePatternFilter = field(default_factory=ResourcePatternFilter)


@dataclass(slots=True, frozen=True)
class ACLDecision:
    """A node's decision about a permission.

    Arguments:
        allowed: True if the operation is permitted.
        rule: the ACL that decides; None if no ACL does.
        super_user: True if the principal is a super user, to whom no ACL applies.
        enforced: True if the node enforces ACLs at all.
    """

    allowed: bool
    rule: ACL | None
    super_user: bool
    enforced: bool
