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
from quorumlog.sdk.errors import IllegalArgumentError, UnsupportedVersionError
from quorumlog.sdk.runtime.passwords import new_password
from quorumlog.sdk.runtime.scram_client import number_of
from quorumlog.v1 import credentials_pb2
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.wire.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.wire.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    MIN_SALT_BYTES,
    ScramMechanism,
    salted_keys,
)

#: The feature level from which on a cluster stores passwords for SCRAM-SHA-512.
_BOTH_FROM_LEVEL = 3
_STORED_BY_ALL = (ScramMechanism.SHA_256,)
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
        deletions = [each for each in checked if isinstance(each, UserScramCredentialDeletion)]
        leaves_choice = any(each.mechanism is None for each in upsertions)
        mechanisms = await self._stored_mechanisms() if leaves_choice else ()
        try:
            answer = await self._alter_users(await self._hashed(upsertions, mechanisms), deletions)
        except UnsupportedVersionError:
            if len(mechanisms) < 2:
                raise
            # All nodes support both, and an operator has not raised the feature level yet.
            answer = await self._alter_users(await self._hashed(upsertions, _STORED_BY_ALL), deletions)
        return AlteredUsers(answer.created, answer.deleted)

    async def _stored_mechanisms(self) -> tuple[ScramMechanism, ...]:
        """Returns the mechanisms for which the cluster stores passwords, or is about to."""
        answer = await self._cluster.retrying(
            lambda: self._cluster.ask_metadata([]), self._limit_s, "alter_user_scram_credentials"
        )
        supported = min((each.feature_level for each in answer.brokers), default=0)
        stores_both = max(answer.feature_level, supported) >= _BOTH_FROM_LEVEL
        return tuple(ScramMechanism) if stores_both else _STORED_BY_ALL

    async def _hashed(
        self, upsertions: Iterable[UserScramCredentialUpsertion], mechanisms: Sequence[ScramMechanism]
    ) -> list[credentials_pb2.ScramCredential]:
        """Returns the credentials to store: of each user for its mechanism, or for all that are given."""
        made = []
        for each in upsertions:
            chosen = mechanisms if each.mechanism is None else (MECHANISMS[each.mechanism],)
            for mechanism in chosen:
                credential: credentials_pb2.ScramCredential
                credential = await self._cluster.runtime.run_blocking(_credential, each, mechanism)
                if each.mechanism is not None or len(chosen) > 1:
                    credential.mechanism = number_of(mechanism)
                made.append(credential)
        return made

    async def _alter_users(
        self, upsertions: Iterable[credentials_pb2.ScramCredential], deletions: Sequence[UserScramCredentialDeletion]
    ) -> credentials_pb2.AlterUserScramCredentialsResponse:
        request = credentials_pb2.AlterUserScramCredentialsRequest(
            upsertions=upsertions, deletions=[each.user for each in deletions], timeout_ms=self._timeout_ms
        )
        if any(each.mechanism is not None for each in deletions):
            request.deletion_mechanisms.extend(_number(each.mechanism) for each in deletions)

        async def attempt() -> credentials_pb2.AlterUserScramCredentialsResponse:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.AlterUserScramCredentials(request, timeout=limit)
            )

        return await self._cluster.retrying(attempt, self._limit_s, "alter_user_scram_credentials")

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
        return [
            UserScramCredential(u.user, u.iterations, u.for_super_user, u.changed_ms, _mechanism_name(u.mechanism))
            for u in answer.users
        ]

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
        if each.mechanism is not None and each.mechanism not in MECHANISMS:
            raise IllegalArgumentError(f"mechanism is {each.mechanism!r:.40}: give {' or '.join(MECHANISMS)}, or None")
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


def _number(mechanism: str | None) -> ScramNumber.ValueType:
    return ScramNumber.SCRAM_MECHANISM_UNSPECIFIED if mechanism is None else number_of(MECHANISMS[mechanism])


def _mechanism_name(number: int) -> str:
    """Returns the name of a reported mechanism; nodes of former versions report none."""
    known = {0: ScramMechanism.SHA_256, **{int(each): each for each in ScramMechanism}}
    return known[number].sasl_name if number in known else f"mechanism {number}"


def _credential(upsertion: UserScramCredentialUpsertion, mechanism: ScramMechanism) -> credentials_pb2.ScramCredential:
    """Returns the keys derived from a password, for the nodes."""
    salt = secrets.token_bytes(MIN_SALT_BYTES)
    keys = salted_keys(mechanism, new_password(upsertion.password), salt, upsertion.iterations)
    return credentials_pb2.ScramCredential(
        user=upsertion.user,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
        for_super_user=bool(upsertion.for_super_user),
    )
