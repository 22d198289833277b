"""Who may do what: rules and filters, with the names of Kafka's Python clients. There is no host in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ResourceType(Enum):
    """What a rule is about. ``ANY`` is for filters."""

    ANY = "ANY"
    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    PRODUCER_NAME = "PRODUCER_NAME"


class ACLResourcePatternType(Enum):
    """Which names a rule is about: the very one, or all that begin with it. ``ANY`` and ``MATCH`` are for filters;
    ``MATCH`` means all rules that concern a resource of the given name."""

    ANY = "ANY"
    MATCH = "MATCH"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class ACLOperation(Enum):
    """What somebody does. ``ANY`` is for filters, ``ALL`` for rules."""

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
    """Whether a rule allows or denies. ``ANY`` is for filters."""

    ANY = "ANY"
    DENY = "DENY"
    ALLOW = "ALLOW"


#: The name of the one cluster.
CLUSTER_NAME = "kafka-cluster"


@dataclass(slots=True, frozen=True)
class ResourcePattern:
    """What a rule is about.

    Arguments:
        resource_name: the name, the beginning of names, or ``*`` (literal) for all; of the cluster ``kafka-cluster``.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL


@dataclass(slots=True, frozen=True)
class ResourcePatternFilter:
    """Which resources rules are about that are meant; a name of None: whichever."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.ANY


@dataclass(slots=True, frozen=True)
class ACL:
    """One rule.

    Arguments:
        principal: ``User:`` and a name, or ``User:*`` for everybody.
    """

    principal: str
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePattern


@dataclass(slots=True, frozen=True)
class ACLFilter:
    """Which rules are meant; a principal of None: whoever's."""

    principal: str | None = None
    operation: ACLOperation = ACLOperation.ANY
    permission_type: ACLPermissionType = ACLPermissionType.ANY
    resource_pattern: ResourcePatternFilter = field(default_factory=ResourcePatternFilter)


@dataclass(slots=True, frozen=True)
class ACLDecision:
    """What somebody may do, as one node decides.

    Arguments:
        allowed: whether they may.
        rule: that decides; None where none does.
        super_user: no rule counts for them.
        enforced: whether the node asks anybody for permission.
    """

    allowed: bool
    rule: ACL | None
    super_user: bool
    enforced: bool
