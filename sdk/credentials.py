"""Users with passwords, and revocations, named as in Kafka's Python clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.wire.scram import DEFAULT_ITERATIONS, ScramMechanism


@dataclass(slots=True, frozen=True)
class UserScramCredentialUpsertion:
    """A user to create, or a new password for an existing one.

    Arguments:
        user: the name; in ACLs it is ``User:`` and the name.
        password: never leaves this process: nodes receive only keys derived from it (RFC 5802).
        iterations: number of hash iterations.
        for_super_user: allow setting a password for a super user. Only a super user may do this.
        mechanism: ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``: sets the password for it, and leaves the other one. None:
            sets it for both, as far as the cluster stores them (from feature level 3 on it stores both), so that no
            former password stays valid.
    """

    user: str
    password: str = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS
    for_super_user: bool = False
    mechanism: str | None = None


@dataclass(slots=True, frozen=True)
class UserScramCredentialDeletion:
    """A user to delete.

    Arguments:
        mechanism: deletes only the password for it, and the user if it has no other; None: the user.
    """

    user: str
    mechanism: str | None = None


@dataclass(slots=True, frozen=True)
class UserScramCredential:
    """A password of a user, for one mechanism; a user may have one for each.

    Arguments:
        iterations: number of hash iterations of the password.
        for_super_user: True if the password grants a super user's rights.
        changed_ms: when it was set, in milliseconds since the epoch.
        mechanism: ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``.
    """

    user: str
    iterations: int
    for_super_user: bool
    changed_ms: int
    mechanism: str = ScramMechanism.SHA_256.sasl_name


class AlteredUsers(NamedTuple):
    """Numbers of users that a change created and deleted."""

    created: int
    deleted: int


@dataclass(slots=True, frozen=True)
class Revocation:
    """A revoked client certificate, or the revocation of all credentials of a principal.

    Arguments:
        serial: the certificate's serial number in hexadecimal digits; None for a principal.
        principal: ``User:`` and a name; None for a certificate.
        revoked_ms: time of revocation, in milliseconds since the epoch.
    """

    serial: str | None
    principal: str | None
    revoked_ms: int
