"""Creates, lists and deletes topics, ACLs and users, and aborts transactions, with the console's own rights in the
cluster.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quorumlog.console.changes.requests import BadChangeError, answering, body_of, text_of, whole
from quorumlog.console.shared_state import Json
from quorumlog.sdk import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    TransactionPlace,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.acls import CLUSTER_NAME
from quorumlog.sdk.aio import AsyncAdmin

#: Maximum number of ACLs, and of users, that a page shows.
MOST_LISTED = 2_000
#: Maximum number of settings of a new topic.
MOST_SETTINGS = 100
#: Values that only filters may have, not ACLs.
_FOR_FILTERS = (
    ResourceType.ANY,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ACLResourcePatternType.ANY,
    ACLResourcePatternType.MATCH,
)
_Kind = TypeVar("_Kind", bound=Enum)


class AdministrationEndpoints:
    """Endpoints for topics, ACLs, users and transactions. The cluster decides what the console may see and do.

    Arguments:
        allowed: True if changes are allowed.
    """

    def __init__(self, admin: AsyncAdmin, *, allowed: bool) -> None:
        self._admin = admin
        self._allowed = allowed

    def routes(self) -> list[Route]:
        """Returns the routes; those for changes only if they are allowed."""
        shown = [("/changes/acls", self.acls, ["GET"]), ("/changes/users", self.users, ["GET"])]
        changes = [
            ("/changes/topics", self.create_topic, ["POST"]),
            ("/changes/topics/delete", self.delete_topic, ["POST"]),
            ("/changes/acls", self.create_acl, ["POST"]),
            ("/changes/acls/delete", self.delete_acl, ["POST"]),
            ("/changes/users", self.set_password, ["POST"]),
            ("/changes/users/delete", self.delete_user, ["POST"]),
            ("/changes/transactions/abort", self.abort_transaction, ["POST"]),
        ]
        return [
            Route(path, answering(answer), methods=methods)
            for path, answer, methods in (shown + changes if self._allowed else shown)
        ]

    # -- topics ---------------------------------------------------------------------------------------------------

    async def create_topic(self, request: Request) -> Response:
        """Creates the topic ``name`` with ``partitions``, ``replicas`` (null: the default) and ``settings``; with
        ``validate_only`` it is only checked.
        """
        body = await body_of(request)
        settings, replicas = body.get("settings", {}), body.get("replicas")
        if not isinstance(settings, dict) or len(settings) > MOST_SETTINGS:
            raise BadChangeError(f"settings must be an object with at most {MOST_SETTINGS} names")
        if not all(isinstance(each, str) for each in settings.values()):
            raise BadChangeError("the value of a setting must be a string")
        topic = NewTopic(
            text_of(body, "name"),
            whole(body.get("partitions"), 1),
            -1 if replicas is None else whole(replicas, 1),
            settings,
        )
        await self._admin.create_topics([topic], validate_only=body.get("validate_only") is True)
        return Response(status_code=204)

    async def delete_topic(self, request: Request) -> Response:
        """Deletes the topic ``name`` with all its records, if ``typed`` is its name."""
        await self._admin.delete_topics([_typed(await body_of(request), "name")])
        return Response(status_code=204)

    # -- ACLs -----------------------------------------------------------------------------------------------------

    async def acls(self, request: Request) -> Response:
        """Lists the first ACLs, with their total number, and if authorization is enforced."""
        rules = await self._admin.describe_acls()
        cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
        decision = await self._admin.check_acl(ACLOperation.ALTER, cluster)
        listed: list[Json] = [_rule_thing(rule) for rule in rules[:MOST_LISTED]]
        return JSONResponse({"acls": listed, "total": len(rules), "enforced": decision.enforced})

    async def create_acl(self, request: Request) -> Response:
        """Creates an ACL from ``principal``, ``operation``, ``permission``, ``type``, ``name`` and ``pattern``."""
        created = await self._admin.create_acls([_rule(await body_of(request))])
        if not created:
            raise BadChangeError("this ACL exists already")
        return Response(status_code=204)

    async def delete_acl(self, request: Request) -> Response:
        """Deletes an ACL, if ``typed`` is its principal."""
        body = await body_of(request)
        _typed(body, "principal")
        rule = _rule(body)
        pattern = rule.resource_pattern
        only = ResourcePatternFilter(pattern.resource_type, pattern.resource_name, pattern.pattern_type)
        deleted = await self._admin.delete_acls([ACLFilter(rule.principal, rule.operation, rule.permission_type, only)])
        if not deleted:
            raise BadChangeError("this ACL no longer exists")
        return Response(status_code=204)

    # -- users ----------------------------------------------------------------------------------------------------

    async def users(self, request: Request) -> Response:
        """Lists the first passwords of users, one for each mechanism, with their total number."""
        found = await self._admin.describe_user_scram_credentials()
        listed: list[Json] = [
            {
                "user": each.user,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "for_super_user": each.for_super_user,
                "changed_ms": each.changed_ms,
            }
            for each in found[:MOST_LISTED]
        ]
        return JSONResponse({"users": listed, "total": len(found)})

    async def set_password(self, request: Request) -> Response:
        """Creates the user ``user`` with ``password``, or changes that user's password. It is hashed here."""
        body = await body_of(request)
        change = UserScramCredentialUpsertion(text_of(body, "user"), text_of(body, "password"))
        await self._admin.alter_user_scram_credentials([change])
        return Response(status_code=204)

    async def delete_user(self, request: Request) -> Response:
        """Deletes the user ``user``, if ``typed`` is the name."""
        user = _typed(await body_of(request), "user")
        done = await self._admin.alter_user_scram_credentials([UserScramCredentialDeletion(user)])
        if not done.deleted:
            raise BadChangeError(f"user {user[:80]!r} does not exist")
        return Response(status_code=204)

    # -- transactions ---------------------------------------------------------------------------------------------

    async def abort_transaction(self, request: Request) -> Response:
        """Aborts the transaction of ``id`` that started at ``term`` and ``index``, if ``typed`` is the id. A later
        transaction of that id is not aborted. ``everywhere``: all participants have the outcome.
        """
        body = await body_of(request)
        name = _typed(body, "id", "abort its transaction")
        place = TransactionPlace(whole(body.get("term")), whole(body.get("index")))
        return JSONResponse({"everywhere": await self._admin.abort_transaction(name, place)})


def _typed(body: dict[str, Any], field: str, purpose: str = "delete it") -> str:
    """Returns the name of the item to change; raises BadChangeError unless it was typed again for confirmation."""
    name = text_of(body, field)
    if body.get("typed") != name:
        raise BadChangeError(f"type {name[:80]!r} to {purpose}")
    return name


def _rule(body: dict[str, Any]) -> ACL:
    kind = _chosen(ResourceType, body, "type")
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else text_of(body, "name")
    pattern = ResourcePattern(kind, name, _chosen(ACLResourcePatternType, body, "pattern"))
    operation, permission = _chosen(ACLOperation, body, "operation"), _chosen(ACLPermissionType, body, "permission")
    return ACL(text_of(body, "principal"), operation, permission, pattern)


def _chosen(kind: type[_Kind], body: dict[str, Any], field: str) -> _Kind:
    known = [each for each in kind if each not in _FOR_FILTERS]
    for each in known:
        if each.value == body.get(field):
            return each
    raise BadChangeError(f"{field}: choose from {', '.join(str(each.value) for each in known)}")


def _rule_thing(rule: ACL) -> dict[str, Json]:
    return {
        "principal": rule.principal,
        "operation": rule.operation.value,
        "permission": rule.permission_type.value,
        "type": rule.resource_pattern.resource_type.value,
        "name": rule.resource_pattern.resource_name,
        "pattern": rule.resource_pattern.pattern_type.value,
    }
