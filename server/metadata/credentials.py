"""Users with a password, and revocations, as a part of the metadata image: pure, and identical on every node.

``index`` grows with every change: a client that was authenticated needs no new check before that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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
from quorumlog.v1.credentials_pb2 import ScramMechanism as ScramNumber
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.wire.scram import (
    MAX_ITERATIONS,
    MAX_SALT_BYTES,
    MECHANISMS,
    MIN_ITERATIONS,
    MIN_SALT_BYTES,
    ScramMechanism,
)

#: Maximum number of users in one cluster, and of revocations.
MAX_USERS = 10_000
MAX_REVOCATIONS = 10_000
#: Maximum length of a user's name, in characters.
MAX_NAME_LENGTH = 249
#: An authority assigns serial numbers of at most 20 bytes (RFC 5280, section 4.1.2.2).
_SERIAL = re.compile(r"0|[1-9a-f][0-9a-f]{0,39}")


#: A change of users: as requested, or in the metadata log.
UsersChange: TypeAlias = AlterUserScramCredentialsRequest | metadata_log_pb2.UsersAltered


class PasswordVersion(NamedTuple):
    """Identifies a password among all that a user has had.

    Arguments:
        changed_index: index of the entry that set it.
    """

    mechanism: ScramMechanism
    changed_index: int


@dataclass(slots=True, frozen=True)
class UserPassword:
    """A user's password for one mechanism, as nodes store it.

    Arguments:
        name: the user's.
        salt, stored_key, server_key, iterations: derived from the password (RFC 5802, section 3).
        for_super_user: the password also grants a super user's rights, if the name is a super user's.
        changed_index: index of the entry that set the password.
        changed_ms: time of that change, in milliseconds since the epoch.
    """

    name: str
    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    for_super_user: bool
    changed_index: int
    changed_ms: int

    def __repr__(self) -> str:
        # A log must not help its readers to guess passwords.
        return f"UserPassword({self.name!r}, {self.mechanism.name}, changed_index={self.changed_index})"

    @property
    def version(self) -> PasswordVersion:
        """Identifies the password."""
        return PasswordVersion(self.mechanism, self.changed_index)

    @property
    def shown(self) -> UserScramCredential:
        """The public part of the credential."""
        return UserScramCredential(
            user=self.name,
            iterations=self.iterations,
            for_super_user=self.for_super_user,
            changed_ms=self.changed_ms,
            mechanism=_number_of(self.mechanism),
        )


class Credentials:
    """The users and the revocations of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed them; 0 if none has.
        salt_key: random bytes from which salts for nonexistent users are derived; empty before there was a user.
        users: their passwords by name and mechanism; each user has one for at least one mechanism.
    """

    def __init__(self) -> None:
        self.index = 0
        self.salt_key = b""
        self.users: dict[str, Mapping[ScramMechanism, UserPassword]] = {}
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

    def passwords(self, users: Iterable[str] = ()) -> Iterator[UserPassword]:
        """Yields the passwords of some users, or of all if none is named, by user and mechanism."""
        names = {*users}
        for name in sorted(names & self.users.keys() if names else self.users):
            yield from (password for _, password in sorted(self.users[name].items()))

    # -- users ------------------------------------------------------------------------------------------------

    def check_users(self, change: UsersChange) -> Error | None:
        """Returns the error if the changes would exceed the limit on users, or None."""
        if self._count_after(change) <= MAX_USERS:
            return None
        problem = f"the cluster has {len(self.users)} users of {MAX_USERS}: delete unused ones"
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def _count_after(self, change: UsersChange) -> int:
        """Returns the number of users after a change."""
        held = {each.user: {*self.users.get(each.user, ())} for each in change.upsertions}
        held |= {name: {*self.users.get(name, ())} for name in change.deletions}
        others = len(self.users) - sum(map(bool, held.values()))
        for name, mechanism in _deletions(change):
            held[name] -= {*ScramMechanism} if mechanism is None else {mechanism}
        for each in change.upsertions:
            held[each.user].add(mechanism_of(each.mechanism))
        return others + sum(map(bool, held.values()))

    def alter_users(
        self, index: int, at_ms: int, command: metadata_log_pb2.UsersAltered
    ) -> peer_pb2.ControllerResponse:
        """Creates, changes and deletes users, all or none, when the entry is applied.

        Arguments:
            index: of the entry.
            at_ms: when it was proposed.
        """
        refused = self.check_users(command)
        if refused is not None:
            return _users_altered(AlterUserScramCredentialsResponse(error=refused))
        deleted = sum(self._delete(name, mechanism) for name, mechanism in _deletions(command))
        created = 0
        for each in command.upsertions:
            created += each.user not in self.users
            made = _password(each, index, at_ms)
            # A client that names no mechanism has one password only: the other one must not stay valid.
            others = self.users.get(each.user, {}) if each.mechanism else {}
            self.users[each.user] = {**others, made.mechanism: made}
        self.salt_key = self.salt_key or command.salt_key
        if deleted or command.upsertions:
            self.index = index
        return _users_altered(AlterUserScramCredentialsResponse(created=created, deleted=deleted))

    def _delete(self, name: str, mechanism: ScramMechanism | None) -> bool:
        """Deletes a user, or its password for one mechanism; False if it does not exist."""
        held = self.users.get(name, {})
        left = {} if mechanism is None else {other: held[other] for other in held if other is not mechanism}
        if len(left) == len(held):
            return False
        if left:
            self.users[name] = left
        else:
            del self.users[name]
        return True

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
        """Returns all passwords in the form of a snapshot."""
        return [_record(password) for password in self.passwords()]

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> Credentials:
        """Returns the credentials from a snapshot."""
        made = cls()
        made.index, made.salt_key = snapshot.credentials_index, snapshot.user_salt_key
        for record in snapshot.users:
            password = _password(record.credential, record.changed_index, record.changed_ms)
            made.users[password.name] = {**made.users.get(password.name, {}), password.mechanism: password}
        for each in snapshot.revocations:
            made._table(each)[_subject(each)] = each.revoked_ms
        return made


def _subject(revocation: Revocation) -> str:
    """Returns the subject of a revocation. A serial number is never equal to a principal, which contains a colon."""
    return revocation.serial or revocation.principal


def mechanism_of(number: int) -> ScramMechanism:
    """Returns the mechanism with a number in a message; without one it is SCRAM-SHA-256.

    Raises:
        ValueError: the number is unknown.
    """
    return ScramMechanism(number) if number else ScramMechanism.SHA_256


def _number_of(mechanism: ScramMechanism) -> ScramNumber.ValueType:
    return ScramNumber.Value(f"SCRAM_MECHANISM_{mechanism.name}")


def _deletions(change: UsersChange) -> Iterator[tuple[str, ScramMechanism | None]]:
    """Yields the user and the mechanism of each deletion; None: of all mechanisms."""
    for name, number in _numbered_deletions(change):
        yield name, ScramMechanism(number) if number else None


def _numbered_deletions(change: UsersChange) -> list[tuple[str, ScramNumber.ValueType]]:
    numbers = change.deletion_mechanisms or [ScramNumber.SCRAM_MECHANISM_UNSPECIFIED] * len(change.deletions)
    return list(zip(change.deletions, numbers, strict=True))


def _password(credential: ScramCredential, index: int, at_ms: int) -> UserPassword:
    return UserPassword(
        credential.user, mechanism_of(credential.mechanism), credential.salt, credential.stored_key,
        credential.server_key, credential.iterations, credential.for_super_user, index, at_ms,
    )  # fmt: skip


def _record(password: UserPassword) -> metadata_log_pb2.UserRecord:
    credential = ScramCredential(
        user=password.name,
        salt=password.salt,
        stored_key=password.stored_key,
        server_key=password.server_key,
        iterations=password.iterations,
        for_super_user=password.for_super_user,
    )
    if password.mechanism is not ScramMechanism.SHA_256:
        # Without it the record is the same as that of nodes before feature level 3.
        credential.mechanism = _number_of(password.mechanism)
    return metadata_log_pb2.UserRecord(
        credential=credential, changed_index=password.changed_index, changed_ms=password.changed_ms
    )


def _users_altered(response: AlterUserScramCredentialsResponse) -> peer_pb2.ControllerResponse:
    return peer_pb2.ControllerResponse(alter_user_scram_credentials=response)


# -- checks of requests -------------------------------------------------------------------------------------------


def check_users(request: AlterUserScramCredentialsRequest) -> Error | None:
    """Returns the error for users that are invalid regardless of existing ones, or None."""
    problem = (
        _problem_with_mechanisms(request)
        or _problem_with_count(len({*(each.user for each in request.upsertions), *request.deletions}), "users")
        or _problem_with_twice(_subjects(request))
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
        or _problem_with_twice([(each.serial or each.principal, 0) for each in every])
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


def needs_mechanisms(request: AlterUserScramCredentialsRequest) -> bool:
    """True if a valid request sets a password that nodes before feature level 3 cannot store."""
    return any(mechanism_of(each.mechanism) is not ScramMechanism.SHA_256 for each in request.upsertions)


def omit_unstored(request: AlterUserScramCredentialsRequest) -> None:
    """Removes the deletions that have no effect below feature level 3, where all passwords are for SCRAM-SHA-256.

    A controller of a former version would ignore the mechanism, and delete the user.
    """
    every = _numbered_deletions(request)
    stored = [(name, number) for name, number in every if mechanism_of(number) is ScramMechanism.SHA_256]
    del request.deletions[:], request.deletion_mechanisms[:]
    request.deletions.extend(name for name, _ in stored)
    request.deletion_mechanisms.extend(number for _, number in stored)


def _problem_with_mechanisms(request: AlterUserScramCredentialsRequest) -> str | None:
    numbers = request.deletion_mechanisms
    if numbers and len(numbers) != len(request.deletions):
        return f"{len(numbers)} mechanisms for {len(request.deletions)} deletions: send one for each, or none"
    for number in (*(each.mechanism for each in request.upsertions), *numbers):
        if number and number not in {*ScramMechanism}:
            return unknown_mechanism(number)
    return None


def unknown_mechanism(number: int) -> str:
    """Returns the problem with a mechanism that does not exist."""
    return f"there is no SCRAM mechanism {number}: use {' or '.join(MECHANISMS)}"


def _subjects(request: AlterUserScramCredentialsRequest) -> list[tuple[str, int]]:
    """Returns user and mechanism of each change; 0 for each of a user that is also changed as a whole."""
    changes = [(each.user, int(each.mechanism)) for each in request.upsertions]
    changes += _numbered_deletions(request)
    whole = {name for name, number in changes if not number}
    return [(name, 0 if name in whole else number) for name, number in changes]


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
    mechanism = mechanism_of(credential.mechanism)
    if len(credential.stored_key) != mechanism.key_bytes or len(credential.server_key) != mechanism.key_bytes:
        return f"the keys of {credential.user} are not {mechanism.key_bytes} bytes each, as {mechanism.sasl_name} needs"
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
    return f"{count} {what} in the request: give 1 to {MAX_CREDENTIALS_CHANGED} in one request"


def _problem_with_twice(subjects: Sequence[tuple[str, int]]) -> str | None:
    seen = set[tuple[str, int]]()
    for subject in subjects:
        if subject in seen:
            return f"{subject[0][:40]!r} is named twice"
        seen.add(subject)
    return None
