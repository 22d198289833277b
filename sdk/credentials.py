"""Users who sign in by password, and what was revoked, with the names of Kafka's Python clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.wire.scram import DEFAULT_ITERATIONS, MECHANISM


@dataclass(slots=True, frozen=True)
class UserScramCredentialUpsertion:
    """A user to create, or to give another password.

    Arguments:
        user: the name; in rules it is ``User:`` and the name.
        password: never leaves this process: nodes are told what comes of it (RFC 5802).
        iterations: how often it is hashed.
        for_super_user: the name is a super user's, and the password is to be good for that. Only a super user can say
            so.
    """

    user: str
    password: str = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS
    for_super_user: bool = False


@dataclass(slots=True, frozen=True)
class UserScramCredentialDeletion:
    """A user to delete."""

    user: str


@dataclass(slots=True, frozen=True)
class UserScramCredential:
    """A user who can sign in by password.

    Arguments:
        iterations: how often the password is hashed.
        for_super_user: whether the password is good for a super user's rights.
        changed_ms: when it was set, in milliseconds since 1970.
    """

    user: str
    iterations: int
    for_super_user: bool
    changed_ms: int
    mechanism: str = MECHANISM


class AlteredUsers(NamedTuple):
    """How many users were not there before, and how many are not there any more."""

    created: int
    deleted: int


@dataclass(slots=True, frozen=True)
class Revocation:
    """What counts no more: a client's certificate, or whatever a principal has.

    Arguments:
        serial: the certificate's serial number in hexadecimal digits; None: it is of a principal.
        principal: ``User:`` and a name; None: it is of a certificate.
        revoked_ms: when, in milliseconds since 1970.
    """

    serial: str | None
    principal: str | None
    revoked_ms: int
