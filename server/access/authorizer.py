"""Decides what a principal may do, using the node's own metadata image.

Super users may do everything. For all other principals: a matching deny takes precedence over any allow; without
either, the operation is denied. Allowing Read, Write, Delete or Alter also allows Describe, and allowing AlterConfigs
also allows DescribeConfigs. Denying them denies nothing else. These are Kafka's rules, without its host column and
without its setting that allows everything if no ACL is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from quorumlog.server.config.options import AuthorizationOptions
from quorumlog.server.metadata.acl_rules import CLUSTER_NAME, MAX_NAME_LENGTH, AclRule
from quorumlog.server.metadata.acls import AccessControlLists
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.request_context import ANONYMOUS, EVERYBODY
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALL,
    ACL_OPERATION_ALTER,
    ACL_OPERATION_ALTER_CONFIGS,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_IDEMPOTENT_WRITE,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_PATTERN_PREFIXED,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_TOPIC,
    AclOperation,
    AclResourceType,
)

#: By operation: the operations that imply it when they are allowed.
_IMPLYING: dict[AclOperation.ValueType, frozenset[AclOperation.ValueType]] = {
    ACL_OPERATION_DESCRIBE: frozenset(
        (ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_OPERATION_DELETE, ACL_OPERATION_ALTER)
    ),
    ACL_OPERATION_DESCRIBE_CONFIGS: frozenset((ACL_OPERATION_ALTER_CONFIGS,)),
}
#: Maximum number of cached decisions; beyond it the cache is cleared, because a client may name any number of
#: resources. Names too long for any ACL are not cached, to bound the memory.
_MOST_REMEMBERED = 100_000


class TopicAccess(Enum):
    """A principal's access to a topic for one operation."""

    ALLOWED = "allowed"
    REFUSED = "visible, but the operation is denied"
    HIDDEN = "the principal must not learn whether it exists"


class Authorizer:
    """Decides what principals may do.

    Arguments:
        options: whether authorization is enabled, and the super users.
        current: contains the ACLs.
    """

    def __init__(self, options: AuthorizationOptions, current: CurrentImage) -> None:
        self._options = options
        self._current = current
        self._decided: dict[tuple[str, int, int, str], bool] = {}
        self._decided_by: AccessControlLists | None = None
        self._decided_at = 0

    @property
    def enforced(self) -> bool:
        """True if authorization is enabled."""
        return self._options.enabled

    @property
    def version(self) -> int:
        """Grows whenever the ACLs change, which invalidates earlier decisions."""
        return self._current.image.acls.index

    def is_super_user(self, principal: str) -> bool:
        """True if a principal is not subject to ACLs."""
        return (principal or ANONYMOUS) in self._options.super_users

    # -- with the switch ------------------------------------------------------------------------------------------

    def may(
        self,
        principal: str,
        operation: AclOperation.ValueType,
        kind: AclResourceType.ValueType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """True if a principal may perform an operation on a resource, or authorization is disabled."""
        if not self._options.enabled:
            return True
        if len(name) > MAX_NAME_LENGTH:
            return self.decide(principal, operation, kind, name)
        remembered = self._decisions()
        key = (principal, operation, kind, name)
        known = remembered.get(key)
        if known is None:
            known = remembered[key] = self.decide(principal, operation, kind, name)
        return known

    def _decisions(self) -> dict[tuple[str, int, int, str], bool]:
        """Returns the cache of decisions based on the current ACLs."""
        acls = self._current.image.acls
        if acls is not self._decided_by or acls.index != self._decided_at or len(self._decided) >= _MOST_REMEMBERED:
            self._decided = {}
            self._decided_by, self._decided_at = acls, acls.index
        return self._decided

    def topic_access(self, principal: str, operation: AclOperation.ValueType, name: str) -> TopicAccess:
        """Returns a principal's access to a topic, whether or not the topic exists."""
        if self.may(principal, operation, ACL_RESOURCE_TOPIC, name):
            return TopicAccess.ALLOWED
        sees = self.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, name)
        return TopicAccess.REFUSED if sees else TopicAccess.HIDDEN

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may learn that a topic exists."""
        return self.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, name)

    def may_be_given_an_identity(self, principal: str) -> bool:
        """True if a principal may get an identity for an idempotent producer, which needs IdempotentWrite on the
        cluster, or Write on any topic."""
        if self.may(principal, ACL_OPERATION_IDEMPOTENT_WRITE, ACL_RESOURCE_CLUSTER):
            return True
        decided = self._decisions()
        # No topic has the empty name, so it is the key for "any topic".
        key = (principal, ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, "")
        known = decided.get(key)
        if known is None:
            known = decided[key] = self._may_write_somewhere(principal)
        return known

    # -- the decision ---------------------------------------------------------------------------------------------

    def decide(
        self,
        principal: str,
        operation: AclOperation.ValueType,
        kind: AclResourceType.ValueType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """True if a principal may perform an operation; assumes that authorization is enabled."""
        if self.is_super_user(principal):
            return True
        rule = self.deciding_rule(principal, operation, kind, name)
        return rule is not None and not rule.denies

    def deciding_rule(
        self, principal: str, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
    ) -> AclRule | None:
        """Returns the ACL that decides for a principal that is not a super user, the first in order if several do;
        None: the operation is denied by default."""
        implying = _IMPLYING.get(operation, frozenset())
        allowing: list[AclRule] = []
        denying: list[AclRule] = []
        for rule in self._rules_for(principal, kind, name):
            if rule.denies:
                if rule.operation in (operation, ACL_OPERATION_ALL):
                    denying.append(rule)
            elif rule.operation in (operation, ACL_OPERATION_ALL) or rule.operation in implying:
                allowing.append(rule)
        return min(denying or allowing, default=None)

    def _rules_for(self, principal: str, kind: AclResourceType.ValueType, name: str) -> Iterator[AclRule]:
        who = (principal or ANONYMOUS, EVERYBODY)
        return (rule for rule in self._current.image.acls.concerning(kind, name) if rule.principal in who)

    def _may_write_somewhere(self, principal: str) -> bool:
        """True if a principal may be able to write to some topic: an ACL allows it, and no other that covers at
        least the same names denies it."""
        who = (principal or ANONYMOUS, EVERYBODY)
        operations = (ACL_OPERATION_WRITE, ACL_OPERATION_ALL)
        rules = [
            rule
            for rule in self._current.image.acls.of_type(ACL_RESOURCE_TOPIC)
            if rule.principal in who and rule.operation in operations
        ]
        denying = [rule for rule in rules if rule.denies]
        return any(not rule.denies and not any(_covers(each, rule) for each in denying) for rule in rules)


def _covers(wide: AclRule, narrow: AclRule) -> bool:
    """True if an ACL applies to every name that another one applies to."""
    if wide.is_for_every_name:
        return True
    if narrow.is_for_every_name:
        return False
    if wide.pattern_type == ACL_PATTERN_PREFIXED:
        return narrow.resource_name.startswith(wide.resource_name)
    return narrow.pattern_type != ACL_PATTERN_PREFIXED and narrow.resource_name == wide.resource_name
