"""Administration of credentials: users with passwords, and revoked certificates and principals."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from quorumlog.sdk.arguments import is_text
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.credentials import (
    AlteredUsers,
    Revocation,
    UserScramCredential,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.runtime.passwords import new_password
from quorumlog.v1 import credentials_pb2
from quorumlog.wire.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.wire.scram import MAX_ITERATIONS, MIN_ITERATIONS, MIN_SALT_BYTES, salted_keys

#: A change of a user.
UserAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class CredentialAdmin(ABC):
    """The part of :class:`AsyncAdmin` for users and revocations.

    Attributes:
        _limit_s: time limit of one call, in seconds.
    """

    _cluster: Cluster
    _limit_s: float

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def alter_user_scram_credentials(self, alterations: Iterable[UserAlteration]) -> AlteredUsers:
        """Creates, changes and deletes users; see :meth:`quorumlog.sdk.Admin.alter_user_scram_credentials`."""
        self._check_usable()
        checked = _checked_alterations(alterations)
        upsertions = [each for each in checked if isinstance(each, UserScramCredentialUpsertion)]
        request = credentials_pb2.AlterUserScramCredentialsRequest(
            upsertions=[await self._cluster.runtime.run_blocking(_credential, each) for each in upsertions],
            deletions=[each.user for each in checked if isinstance(each, UserScramCredentialDeletion)],
            timeout_ms=self._timeout_ms,
        )

        async def attempt() -> credentials_pb2.AlterUserScramCredentialsResponse:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.AlterUserScramCredentials(request, timeout=limit)
            )

        answer = await self._cluster.retrying(attempt, self._limit_s, "alter_user_scram_credentials")
        return AlteredUsers(answer.created, answer.deleted)

    async def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """Returns the users who authenticate by password; see
        :meth:`quorumlog.sdk.Admin.describe_user_scram_credentials`.
        """
        self._check_usable()
        names = None if users is None else _checked_texts(users, "users")
        if names == []:
            return []
        request = credentials_pb2.DescribeUserScramCredentialsRequest(users=names, timeout_ms=self._timeout_ms)

        async def attempt() -> credentials_pb2.DescribeUserScramCredentialsResponse:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.DescribeUserScramCredentials(request, timeout=limit)
            )

        answer = await self._cluster.retrying(attempt, self._limit_s, "describe_user_scram_credentials")
        return [UserScramCredential(u.user, u.iterations, u.for_super_user, u.changed_ms) for u in answer.users]

    async def revoke(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Revokes certificates and principals; see :meth:`quorumlog.sdk.Admin.revoke`."""
        answer = await self._alter_revocations(revoke=_checked_subjects(serials, principals))
        return answer.revoked

    async def restore(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Cancels revocations; see :meth:`quorumlog.sdk.Admin.restore`."""
        answer = await self._alter_revocations(restore=_checked_subjects(serials, principals))
        return answer.restored

    async def describe_revocations(self) -> list[Revocation]:
        """Returns all revocations; see :meth:`quorumlog.sdk.Admin.describe_revocations`."""
        self._check_usable()
        request = credentials_pb2.DescribeRevocationsRequest(timeout_ms=self._timeout_ms)

        async def attempt() -> credentials_pb2.DescribeRevocationsResponse:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.DescribeRevocations(request, timeout=limit)
            )

        answer = await self._cluster.retrying(attempt, self._limit_s, "describe_revocations")
        return [Revocation(each.serial or None, each.principal or None, each.revoked_ms) for each in answer.revocations]

    async def _alter_revocations(
        self,
        revoke: Sequence[credentials_pb2.Revocation] = (),
        restore: Sequence[credentials_pb2.Revocation] = (),
    ) -> credentials_pb2.AlterRevocationsResponse:
        self._check_usable()
        request = credentials_pb2.AlterRevocationsRequest(revoke=revoke, restore=restore, timeout_ms=self._timeout_ms)

        async def attempt() -> credentials_pb2.AlterRevocationsResponse:
            return await self._cluster.ask_any(lambda node, limit: node.admin.AlterRevocations(request, timeout=limit))

        return await self._cluster.retrying(attempt, self._limit_s, "the change of revocations")

    @property
    def _timeout_ms(self) -> int:
        return int(self._limit_s * 1000)


# -- arguments --------------------------------------------------------------------------------------------------------


def _checked_alterations(alterations: Iterable[UserAlteration]) -> list[UserAlteration]:
    """Returns validated alterations. Messages never quote an invalid one, which may contain a password."""
    if isinstance(alterations, str | bytes | UserAlteration) or not isinstance(alterations, Iterable):
        raise IllegalArgumentError("alterations: give a list of UserScramCredentialUpsertion or ...Deletion")
    checked = list(alterations)
    if not 1 <= len(checked) <= MAX_CREDENTIALS_CHANGED:
        raise IllegalArgumentError(f"alterations has {len(checked)} items: give 1 to {MAX_CREDENTIALS_CHANGED}")
    for each in checked:
        if not isinstance(each, UserAlteration):
            raise IllegalArgumentError(
                f"alterations holds a {type(each).__name__}: give UserScramCredentialUpsertion or ...Deletion"
            )
        if not isinstance(each.user, str) or not is_text(each.user):
            raise IllegalArgumentError(f"user {each.user!r:.80} is not text, such as alice")
        if isinstance(each, UserScramCredentialUpsertion):
            new_password(each.password)
            _check_iterations(each.iterations)
    return checked


def _check_iterations(iterations: int) -> None:
    is_count = isinstance(iterations, int) and not isinstance(iterations, bool)
    if not is_count or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise IllegalArgumentError(
            f"iterations is {iterations!r:.40}: give a whole number from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )


def _checked_texts(texts: Iterable[str], name: str) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise IllegalArgumentError(f"{name} is {texts!r:.80}: give a list of texts")
    checked = list(texts)
    for text in checked:
        if not isinstance(text, str) or not is_text(text):
            raise IllegalArgumentError(f"{name} holds {text!r:.80}, which is not text")
    checked = list(dict.fromkeys(checked))
    if len(checked) > MAX_CREDENTIALS_CHANGED:
        raise IllegalArgumentError(f"{name} has {len(checked)} items: give at most {MAX_CREDENTIALS_CHANGED}")
    return checked


def _checked_subjects(serials: Iterable[str], principals: Iterable[str]) -> list[credentials_pb2.Revocation]:
    checked = [
        *(credentials_pb2.Revocation(serial=each.lower()) for each in _checked_texts(serials, "serials")),
        *(credentials_pb2.Revocation(principal=each) for each in _checked_texts(principals, "principals")),
    ]
    if not checked:
        raise IllegalArgumentError("nothing is given: say which serials or principals")
    return checked


def _credential(upsertion: UserScramCredentialUpsertion) -> credentials_pb2.ScramCredential:
    """Returns the keys derived from a password, for the nodes."""
    salt = secrets.token_bytes(MIN_SALT_BYTES)
    keys = salted_keys(new_password(upsertion.password), salt, upsertion.iterations)
    return credentials_pb2.ScramCredential(
        user=upsertion.user,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
        for_super_user=bool(upsertion.for_super_user),
    )
