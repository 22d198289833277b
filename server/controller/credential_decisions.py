"""Decisions on users and revocations: a request is checked here, and what it does is decided by the log."""

from __future__ import annotations

import random
from collections.abc import Iterable

from quorumlog.server.client_origin import USER_PREFIX
from quorumlog.server.controller.decision import ControllerDecision, answer_now
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.metadata.credential_checks import check_revocations, check_users
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterRevocationsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode

_SALT_KEY_BYTES = 32


class CredentialDecisions:
    """Decides on changes of users, and on revocations.

    Arguments:
        image: the controller's.
        super_users: principals that may do everything: nobody else gets or takes a password for one, or locks one out.
        rng: a source that nobody can guess.
    """

    def __init__(self, image: MetadataImage, super_users: Iterable[str], rng: random.Random) -> None:
        self._image = image
        self._super_users = frozenset(super_users)
        self._rng = rng

    def alter_users(
        self, wall_ms: int, number: int, principal: str, request: AlterUserScramCredentialsRequest
    ) -> ControllerDecision:
        """Somebody wants users to come, change or go.

        Arguments:
            principal: who.
        """
        credentials = self._image.credentials
        refused = (
            refuse_below_second(self._image, "users who sign in by password are kept")
            or check_users(request)
            or self._refuse_super_users(principal, request)
            or credentials.check_users(request.upsertions, request.deletions)
        )
        if refused is not None:
            response = AlterUserScramCredentialsResponse(error=refused)
            return answer_now(number, peer_pb2.ControllerResponse(alter_user_scram_credentials=response))
        body = metadata_log_pb2.UsersAltered(upsertions=request.upsertions, deletions=request.deletions)
        if not credentials.salt_key:
            body.salt_key = self._rng.randbytes(_SALT_KEY_BYTES)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, users_altered=body)
        return ControllerDecision(number, commands=(command,))

    def _refuse_super_users(self, principal: str, request: AlterUserScramCredentialsRequest) -> Error | None:
        """Why somebody who is no super user may not alter these users, or None. A super user says of each password that
        it is to be good for that: the name alone could be a coincidence."""
        known, may = self._image.credentials.users, principal in self._super_users
        for each in request.upsertions:
            is_named_so = f"{USER_PREFIX}{each.user}" in self._super_users
            if is_named_so and may and not each.for_super_user:
                return _of_super_user(f"{each.user} is a super user's name: say that its password is to be good for it")
            held = each.user in known and known[each.user].for_super_user
            if (is_named_so or each.for_super_user or held) and not may:
                return _of_super_user(f"only a super user sets a password for a super user, such as {each.user}")
        for name in request.deletions:
            if not may and name in known and known[name].for_super_user:
                return _of_super_user(f"only a super user takes away the password of a super user, such as {name}")
        return None

    def alter_revocations(self, wall_ms: int, number: int, request: AlterRevocationsRequest) -> ControllerDecision:
        """Somebody wants something to count no more, or again."""
        refused = (
            refuse_below_second(self._image, "revocations are kept")
            or check_revocations(request, self._super_users)
            or self._image.credentials.check_revocations(request.revoke, request.restore)
        )
        if refused is not None:
            response = AlterRevocationsResponse(error=refused)
            return answer_now(number, peer_pb2.ControllerResponse(alter_revocations=response))
        body = metadata_log_pb2.RevocationsAltered(revoke=request.revoke, restore=request.restore)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, revocations_altered=body)
        return ControllerDecision(number, commands=(command,))


def _of_super_user(problem: str) -> Error:
    return error(ErrorCode.POLICY_VIOLATION, problem)
