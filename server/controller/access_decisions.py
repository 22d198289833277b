"""Decisions on ACLs, users, revocations and quotas: requests are validated here, and take effect as commands of the
log."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from quorumlog.server.controller.decision import ControllerDecision, answer_now
from quorumlog.server.controller.feature_levels import refuse_below, refuse_below_second
from quorumlog.server.metadata.acl_rules import check_filter, check_rule
from quorumlog.server.metadata.client_quotas import check_quotas
from quorumlog.server.metadata.credentials import (
    UserPassword,
    check_revocations,
    check_users,
    needs_mechanisms,
    omit_unstored,
)
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.step.request_context import USER_PREFIX
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.acls_pb2 import CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterRevocationsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.quotas_pb2 import AlterClientQuotasRequest, AlterClientQuotasResponse
from quorumlog.wire.request_limits import MAX_ACL_FILTERS, MAX_ACLS_CHANGED
from quorumlog.wire.scram import ScramMechanism

_SALT_KEY_BYTES = 32


class AclDecisions:
    """Decides on the creation and deletion of ACLs.

    Arguments:
        image: the controller's image.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def create(self, wall_ms: int, number: int, request: CreateAclsRequest) -> ControllerDecision:
        """Decides on a request to create ACLs."""
        refused = (
            refuse_below_second(self._image, "ACLs are stored")
            or check_acl_creation(request)
            or self._image.acls.check_creation(request.acls)
        )
        if refused is not None:
            return answer_now(number, peer_pb2.ControllerResponse(create_acls=CreateAclsResponse(error=refused)))
        body = metadata_log_pb2.AclsCreated(acls=request.acls)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, acls_created=body)
        return ControllerDecision(number, commands=(command,))

    def delete(self, wall_ms: int, number: int, request: DeleteAclsRequest) -> ControllerDecision:
        """Decides on a request to delete ACLs."""
        refused = check_acl_deletion(request)
        if refused is None and not request.created_up_to:
            unsaid = "the request has no created_up_to: send it through a node, which adds it"
            refused = error(ErrorCode.INVALID_REQUEST, unsaid)
        if refused is not None:
            return answer_now(number, peer_pb2.ControllerResponse(delete_acls=DeleteAclsResponse(error=refused)))
        if not self._image.acls.meant(request.filters, request.created_up_to):
            return answer_now(number, peer_pb2.ControllerResponse(delete_acls=DeleteAclsResponse()))
        body = metadata_log_pb2.AclsDeleted(filters=request.filters, created_up_to=request.created_up_to)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, acls_deleted=body)
        return ControllerDecision(number, commands=(command,))


def check_acl_creation(request: CreateAclsRequest) -> Error | None:
    """Returns the error for ACLs that are invalid whatever ACLs exist, or None."""
    if not 1 <= len(request.acls) <= MAX_ACLS_CHANGED:
        problem = f"{len(request.acls)} ACLs in one request: send 1 to {MAX_ACLS_CHANGED}"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return next((refused for acl in request.acls if (refused := check_rule(acl)) is not None), None)


def check_acl_deletion(request: DeleteAclsRequest) -> Error | None:
    """Returns the error for filters that are invalid whatever ACLs exist, or None."""
    if not 1 <= len(request.filters) <= MAX_ACL_FILTERS:
        problem = f"{len(request.filters)} filters in one request: send 1 to {MAX_ACL_FILTERS}"
        return error(ErrorCode.INVALID_REQUEST, problem)
    return next((refused for each in request.filters if (refused := check_filter(each)) is not None), None)


class CredentialDecisions:
    """Decides on changes of users, and on revocations.

    Arguments:
        image: the controller's image.
        super_users: principals with all rights: no other principal may set or delete the password of one, and none can
            be revoked.
        rng: a cryptographically secure source.
    """

    def __init__(self, image: MetadataImage, super_users: Iterable[str], rng: random.Random) -> None:
        self._image = image
        self._super_users = frozenset(super_users)
        self._rng = rng

    def alter_users(
        self, wall_ms: int, number: int, principal: str, request: AlterUserScramCredentialsRequest
    ) -> ControllerDecision:
        """Decides on a request to create, change or delete users.

        Arguments:
            principal: the client's principal.
        """
        credentials = self._image.credentials
        refused = (
            refuse_below_second(self._image, "users with passwords are stored")
            or check_users(request)
            or fit_to_level(self._image, request)
            or self._refuse_super_users(principal, request)
            or credentials.check_users(request)
        )
        if refused is not None or not (request.upsertions or request.deletions):
            response = AlterUserScramCredentialsResponse(error=refused)
            return answer_now(number, peer_pb2.ControllerResponse(alter_user_scram_credentials=response))
        body = metadata_log_pb2.UsersAltered(
            upsertions=request.upsertions,
            deletions=request.deletions,
            deletion_mechanisms=request.deletion_mechanisms,
        )
        if not credentials.salt_key:
            body.salt_key = self._rng.randbytes(_SALT_KEY_BYTES)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, users_altered=body)
        return ControllerDecision(number, commands=(command,))

    def _refuse_super_users(self, principal: str, request: AlterUserScramCredentialsRequest) -> Error | None:
        """Returns the error if a principal may not alter these users; None if it may.

        Only a super user may set or delete the password of a super user, and must mark it as one: the name alone could
        be a coincidence.
        """
        known, may = self._image.credentials.users, principal in self._super_users
        for each in request.upsertions:
            is_named_so = f"{USER_PREFIX}{each.user}" in self._super_users
            if is_named_so and may and not each.for_super_user:
                return _of_super_user(
                    f"{each.user} is a super user's name: confirm its password with for_super_user (--super-user)"
                )
            held = _is_for_super_user(known.get(each.user, {}))
            if (is_named_so or each.for_super_user or held) and not may:
                return _of_super_user(f"only a super user sets a password for a super user, such as {each.user}")
        for name in request.deletions:
            if not may and _is_for_super_user(known.get(name, {})):
                return _of_super_user(f"only a super user deletes the password of a super user, such as {name}")
        return None

    def alter_revocations(self, wall_ms: int, number: int, request: AlterRevocationsRequest) -> ControllerDecision:
        """Decides on a request to revoke certificates and principals, or to restore them."""
        refused = (
            refuse_below_second(self._image, "revocations are stored")
            or check_revocations(request, self._super_users)
            or self._image.credentials.check_revocations(request.revoke, request.restore)
        )
        if refused is not None:
            response = AlterRevocationsResponse(error=refused)
            return answer_now(number, peer_pb2.ControllerResponse(alter_revocations=response))
        body = metadata_log_pb2.RevocationsAltered(revoke=request.revoke, restore=request.restore)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, revocations_altered=body)
        return ControllerDecision(number, commands=(command,))


def fit_to_level(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> Error | None:
    """Returns the error if the cluster cannot store passwords at its feature level, or None.

    Removes deletions without effect at that level; nothing may be left of the request.
    """
    if image.feature_level >= THIRD_FEATURE_LEVEL:
        return None
    if needs_mechanisms(request):
        return refuse_below(image, THIRD_FEATURE_LEVEL, "passwords for SCRAM-SHA-512 are stored")
    omit_unstored(request)
    return None


def _is_for_super_user(passwords: Mapping[ScramMechanism, UserPassword]) -> bool:
    return any(each.for_super_user for each in passwords.values())


def _of_super_user(problem: str) -> Error:
    return error(ErrorCode.POLICY_VIOLATION, problem)


def decide_on_quotas(
    image: MetadataImage, wall_ms: int, number: int, request: AlterClientQuotasRequest
) -> ControllerDecision:
    """Decides on a request to change quotas.

    Arguments:
        image: the controller's image.
        wall_ms: milliseconds since the epoch.
        number: id of the request.
    """
    refused = (
        refuse_below_second(image, "quotas are stored")
        or check_quotas(request)
        or image.client_quotas.check(request.alterations)
    )
    if refused is not None:
        response = AlterClientQuotasResponse(error=refused)
        return answer_now(number, peer_pb2.ControllerResponse(alter_client_quotas=response))
    if request.validate_only:
        return answer_now(number, peer_pb2.ControllerResponse(alter_client_quotas=AlterClientQuotasResponse()))
    body = metadata_log_pb2.ClientQuotasAltered(alterations=request.alterations)
    command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, client_quotas_altered=body)
    return ControllerDecision(number, commands=(command,))
