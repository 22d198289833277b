"""Users who sign in by password, and what was revoked, as a part of the metadata image: pure, and the same on every
node.

``index`` says since when all of it is as it is, so that whoever has let somebody in need not ask again until it grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quorumlog.server.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsResponse,
    AlterUserScramCredentialsResponse,
    Revocation,
    ScramCredential,
    UserScramCredential,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: Users in one cluster, and as many things that were revoked.
MAX_USERS = 10_000
MAX_REVOCATIONS = 10_000


@dataclass(slots=True, frozen=True)
class PasswordUser:
    """A user who signs in by password.

    Arguments:
        salt, stored_key, server_key, iterations: what is kept of the password (RFC 5802, section 3).
        for_super_user: the password is good for super users' rights, if the name is among theirs.
        changed_index: of the entry that set the password: another one has another.
        changed_ms: when that was, since the epoch.
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
        # Whoever reads a log must not be able to guess at passwords by what stands in it.
        return f"PasswordUser({self.name!r}, changed_index={self.changed_index})"

    @property
    def shown(self) -> UserScramCredential:
        """What may be told of it."""
        return UserScramCredential(
            user=self.name,
            iterations=self.iterations,
            for_super_user=self.for_super_user,
            changed_ms=self.changed_ms,
        )


class Credentials:
    """The users and the revocations of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed any of it; 0: none has.
        salt_key: random bytes of which salts are made up for users that are not there; empty before there was one.
        users: by name.
    """

    def __init__(self) -> None:
        self.index = 0
        self.salt_key = b""
        self.users: dict[str, PasswordUser] = {}
        #: When, in milliseconds since the epoch.
        self._serials: dict[str, int] = {}
        self._principals: dict[str, int] = {}

    # -- asking -----------------------------------------------------------------------------------------------

    def is_revoked(self, serial: str, principal: str) -> bool:
        """Whether a certificate, or whatever a principal has, counts no more.

        Arguments:
            serial: of the certificate; empty: there is none.
        """
        return serial in self._serials or principal in self._principals

    @property
    def revocations(self) -> list[Revocation]:
        """All of them: serial numbers, then principals, in order."""
        serials, principals = sorted(self._serials.items()), sorted(self._principals.items())
        return [
            *(Revocation(serial=serial, revoked_ms=at) for serial, at in serials),
            *(Revocation(principal=principal, revoked_ms=at) for principal, at in principals),
        ]

    # -- users ------------------------------------------------------------------------------------------------

    def check_users(self, upsertions: Iterable[ScramCredential], deletions: Iterable[str]) -> Error | None:
        """Why users cannot be altered like this, or None."""
        kept = self.users.keys() - set(deletions)
        new = {each.user for each in upsertions} - kept
        if len(kept) + len(new) <= MAX_USERS:
            return None
        problem = f"the cluster has {len(self.users)} users of {MAX_USERS}: delete those that nobody needs"
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def alter_users(
        self, index: int, at_ms: int, command: metadata_log_pb2.UsersAltered
    ) -> peer_pb2.ControllerResponse:
        """Creates, changes and deletes users, all or none, as the log decides it.

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
        """Why the revocations cannot be altered like this, or None."""
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
        """Revokes and restores, all or nothing, as the log decides it.

        Arguments:
            as for users.
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
        """All users, as a snapshot holds them."""
        return [_record(user) for _, user in sorted(self.users.items())]

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> Credentials:
        """What a snapshot holds of them."""
        made = cls()
        made.index, made.salt_key = snapshot.credentials_index, snapshot.user_salt_key
        for record in snapshot.users:
            user = _user(record.credential, record.changed_index, record.changed_ms)
            made.users[user.name] = user
        for each in snapshot.revocations:
            made._table(each)[_subject(each)] = each.revoked_ms
        return made


def _subject(revocation: Revocation) -> str:
    """A serial number is never a principal: that has a colon."""
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
