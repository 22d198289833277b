"""Decides what a principal may do, by the node's own metadata image.

Super users may do everything. For all others: what a rule denies is denied, whatever others allow; what a rule allows
is allowed; everything else is refused. To allow Read, Write, Delete or Alter allows Describe as well, and to allow
AlterConfigs allows DescribeConfigs. To deny them denies nothing else. These are Kafka's rules, without its host column
and without its setting that lets everybody in where there is no rule.
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

#: Operations of which each implies another where it is allowed.
_IMPLYING: dict[AclOperation.ValueType, frozenset[AclOperation.ValueType]] = {
    ACL_OPERATION_DESCRIBE: frozenset(
        (ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_OPERATION_DELETE, ACL_OPERATION_ALTER)
    ),
    ACL_OPERATION_DESCRIBE_CONFIGS: frozenset((ACL_OPERATION_ALTER_CONFIGS,)),
}
#: Decisions that are remembered. Past it all are forgotten: a client may name any number of things. Those about names
#: that no rule could name are not remembered, because of how long they may be.
_MOST_REMEMBERED = 100_000


class TopicAccess(Enum):
    """What a topic is for a principal that would do something to it."""

    ALLOWED = "they may do it"
    REFUSED = "they may know of it, and not do that"
    HIDDEN = "they may not know whether it exists"


class Authorizer:
    """Decides what principals may do.

    Arguments:
        options: whether anybody is asked for permission, and who needs none.
        current: where the rules are found.
    """

    def __init__(self, options: AuthorizationOptions, current: CurrentImage) -> None:
        self._options = options
        self._current = current
        self._decided: dict[tuple[str, int, int, str], bool] = {}
        self._decided_by: AccessControlLists | None = None
        self._decided_at = 0

    @property
    def enforced(self) -> bool:
        """Whether anybody is asked for permission."""
        return self._options.enabled

    @property
    def version(self) -> int:
        """Grows whenever the rules change: what was decided before may be decided otherwise now."""
        return self._current.image.acls.index

    def is_super_user(self, principal: str) -> bool:
        """Whether no rule counts for them."""
        return (principal or ANONYMOUS) in self._options.super_users

    # -- with the switch ------------------------------------------------------------------------------------------

    def may(
        self,
        principal: str,
        operation: AclOperation.ValueType,
        kind: AclResourceType.ValueType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Whether a principal may do something to a resource. Everybody may where nobody is asked for permission."""
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
        """What was decided by the rules as they are now."""
        acls = self._current.image.acls
        if acls is not self._decided_by or acls.index != self._decided_at or len(self._decided) >= _MOST_REMEMBERED:
            self._decided = {}
            self._decided_by, self._decided_at = acls, acls.index
        return self._decided

    def topic_access(self, principal: str, operation: AclOperation.ValueType, name: str) -> TopicAccess:
        """What a topic, whether or not it exists, is for a principal."""
        if self.may(principal, operation, ACL_RESOURCE_TOPIC, name):
            return TopicAccess.ALLOWED
        sees = self.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, name)
        return TopicAccess.REFUSED if sees else TopicAccess.HIDDEN

    def sees_topic(self, principal: str, name: str) -> bool:
        """Whether a principal may know of a topic."""
        return self.may(principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, name)

    def may_be_given_an_identity(self, principal: str) -> bool:
        """Whether a principal may have an identity for an idempotent producer: who may write to any topic has a use for
        one."""
        if self.may(principal, ACL_OPERATION_IDEMPOTENT_WRITE, ACL_RESOURCE_CLUSTER):
            return True
        decided = self._decisions()
        # No topic has the empty name: it stands for some topic or other.
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
        """Whether a principal may do something, were everybody asked for permission."""
        if self.is_super_user(principal):
            return True
        rule = self.deciding_rule(principal, operation, kind, name)
        return rule is not None and not rule.denies

    def deciding_rule(
        self, principal: str, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
    ) -> AclRule | None:
        """The rule that decides for somebody who is no super user, the first in order of those that do; None: none
        does, and they may not."""
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
        """Whether there may be a topic to which a principal may write: some rule allows it, and no other that is about
        at least the same names denies it."""
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
    """Whether a rule is about every name that another one is about."""
    if wide.is_for_every_name:
        return True
    if narrow.is_for_every_name:
        return False
    if wide.pattern_type == ACL_PATTERN_PREFIXED:
        return narrow.resource_name.startswith(wide.resource_name)
    return narrow.pattern_type != ACL_PATTERN_PREFIXED and narrow.resource_name == wide.resource_name
