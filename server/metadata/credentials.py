"""Users with a password, and revocations, as a part of the metadata image: pure, and identical on every node.

``index`` grows with every change: a client that was authenticated needs no new check before that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quorumlog.server.step.request_context import ANONYMOUS, EVERYBODY, USER_PREFIX
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterRevocationsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    Revocation,
    ScramCredential,
    UserScramCredential,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.wire.scram import KEY_BYTES, MAX_ITERATIONS, MAX_SALT_BYTES, MIN_ITERATIONS, MIN_SALT_BYTES

#: Maximum number of users in one cluster, and of revocations.
MAX_USERS = 10_000
MAX_REVOCATIONS = 10_000
#: Maximum length of a user's name, in characters.
MAX_NAME_LENGTH = 249
#: An authority assigns serial numbers of at most 20 bytes (RFC 5280, section 4.1.2.2).
_SERIAL = re.compile(r"0|[1-9a-f][0-9a-f]{0,39}")


@dataclass(slots=True, frozen=True)
class PasswordUser:
    """A user who authenticates with a password.

    Arguments:
        salt, stored_key, server_key, iterations: derived from the password (RFC 5802, section 3).
        for_super_user: the password also grants a super user's rights, if the name is a super user's.
        changed_index: index of the entry that set the password; it identifies the password.
        changed_ms: time of that change, in milliseconds since the epoch.
    """

    name: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    for_super_user: bool
    changed_index: int
    changed_ms: int

    def __repr__(self) -> str:
        # A log must not help its readers to guess passwords.
        return f"PasswordUser({self.name!r}, changed_index={self.changed_index})"

    @property
    def shown(self) -> UserScramCredential:
        """The public part of the credential."""
        return UserScramCredential(
            user=self.name,
            iterations=self.iterations,
            for_super_user=self.for_super_user,
            changed_ms=self.changed_ms,
        )


class Credentials:
    """The users and the revocations of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed them; 0 if none has.
        salt_key: random bytes from which salts for nonexistent users are derived; empty before there was a user.
        users: by name.
    """

    def __init__(self) -> None:
        self.index = 0
        self.salt_key = b""
        self.users: dict[str, PasswordUser] = {}
        #: Time of the revocation, in milliseconds since the epoch.
        self._serials: dict[str, int] = {}
        self._principals: dict[str, int] = {}

    # -- asking -----------------------------------------------------------------------------------------------

    def is_revoked(self, serial: str, principal: str) -> bool:
        """True if a certificate, or everything that a principal has, is revoked.

        Arguments:
            serial: of the certificate; empty without one.
        """
        return serial in self._serials or principal in self._principals

    @property
    def revocations(self) -> list[Revocation]:
        """All revocations: serial numbers, then principals, each in order."""
        serials, principals = sorted(self._serials.items()), sorted(self._principals.items())
        return [
            *(Revocation(serial=serial, revoked_ms=at) for serial, at in serials),
            *(Revocation(principal=principal, revoked_ms=at) for principal, at in principals),
        ]

    # -- users ------------------------------------------------------------------------------------------------

    def check_users(self, upsertions: Iterable[ScramCredential], deletions: Iterable[str]) -> Error | None:
        """Returns the error if the changes would exceed the limit on users, or None."""
        kept = self.users.keys() - set(deletions)
        new = {each.user for each in upsertions} - kept
        if len(kept) + len(new) <= MAX_USERS:
            return None
        problem = f"the cluster has {len(self.users)} users of {MAX_USERS}: delete unused ones"
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def alter_users(
        self, index: int, at_ms: int, command: metadata_log_pb2.UsersAltered
    ) -> peer_pb2.ControllerResponse:
        """Creates, changes and deletes users, all or none, when the entry is applied.

        Arguments:
            index: of the entry.
            at_ms: when it was proposed.
        """
        refused = self.check_users(command.upsertions, command.deletions)
        if refused is not None:
            return _users_altered(AlterUserScramCredentialsResponse(error=refused))
        deleted = [name for name in command.deletions if self.users.pop(name, None) is not None]
        created = 0
        for each in command.upsertions:
            created += each.user not in self.users
            self.users[each.user] = _user(each, index, at_ms)
        self.salt_key = self.salt_key or command.salt_key
        if deleted or command.upsertions:
            self.index = index
        return _users_altered(AlterUserScramCredentialsResponse(created=created, deleted=len(deleted)))

    # -- revocations ------------------------------------------------------------------------------------------

    def check_revocations(self, revoke: Iterable[Revocation], restore: Iterable[Revocation]) -> Error | None:
        """Returns the error if the changes would exceed the limit on revocations, or None."""
        before = {*self._serials, *self._principals}
        after = (before - set(map(_subject, restore))) | set(map(_subject, revoke))
        if len(after) <= MAX_REVOCATIONS:
            return None
        problem = (
            f"the cluster has {len(before)} revocations of {MAX_REVOCATIONS}: restore those whose certificates have"
            " ended, or replace the authority"
        )
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def alter_revocations(
        self, index: int, at_ms: int, command: metadata_log_pb2.RevocationsAltered
    ) -> peer_pb2.ControllerResponse:
        """Revokes and restores, all or none, when the entry is applied.

        Arguments:
            see ``alter_users``.
        """
        refused = self.check_revocations(command.revoke, command.restore)
        if refused is not None:
            return peer_pb2.ControllerResponse(alter_revocations=AlterRevocationsResponse(error=refused))
        restored = sum(self._table(each).pop(_subject(each), None) is not None for each in command.restore)
        revoked = 0
        for each in command.revoke:
            table, subject = self._table(each), _subject(each)
            if subject not in table:
                table[subject] = at_ms
                revoked += 1
        if restored or revoked:
            self.index = index
        response = AlterRevocationsResponse(revoked=revoked, restored=restored)
        return peer_pb2.ControllerResponse(alter_revocations=response)

    def _table(self, revocation: Revocation) -> dict[str, int]:
        return self._serials if revocation.HasField("serial") else self._principals

    # -- snapshots --------------------------------------------------------------------------------------------

    def user_records(self) -> list[metadata_log_pb2.UserRecord]:
        """Returns all users in the form of a snapshot."""
        return [_record(user) for _, user in sorted(self.users.items())]

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> Credentials:
        """Returns the credentials from a snapshot."""
        made = cls()
        made.index, made.salt_key = snapshot.credentials_index, snapshot.user_salt_key
        for record in snapshot.users:
            user = _user(record.credential, record.changed_index, record.changed_ms)
            made.users[user.name] = user
        for each in snapshot.revocations:
            made._table(each)[_subject(each)] = each.revoked_ms
        return made


def _subject(revocation: Revocation) -> str:
    """Returns the subject of a revocation. A serial number is never equal to a principal, which contains a colon."""
    return revocation.serial or revocation.principal


def _user(credential: ScramCredential, index: int, at_ms: int) -> PasswordUser:
    return PasswordUser(
        credential.user, credential.salt, credential.stored_key, credential.server_key, credential.iterations,
        credential.for_super_user, index, at_ms,
    )  # fmt: skip


def _record(user: PasswordUser) -> metadata_log_pb2.UserRecord:
    credential = ScramCredential(
        user=user.name,
        salt=user.salt,
        stored_key=user.stored_key,
        server_key=user.server_key,
        iterations=user.iterations,
        for_super_user=user.for_super_user,
    )
    return metadata_log_pb2.UserRecord(
        credential=credential, changed_index=user.changed_index, changed_ms=user.changed_ms
    )


def _users_altered(response: AlterUserScramCredentialsResponse) -> peer_pb2.ControllerResponse:
    return peer_pb2.ControllerResponse(alter_user_scram_credentials=response)


# -- checks of requests -------------------------------------------------------------------------------------------


def check_users(request: AlterUserScramCredentialsRequest) -> Error | None:
    """Returns the error for users that are invalid regardless of existing ones, or None."""
    names = [*(each.user for each in request.upsertions), *request.deletions]
    problem = (
        _problem_with_count(len(names), "users")
        or _problem_with_twice(names)
        or next((found for each in request.upsertions if (found := _problem_with(each))), None)
        or next((found for each in request.deletions if (found := problem_with_name(each))), None)
    )
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def check_question(request: DescribeUserScramCredentialsRequest) -> Error | None:
    """Returns the error for a query of too many users, or None."""
    if len(request.users) <= MAX_CREDENTIALS_CHANGED:
        return None
    problem = f"{len(request.users)} users are asked for: give at most {MAX_CREDENTIALS_CHANGED}, or none for all"
    return error(ErrorCode.INVALID_REQUEST, problem)


def check_revocations(request: AlterRevocationsRequest, super_users: Iterable[str]) -> Error | None:
    """Returns the error for revocations that are invalid regardless of existing ones, or None.

    Arguments:
        super_users: principals that must not be locked out.
    """
    every = [*request.revoke, *request.restore]
    problem = (
        _problem_with_count(len(every), "certificates and principals")
        or next((found for each in every if (found := _problem_with_subject(each))), None)
        or _problem_with_twice([each.serial or each.principal for each in every])
    )
    if problem is not None:
        return error(ErrorCode.INVALID_REQUEST, problem)
    locked = {each.principal for each in request.revoke} & set(super_users)
    if locked:
        said = f"{min(locked)} is a super user and cannot be locked out: revoke the serial number of its certificate"
        return error(ErrorCode.POLICY_VIOLATION, said)
    return None


def problem_with_name(name: str) -> str | None:
    """Returns why a user cannot have this name, or None."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        return f"user {name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
    if name.startswith(USER_PREFIX):
        return f"user {name[:40]!r}: give the name without {USER_PREFIX}"
    if f"{USER_PREFIX}{name}" in (ANONYMOUS, EVERYBODY):
        return f"user name {name} is reserved: choose another"
    return None


def _problem_with(credential: ScramCredential) -> str | None:
    problem = problem_with_name(credential.user)
    if problem is not None:
        return problem
    normal = unicodedata.normalize("NFKC", credential.user)
    if normal != credential.user:
        # Some clients would send the one form, others the other, and ACLs match only one of them.
        return f"user {credential.user[:40]!r} can be written in two ways (Unicode): use {normal[:40]!r}"
    if not MIN_SALT_BYTES <= len(credential.salt) <= MAX_SALT_BYTES:
        return f"the salt of {credential.user} is not {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes"
    if len(credential.stored_key) != KEY_BYTES or len(credential.server_key) != KEY_BYTES:
        return f"the keys of {credential.user} are not {KEY_BYTES} bytes each: only SCRAM-SHA-256 is known"
    if not MIN_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        return f"{credential.iterations} iterations for {credential.user}: give {MIN_ITERATIONS} to {MAX_ITERATIONS}"
    return None


def _problem_with_subject(revocation: Revocation) -> str | None:
    match revocation.WhichOneof("subject"):
        case "serial":
            if not _SERIAL.fullmatch(revocation.serial):
                return (
                    f"serial number {revocation.serial[:50]!r} is not 1 to 40 hexadecimal digits in small letters"
                    " without leading zeros (quorumlog certs show)"
                )
        case "principal":
            name = revocation.principal.removeprefix(USER_PREFIX)
            if name == revocation.principal:
                return f"principal {name[:40]!r} is not {USER_PREFIX} and a name"
            return problem_with_name(name)
        case _:
            return "a revocation is of a serial number or a principal: say which"
    return None


def _problem_with_count(count: int, what: str) -> str | None:
    if 1 <= count <= MAX_CREDENTIALS_CHANGED:
        return None
    return f"{count} {what} are to be changed: give 1 to {MAX_CREDENTIALS_CHANGED} in one request"


def _problem_with_twice(names: Sequence[str]) -> str | None:
    seen = set[str]()
    for name in names:
        if name in seen:
            return f"{name[:40]!r} is named twice"
        seen.add(name)
    return None
