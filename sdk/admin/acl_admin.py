"""Creates, lists, deletes and checks ACLs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from quorumlog.sdk.acls import (
    ACL,
    ACLDecision,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from quorumlog.sdk.arguments import is_text
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.v1 import acls_pb2
from quorumlog.wire.request_limits import MAX_ACL_FILTERS, MAX_ACLS_CHANGED

ItemT = TypeVar("ItemT")


class AclAdmin(ABC):
    """The part of :class:`AsyncAdmin` for ACLs.

    Attributes:
        _limit_s: time limit of one call, in seconds.
    """

    _cluster: Cluster
    _limit_s: float

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def create_acls(self, acls: Iterable[ACL]) -> int:
        """Creates ACLs; see :meth:`quorumlog.sdk.Admin.create_acls`."""
        self._check_usable()
        created = 0
        for part in in_parts(checked_rules(acls), MAX_ACLS_CHANGED):
            request = acls_pb2.CreateAclsRequest(acls=map(_acl, part), timeout_ms=int(self._limit_s * 1000))

            async def attempt(request: acls_pb2.CreateAclsRequest = request) -> acls_pb2.CreateAclsResponse:
                return await self._cluster.ask_any(lambda node, limit: node.admin.CreateAcls(request, timeout=limit))

            created += (await self._cluster.retrying(attempt, self._limit_s, "create_acls")).created
        return created

    async def describe_acls(self, acl_filter: ACLFilter | None = None) -> list[ACL]:
        """Returns the ACLs that match a filter; see :meth:`quorumlog.sdk.Admin.describe_acls`."""
        self._check_usable()
        wanted = checked_filter(ACLFilter() if acl_filter is None else acl_filter)
        return [_rule(each) for each in (await self._describe_acls(wanted)).acls]

    async def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[ACL]:
        """Deletes the ACLs that match any of the filters; see :meth:`quorumlog.sdk.Admin.delete_acls`.

        ACLs that are created during the call stay, however often the request is repeated.
        """
        self._check_usable()
        filters = checked_filters(acl_filters)
        matched: dict[ACL, None] = {}
        as_of = 0
        for wanted in filters:
            found = await self._describe_acls(wanted)
            matched.update(dict.fromkeys(map(_rule, found.acls)))
            as_of = max(as_of, found.applied_index)
        for part in in_parts(filters, MAX_ACL_FILTERS):
            request = acls_pb2.DeleteAclsRequest(
                filters=map(_filter, part), timeout_ms=int(self._limit_s * 1000), created_up_to=as_of
            )

            async def attempt(request: acls_pb2.DeleteAclsRequest = request) -> acls_pb2.DeleteAclsResponse:
                return await self._cluster.ask_any(lambda node, limit: node.admin.DeleteAcls(request, timeout=limit))

            await self._cluster.retrying(attempt, self._limit_s, "delete_acls")
        return list(matched)

    async def check_acl(
        self, operation: ACLOperation, resource: ResourcePattern, *, principal: str | None = None
    ) -> ACLDecision:
        """Returns whether a principal has a permission, and the ACL that decides; see
        :meth:`quorumlog.sdk.Admin.check_acl`.
        """
        self._check_usable()
        operation, resource = checked_operation(operation), checked_resource(resource)
        request = acls_pb2.CheckAclsRequest(
            principal=checked_principal(principal) or "",
            operation=acls_pb2.AclOperation.Value(f"ACL_OPERATION_{operation.value}"),
            resource_type=acls_pb2.AclResourceType.Value(f"ACL_RESOURCE_{resource.resource_type.value}"),
            resource_name=resource.resource_name,
        )

        async def attempt() -> acls_pb2.CheckAclsResponse:
            return await self._cluster.ask_any(lambda node, limit: node.admin.CheckAcls(request, timeout=limit))

        answer = await self._cluster.retrying(attempt, self._limit_s, "check_acl")
        rule = _rule(answer.rule) if answer.HasField("rule") else None
        return ACLDecision(answer.allowed, rule, answer.super_user, answer.enforced)

    async def _describe_acls(self, wanted: ACLFilter) -> acls_pb2.DescribeAclsResponse:
        request = acls_pb2.DescribeAclsRequest(filter=_filter(wanted), timeout_ms=int(self._limit_s * 1000))

        async def attempt() -> acls_pb2.DescribeAclsResponse:
            return await self._cluster.ask_any(lambda node, limit: node.admin.DescribeAcls(request, timeout=limit))

        return await self._cluster.retrying(attempt, self._limit_s, "describe_acls")


# -- arguments --------------------------------------------------------------------------------------------------------


def checked_rules(rules: Iterable[ACL]) -> list[ACL]:
    """Returns validated ACLs without duplicates.

    Raises:
        IllegalArgumentError: one is not an ACL.
    """
    return _checked(rules, ACL, "acls", checked_rule)


def checked_filters(filters: Iterable[ACLFilter]) -> list[ACLFilter]:
    """Returns validated filters without duplicates.

    Raises:
        IllegalArgumentError: one is not an ACL filter.
    """
    return _checked(filters, ACLFilter, "acl_filters", checked_filter)


def _checked(items: Iterable[ItemT], kind: type[ItemT], name: str, check: Callable[[ItemT], ItemT]) -> list[ItemT]:
    if isinstance(items, str | bytes | kind) or not isinstance(items, Iterable):
        raise IllegalArgumentError(f"{name} is {items!r:.80}: give a list of {kind.__name__}")
    checked = list(dict.fromkeys(map(check, items)))
    if not checked:
        raise IllegalArgumentError(f"{name} is empty: give at least one {kind.__name__}")
    return checked


def checked_rule(rule: ACL) -> ACL:
    """Returns a validated ACL.

    Raises:
        IllegalArgumentError: it is not an ACL.
    """
    if not isinstance(rule, ACL):
        raise IllegalArgumentError(
            f"{rule!r:.80} is not an ACL: give a principal, an operation, a permission and a resource"
        )
    if not _is_text(rule.principal):
        raise IllegalArgumentError(f"principal {rule.principal!r:.80} is not text, such as User:alice")
    _check_kinds((rule.operation, ACLOperation), (rule.permission_type, ACLPermissionType))
    checked_resource(rule.resource_pattern)
    return rule


def checked_resource(resource: ResourcePattern) -> ResourcePattern:
    """Returns a validated resource.

    Raises:
        IllegalArgumentError: it is not a ResourcePattern.
    """
    if not isinstance(resource, ResourcePattern):
        raise IllegalArgumentError(f"{resource!r:.80} is not a ResourcePattern: give a type and a name")
    if not _is_text(resource.resource_name):
        raise IllegalArgumentError(f"resource name {resource.resource_name!r:.80} is not text")
    _check_kinds((resource.resource_type, ResourceType), (resource.pattern_type, ACLResourcePatternType))
    return resource


def checked_filter(wanted: ACLFilter) -> ACLFilter:
    """Returns a validated filter.

    Raises:
        IllegalArgumentError: it is not an ACLFilter.
    """
    if not isinstance(wanted, ACLFilter) or not isinstance(wanted.resource_pattern, ResourcePatternFilter):
        raise IllegalArgumentError(f"{wanted!r:.80} is not an ACLFilter with a ResourcePatternFilter")
    pattern = wanted.resource_pattern
    for name, value in (("principal", wanted.principal), ("resource name", pattern.resource_name)):
        if value is not None and not _is_text(value):
            raise IllegalArgumentError(f"{name} {value!r:.80} is not text, or None for any")
    _check_kinds(
        (wanted.operation, ACLOperation),
        (wanted.permission_type, ACLPermissionType),
        (pattern.resource_type, ResourceType),
        (pattern.pattern_type, ACLResourcePatternType),
    )
    return wanted


def checked_operation(operation: ACLOperation) -> ACLOperation:
    """Returns a validated operation.

    Raises:
        IllegalArgumentError: it is not an ACLOperation.
    """
    _check_kinds((operation, ACLOperation))
    return operation


def checked_principal(principal: str | None) -> str | None:
    """Returns a validated principal.

    Raises:
        IllegalArgumentError: it is not text.
    """
    if principal is not None and not _is_text(principal):
        raise IllegalArgumentError(f"principal {principal!r:.80} is not text, such as User:alice")
    return principal


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_text(value)


def _check_kinds(*values: tuple[object, type[Enum]]) -> None:
    for value, kind in values:
        if not isinstance(value, kind):
            known = ", ".join(each.name for each in kind)
            raise IllegalArgumentError(f"{value!r:.80} is not a valid {kind.__name__}: choose from {known}")


# -- messages ---------------------------------------------------------------------------------------------------------


def _acl(rule: ACL) -> acls_pb2.Acl:
    pattern = rule.resource_pattern
    return acls_pb2.Acl(
        resource_type=acls_pb2.AclResourceType.Value(f"ACL_RESOURCE_{pattern.resource_type.value}"),
        resource_name=pattern.resource_name,
        pattern_type=acls_pb2.AclPatternType.Value(f"ACL_PATTERN_{pattern.pattern_type.value}"),
        principal=rule.principal,
        operation=acls_pb2.AclOperation.Value(f"ACL_OPERATION_{rule.operation.value}"),
        permission=acls_pb2.AclPermission.Value(f"ACL_PERMISSION_{rule.permission_type.value}"),
    )


def _filter(wanted: ACLFilter) -> acls_pb2.AclFilter:
    pattern = wanted.resource_pattern
    return acls_pb2.AclFilter(
        resource_type=acls_pb2.AclResourceType.Value(f"ACL_RESOURCE_{pattern.resource_type.value}"),
        resource_name=pattern.resource_name,
        pattern_type=acls_pb2.AclPatternType.Value(f"ACL_PATTERN_{pattern.pattern_type.value}"),
        principal=wanted.principal,
        operation=acls_pb2.AclOperation.Value(f"ACL_OPERATION_{wanted.operation.value}"),
        permission=acls_pb2.AclPermission.Value(f"ACL_PERMISSION_{wanted.permission_type.value}"),
    )


def _rule(acl: acls_pb2.Acl) -> ACL:
    pattern = ResourcePattern(
        ResourceType(acls_pb2.AclResourceType.Name(acl.resource_type).removeprefix("ACL_RESOURCE_")),
        acl.resource_name,
        ACLResourcePatternType(acls_pb2.AclPatternType.Name(acl.pattern_type).removeprefix("ACL_PATTERN_")),
    )
    return ACL(
        acl.principal,
        ACLOperation(acls_pb2.AclOperation.Name(acl.operation).removeprefix("ACL_OPERATION_")),
        ACLPermissionType(acls_pb2.AclPermission.Name(acl.permission).removeprefix("ACL_PERMISSION_")),
        pattern,
    )
